//! The bytes of a file: mapped, or read into memory.
#![allow(unsafe_code, reason = "maps a file; the safety argument stands at the map")]

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::exec::{Block, zeroed};
use crate::{Error, Result};

/// The bytes of a model file.
#[derive(Debug)]
pub(super) enum Mapping {
    Mapped(Mmap),
    Read(Block),
}

impl Mapping {
    /// Maps the file, or reads it whole if `no_mmap`.
    pub(super) fn open(path: &Path, no_mmap: bool) -> Result<Self> {
        let io = |action| move |source| Error::Io { path: path.to_owned(), action, source };
        let mut file = File::open(path).map_err(io("open"))?;
        let len = file.metadata().map_err(io("read"))?.len();
        if no_mmap {
            let bytes = usize::try_from(len).map_err(|_| Error::out_of_range("file size", format!("{len} bytes cannot be addressed")))?;
            let mut block = zeroed(bytes, "file size")?;
            std::io::Read::read_exact(&mut file, &mut block[..bytes]).map_err(io("read"))?;
            return Ok(Mapping::Read(block));
        }
        // SAFETY: the map is read as plain bytes, any of which are valid. If another program changes the file, weights change
        // under the reader, which computes other numbers but breaks no invariant; if it cuts the file short, the system
        // ends the process: `no_mmap` is there for files that are not left alone.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map"))?;
        Ok(Mapping::Mapped(map))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Mapping::Mapped(map) => map,
            Mapping::Read(block) => block,
        }
    }

    /// Tells the system that these bytes will not be needed soon.
    pub(super) fn release(&self, offset: usize, len: usize) {
        #[cfg(unix)]
        if let Mapping::Mapped(map) = self {
            // SAFETY: the map is of a file and read-only, so pages that are given back are read from the file again.
            let advised = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, len) };
            // Advice that is not taken costs memory, no more.
            let _ = advised;
        }
        #[cfg(not(unix))]
        let _ = (offset, len);
    }
}
