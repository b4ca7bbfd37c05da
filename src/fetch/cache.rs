//! The folder of fetched models, and the file that is not whole yet.

use std::env;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Attempt;
use super::progress::Progress;
use crate::{Error, Result};

/// The folder that keeps fetched models: `$RML_CACHE`, else `rml` in the platform's cache folder.
///
/// # Errors
/// [`Error::Fetch`] if neither that variable nor a home directory is set.
pub fn cache_dir() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = set("RML_CACHE") {
        return Ok(dir);
    }
    let platform = if cfg!(target_os = "macos") {
        env::home_dir().map(|home| home.join("Library/Caches"))
    } else if cfg!(windows) {
        set("LOCALAPPDATA")
    } else {
        // The XDG specification has relative paths ignored.
        set("XDG_CACHE_HOME").filter(|p| p.is_absolute()).or_else(|| env::home_dir().map(|home| home.join(".cache")))
    };
    let missing = || Error::Fetch("there is no home directory to keep models in; set RML_CACHE to a folder for them".into());
    Ok(platform.ok_or_else(missing)?.join("rml"))
}

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Checksum([u8; 32]);

impl Checksum {
    /// From 64 hexadecimal digits.
    pub(super) fn from_hex(hex: &str) -> Option<Self> {
        let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        let bytes: Vec<u8> = digits?.chunks(2).map(|d| d.iter().fold(0, |n, d| n * 16 + d)).collect();
        (hex.len() == 64).then_some(())?;
        bytes.try_into().ok().map(Checksum)
    }
}

#[cfg(test)]
impl Checksum {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Checksum(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Who is to write a file of the cache.
pub(super) enum Claim {
    /// Nobody: it is there.
    Present,
    /// The holder of this.
    Mine(Part),
}

impl Claim {
    /// Claims `path`, waiting for another process that is at it. A file of another size than `bytes` does not count as present.
    pub(super) fn of(path: &Path, bytes: Option<u64>, progress: Progress) -> Result<Claim> {
        let present = || fs::metadata(path).is_ok_and(|m| m.is_file() && bytes.is_none_or(|b| b == m.len()));
        if present() {
            return Ok(Claim::Present);
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.to_owned(), action: "create", source })?;
        }
        let part_path = part_path_of(path);
        let file = lock(&part_path, progress).map_err(|source| Error::Io { path: part_path.clone(), action: "write", source })?;
        // The lock may have been waited for, and the file be there now.
        if present() {
            // Not the leavings of another: this was made by the opening above, or its holder is done with it.
            let _ = fs::remove_file(&part_path);
            return Ok(Claim::Present);
        }
        Ok(Claim::Mine(Part { path: path.to_owned(), part_path, file, digest: Sha256::new(), len: 0 }))
    }
}

/// The file at `path`, made if need be, and locked.
fn lock(path: &Path, progress: Progress) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.note("another process is fetching this model; waiting for it");
                file.lock()?;
            }
            // Some network file systems have no locks; the checksum still guards the result.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(e),
        }
        // Whoever held the lock may have renamed or removed the file, and this lock then guards nothing.
        if is_still_at(&file, path) {
            return Ok(file);
        }
    }
}

#[cfg(unix)]
fn is_still_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |m: fs::Metadata| (m.dev(), m.ino());
    let ours = file.metadata().map(id).ok();
    ours.is_some() && ours == fs::metadata(path).map(id).ok()
}

/// Elsewhere an open file is neither renamed nor removed under its holder.
#[cfg(not(unix))]
fn is_still_at(_: &File, path: &Path) -> bool {
    path.exists()
}

fn part_path_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// A file that is being written: locked, hashed as it grows, and renamed only when whole.
pub(super) struct Part {
    path: PathBuf,
    part_path: PathBuf,
    file: File,
    digest: Sha256,
    len: u64,
}

impl Part {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// A folder beside the file for what else the fetch needs.
    pub(super) fn scratch(&self) -> PathBuf {
        self.part_path.with_extension("scratch")
    }

    /// Starts over with an empty file.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.digest = Sha256::new();
        self.len = 0;
        Ok(())
    }

    /// Continues after what an earlier fetch left.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.digest = Sha256::new();
        self.len = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.file.read(&mut buffer)? {
                0 => return Ok(()),
                n => {
                    self.digest.update(&buffer[..n]);
                    self.len += n as u64;
                }
            }
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Whether what was written is what was expected; if not, starts over.
    pub(super) fn check(&mut self, expected: Checksum) -> Attempt<()> {
        let found = Checksum(self.digest.clone().finalize().into());
        if found == expected {
            return Ok(());
        }
        let len = self.len;
        self.restart().map_err(|e| e.to_string())?;
        Err(format!(
            "the {len} bytes received have SHA-256 {found}, not {expected}: damaged on the way, or not the file that was asked for"
        ))
    }

    /// Gives the file its final name.
    pub(super) fn keep(self) -> Result<PathBuf> {
        let failed = |action| {
            let path = self.path.clone();
            move |source| Error::Io { path, action, source }
        };
        self.file.sync_all().map_err(failed("write"))?;
        fs::rename(&self.part_path, &self.path).map_err(failed("rename the finished download to"))?;
        Ok(self.path)
    }

    /// Removes what there is, unless a later [`resume`](Part::resume) can use it.
    pub(super) fn give_up(self) {
        if self.file.metadata().is_ok_and(|m| m.len() == 0) {
            // What cannot be removed is overwritten by the next fetch.
            let _ = fs::remove_file(&self.part_path);
        }
    }
}
