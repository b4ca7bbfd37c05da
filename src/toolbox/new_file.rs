//! A file that is written whole or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::{Error, Result};

/// What is being written and not whole yet.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Exit code of a program that Ctrl-C ended, by the custom of shells.
const INTERRUPTED: i32 = 130;

/// From now on Ctrl-C takes an unfinished file away before it ends the program.
pub(super) fn tidy_on_interrupt() {
    // Where there can be no handler, the file is left behind under its other name.
    let _ = ctrlc::set_handler(|| {
        if let Some(part) = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = fs::remove_file(part);
        }
        std::process::exit(INTERRUPTED);
    });
}

fn set_unfinished(part: Option<&Path>) {
    *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = part.map(Path::to_owned);
}

/// Writes a file to `path`, under another name until it is whole.
///
/// # Errors
/// [`Error::InvalidArgument`] if the file is there and may not be overwritten; [`Error::Io`] if writing fails; what `write` returns.
pub(super) fn write_new(path: &Path, force: bool, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    if path.is_dir() || path.exists() && !force {
        let remedy = if path.is_dir() { "a folder; give the name of a file" } else { "there already; give another name or --force" };
        return Err(Error::invalid("output file", format!("{} is {remedy}", path.display())));
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".part{}", std::process::id()));
    let part = PathBuf::from(part);
    let io = |action| move |source| Error::Io { path: path.to_owned(), action, source };
    set_unfinished(Some(&part));
    let written = File::create(&part)
        .map_err(io("write"))
        .and_then(|mut file| write(&mut file))
        .and_then(|()| fs::rename(&part, path).map_err(io("write")));
    set_unfinished(None);
    if written.is_err() {
        // What went wrong matters more than that the leavings cannot be removed.
        let _ = fs::remove_file(&part);
    }
    written
}
