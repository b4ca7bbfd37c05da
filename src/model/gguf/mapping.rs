//! A file's bytes, mapped or read.
#![allow(unsafe_code, reason = "mapping a file is unsafe; this is the one place that does it")]

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use memmap2::{Mmap, MmapOptions};

use crate::{Error, Result};

/// Start of the bytes is a multiple of this, mapped or read: whole vectors and cache lines.
const ALIGNMENT: usize = 64;

/// A file's bytes, which start at a multiple of 64.
#[derive(Debug)]
pub(in crate::model) enum Mapping {
    /// Pages of the file, read when touched.
    Mapped(Mmap),
    /// A copy: the file itself no longer matters.
    Held {
        /// The copy, after `start` bytes of padding.
        buffer: Vec<u8>,
        /// Where the copy starts.
        start: usize,
    },
}

impl Mapping {
    /// Maps a regular file, or reads it if `mmap` is false.
    pub(in crate::model) fn open(path: &Path, mmap: bool) -> Result<Self> {
        let io = |action| move |source| Error::Io { path: path.to_owned(), action, source };
        // Before opening: to open a pipe may wait forever.
        let kind = std::fs::metadata(path).map_err(io("open"))?;
        if !kind.is_file() {
            let what = if kind.is_dir() { "a directory, where a file is needed" } else { "not a regular file" };
            return Err(Error::Malformed { path: path.to_owned(), reason: format!("this is {what}") });
        }
        let mut file = File::open(path).map_err(io("open"))?;
        let n_bytes = file.metadata().map_err(io("open"))?.len();
        let n_bytes = usize::try_from(n_bytes).map_err(|_| Error::Unsupported {
            path: path.to_owned(),
            reason: format!("{n_bytes} bytes are more than this machine can address; it needs a 64-bit system"),
        })?;
        if n_bytes == 0 {
            return Err(Error::Malformed { path: path.to_owned(), reason: "the file is empty; fetch it again".into() });
        }
        if mmap {
            // SAFETY: the map is read-only, and its only users see it as `&[u8]`, never as a type with invalid values; what
            // the reader checks (lengths, UTF-8) it checks on its own copies, and tensors are bounded by the map's length,
            // which does not change. So another program that writes to the file while it is mapped can change weights, as it
            // could have before; one that cuts the file short makes the system stop this program at the next touch, which no
            // mapped reader can prevent and which `OpenOptions { mmap: false }` is there for.
            let map = unsafe { MmapOptions::new().len(n_bytes).map(&file) }.map_err(io("map"))?;
            return Ok(Mapping::Mapped(map));
        }
        let (mut buffer, start) = padded(n_bytes).map_err(io("read"))?;
        file.read_exact(&mut buffer[start..]).map_err(|source| match source.kind() {
            ErrorKind::UnexpectedEof => Error::Malformed {
                path: path.to_owned(),
                reason: format!("the file had {n_bytes} bytes and became shorter while it was read; wait until it is complete"),
            },
            _ => io("read")(source),
        })?;
        Ok(Mapping::Held { buffer, start })
    }

    /// A copy of bytes that are in memory already.
    pub(in crate::model) fn copy(bytes: &[u8]) -> std::io::Result<Self> {
        let (mut buffer, start) = padded(bytes.len())?;
        buffer[start..].copy_from_slice(bytes);
        Ok(Mapping::Held { buffer, start })
    }

    /// Bytes of zero, to be written by `fill`.
    pub(in crate::model) fn make(n_bytes: usize, fill: impl FnOnce(&mut [u8])) -> std::io::Result<Self> {
        let (mut buffer, start) = padded(n_bytes)?;
        fill(&mut buffer[start..]);
        Ok(Mapping::Held { buffer, start })
    }

    /// All bytes.
    pub(in crate::model) fn bytes(&self) -> &[u8] {
        match self {
            Mapping::Mapped(map) => map,
            Mapping::Held { buffer, start } => &buffer[*start..],
        }
    }

    /// Lets the system take back the memory of a range that will not be needed soon. The bytes stay readable.
    pub(in crate::model) fn release(&self, offset: usize, n_bytes: usize) {
        #[cfg(unix)]
        if let Mapping::Mapped(map) = self
            && n_bytes > 0
            && offset.checked_add(n_bytes).is_some_and(|end| end <= map.len())
        {
            // SAFETY: `DontNeed` changes what is read only for private or anonymous memory; this is a shared map of a file,
            // whose dropped pages are read from the file again. The range is inside the map. Refusal is harmless.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, n_bytes) };
        }
        #[cfg(not(unix))]
        let _ = (offset, n_bytes);
    }
}

/// A buffer of zeros whose last `n_bytes` start at a multiple of [`ALIGNMENT`], and where they start.
fn padded(n_bytes: usize) -> std::io::Result<(Vec<u8>, usize)> {
    let mut buffer: Vec<u8> = Vec::new();
    let room = n_bytes.checked_add(ALIGNMENT).ok_or(ErrorKind::OutOfMemory)?;
    buffer.try_reserve_exact(room).map_err(|_| ErrorKind::OutOfMemory)?;
    let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    buffer.resize(start + n_bytes, 0);
    Ok((buffer, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_start_aligned() {
        for n in [1, 63, 64, 65, 4096] {
            let held = Mapping::copy(&vec![7; n]).unwrap();
            assert_eq!(held.bytes(), vec![7; n]);
            assert_eq!(held.bytes().as_ptr().align_offset(ALIGNMENT), 0);
        }
    }
}
