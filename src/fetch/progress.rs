//! What a person sees while a model is fetched.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Where progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nowhere.
    Silent,
    /// A line on standard error for each step.
    Lines,
    /// As lines, and a bar that moves; for terminals.
    Bar,
}

impl Progress {
    /// A bar if standard error is a terminal, else lines.
    pub fn of_stderr() -> Self {
        if std::io::stderr().is_terminal() { Progress::Bar } else { Progress::Lines }
    }

    /// One line on standard error.
    pub(super) fn note(self, text: &str) {
        if self != Progress::Silent {
            // A closed standard error is no reason to give up the fetch.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Counts bytes, of which `done` are there already.
    pub(crate) fn bytes(self, label: &str, total: Option<u64>, done: u64) -> Meter {
        let bar = self.bar(label, total);
        if let Some(bar) = &bar {
            let template = match total {
                Some(_) => "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                None => "{spinner} {bytes} {bytes_per_sec}",
            };
            bar.set_style(ProgressStyle::with_template(template).expect("the templates are constants"));
            bar.set_position(done);
            bar.reset_eta();
        }
        Meter(bar)
    }

    /// Something that cannot be measured.
    pub(super) fn work(self, label: &str) -> Meter {
        let bar = self.bar(label, None);
        if let Some(bar) = &bar {
            bar.set_style(ProgressStyle::with_template("{spinner} {elapsed}").expect("the template is a constant"));
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Meter(bar)
    }

    fn bar(self, label: &str, total: Option<u64>) -> Option<ProgressBar> {
        self.note(label);
        let bar = || total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        (self == Progress::Bar).then(bar)
    }
}

/// A running count, taken off the screen when dropped.
pub(crate) struct Meter(Option<ProgressBar>);

impl Meter {
    pub(crate) fn add(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(bytes);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
