//! Ctrl-C: during a reply it ends the reply; at an empty prompt a second one in a row ends the program.
//!
//! The one that ended a reply counts as the first. At the line editor's prompt the terminal sends no signal, and the editor
//! reports the key instead; everywhere else it is a signal.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::generate::Interrupt;
use crate::program::note;

/// Presses during a reply after which it is plain that the step at hand takes too long to be waited for.
const INSISTENT: u32 = 3;
/// What a shell reports of a program that SIGINT ended.
const KILLED: i32 = 130;

/// Presses in a row, and what they mean now.
#[derive(Clone, Debug)]
pub(super) struct CtrlC(Arc<State>);

#[derive(Debug)]
struct State {
    interrupt: Interrupt,
    replying: AtomicBool,
    presses: AtomicU32,
    /// Whether a person sits at a prompt between replies.
    prompted: bool,
}

impl CtrlC {
    /// `prompted` says whether a person is asked for each turn; without one, a press between replies ends the program.
    pub(super) fn new(interrupt: Interrupt, prompted: bool) -> Self {
        CtrlC(Arc::new(State { interrupt, replying: AtomicBool::new(false), presses: AtomicU32::new(0), prompted }))
    }

    /// Listens to the signal from now on. Before, and where this fails, it ends the program.
    pub(super) fn listen(&self) {
        let this = self.clone();
        if let Err(e) = ctrlc::set_handler(move || this.on_signal()) {
            note(&format!("Ctrl-C will end the program, not only a reply: {e}"));
        }
    }

    fn on_signal(&self) {
        let presses = self.press();
        if self.0.replying.load(Ordering::SeqCst) {
            self.0.interrupt.set();
            match presses {
                1 => {}
                ..INSISTENT => note("\n(the reply ends after the step at hand; Ctrl-C once more ends the program)"),
                _ => process::exit(KILLED),
            }
        } else if !self.0.prompted {
            process::exit(KILLED);
        } else if presses >= 2 {
            note("");
            process::exit(0);
        } else {
            note("\n(Ctrl-C again, or an empty line, quits)");
        }
    }

    /// Counts a press, and says how many there were in a row.
    pub(super) fn press(&self) -> u32 {
        self.0.presses.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Something else was done in between.
    pub(super) fn forget_presses(&self) {
        self.0.presses.store(0, Ordering::SeqCst);
    }

    pub(super) fn begin_reply(&self) {
        self.forget_presses();
        self.0.replying.store(true, Ordering::SeqCst);
    }

    /// However often a reply was told to end, that was one wish.
    pub(super) fn end_reply(&self) {
        self.0.replying.store(false, Ordering::SeqCst);
        self.0.presses.fetch_min(1, Ordering::SeqCst);
    }
}
