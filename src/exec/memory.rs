//! Large blocks of memory, in huge pages where the system has them.

use memmap2::MmapMut;

use crate::{Error, Result};

/// A block of zeroed bytes, aligned to a page. Pages that are never written take no memory.
pub type Block = MmapMut;

/// A block of `bytes` bytes for `what`.
///
/// # Errors
/// If the system has no room for it.
pub fn zeroed(bytes: usize, what: &'static str) -> Result<Block> {
    let no_room = |e: std::io::Error| Error::out_of_range(what, format!("{} MiB of memory cannot be had: {e}", bytes.div_ceil(1 << 20)));
    let block = MmapMut::map_anon(bytes.max(1)).map_err(no_room)?;
    // Advice that is not taken changes nothing but speed.
    #[cfg(target_os = "linux")]
    let _ = block.advise(memmap2::Advice::HugePage);
    Ok(block)
}
