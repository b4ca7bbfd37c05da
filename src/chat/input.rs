//! Where the user's lines come from: the line editor at a terminal, else standard input as it is.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Cmd, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, KeyEvent, RepeatCount};

use crate::program::Halt;

const PROMPT: &str = "> ";

/// What the user did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    /// Ctrl-C, at an empty prompt or in mid-line, which is then thrown away.
    Interrupted {
        empty: bool,
    },
    End,
}

pub(super) trait Lines {
    fn next_line(&mut self) -> Result<Line, Halt>;

    /// Whether a person sees what goes wrong while it does.
    fn is_interactive(&self) -> bool;
}

/// Lines of standard input: edited if both it and the screen are a terminal.
pub(super) fn of_stdin(screen_is_terminal: bool) -> Result<Box<dyn Lines>, Halt> {
    if is_person() && screen_is_terminal {
        return Ok(Box::new(Edited::new().map_err(|e| Halt::Failed(format!("the terminal cannot be used: {e}")))?));
    }
    Ok(Box::new(Plain { input: Box::new(io::stdin().lock()), prompts: is_person(), n_lines: 0 }))
}

/// Whether a person types at standard input.
pub(super) fn is_person() -> bool {
    io::stdin().is_terminal()
}

/// All of standard input, as the prompt of `-p -`.
pub(super) fn whole_stdin() -> Result<String, Halt> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(|e| Halt::Failed(format!("standard input: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|e| Halt::Failed(format!("standard input is not UTF-8: {e}")))?;
    Ok(text.trim_end().to_owned())
}

/// Lines as they come.
struct Plain {
    input: Box<dyn BufRead>,
    /// Whether to ask for each line. The prompt goes to standard error, since standard output is not the terminal.
    prompts: bool,
    n_lines: usize,
}

impl Lines for Plain {
    fn next_line(&mut self) -> Result<Line, Halt> {
        if self.prompts {
            let _ = write!(io::stderr(), "{PROMPT}");
        }
        let mut bytes = Vec::new();
        self.input.read_until(b'\n', &mut bytes).map_err(|e| Halt::Failed(format!("standard input: {e}")))?;
        if bytes.is_empty() {
            return Ok(Line::End);
        }
        self.n_lines += 1;
        let line = String::from_utf8(bytes).map_err(|_| Halt::Failed(format!("standard input, line {}: not UTF-8", self.n_lines)))?;
        Ok(Line::Text(line.trim_end_matches(['\n', '\r']).to_owned()))
    }

    fn is_interactive(&self) -> bool {
        self.prompts
    }
}

/// The line editor, with a history of this run.
struct Edited {
    editor: Editor<(), MemHistory>,
    interrupted_empty: Arc<AtomicBool>,
}

/// Notes whether Ctrl-C met an empty line, which the editor does not say.
struct OnCtrlC(Arc<AtomicBool>);

impl ConditionalEventHandler for OnCtrlC {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(context.line().is_empty(), Ordering::SeqCst);
        Some(Cmd::Interrupt)
    }
}

impl Edited {
    fn new() -> rustyline::Result<Self> {
        let mut editor = Editor::with_history(Config::default(), MemHistory::new())?;
        editor.set_auto_add_history(true);
        let interrupted_empty = Arc::new(AtomicBool::new(false));
        let on_ctrl_c = OnCtrlC(Arc::clone(&interrupted_empty));
        editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(Box::new(on_ctrl_c)));
        Ok(Edited { editor, interrupted_empty })
    }
}

impl Lines for Edited {
    fn next_line(&mut self) -> Result<Line, Halt> {
        match self.editor.readline(PROMPT) {
            Ok(line) => Ok(Line::Text(line)),
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted { empty: self.interrupted_empty.load(Ordering::SeqCst) }),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Io(e)) => Err(e.into()),
            Err(e) => Err(Halt::Failed(format!("the terminal cannot be used: {e}"))),
        }
    }

    fn is_interactive(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &'static [u8]) -> Plain {
        Plain { input: Box::new(text), prompts: false, n_lines: 0 }
    }

    #[test]
    fn lines_end_at_any_newline_and_at_the_end() {
        let mut lines = plain(b"one\r\n two \n\nlast");
        for expected in ["one", " two ", "", "last"] {
            assert_eq!(lines.next_line().unwrap(), Line::Text(expected.into()));
        }
        assert_eq!(lines.next_line().unwrap(), Line::End);
    }

    #[test]
    fn broken_text_is_named_by_its_line() {
        let mut lines = plain(b"good\nb\xffd\n");
        lines.next_line().unwrap();
        assert!(matches!(lines.next_line(), Err(Halt::Failed(reason)) if reason.contains("line 2: not UTF-8")));
    }
}
