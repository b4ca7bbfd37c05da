//! Large blocks of memory, in huge pages where the system has them and they pay.

use memmap2::MmapMut;

use crate::{Error, Result};

/// A block of zeroed bytes, aligned to a page. Pages that are never written take no memory.
pub type Block = MmapMut;

/// Size of a huge page: with smaller ones, every 4 KiB of a stream start anew for the CPU's prefetching.
pub const HUGE_PAGE: usize = 2 << 20;

/// Which pages a block is made of, where the system leaves the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// For what is filled soon, and streamed.
    Huge,
    /// For what is filled here and there: only what is touched takes memory.
    Small,
}

/// A block of `bytes` bytes for `what`.
///
/// # Errors
/// If the system has no room for it.
pub fn zeroed(bytes: usize, what: &'static str, pages: Pages) -> Result<Block> {
    let no_room = |e: std::io::Error| Error::out_of_range(what, format!("{} MiB of memory cannot be had: {e}", bytes.div_ceil(1 << 20)));
    let block = MmapMut::map_anon(bytes.max(1)).map_err(no_room)?;
    // Advice that is not taken changes nothing but speed.
    #[cfg(target_os = "linux")]
    if pages == Pages::Huge {
        let _ = block.advise(memmap2::Advice::HugePage);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = pages;
    Ok(block)
}

/// Bytes that can be taken without pushing others out, as far as the system says: the machine's, less what a control group
/// keeps from this process.
pub fn free_memory() -> Option<u64> {
    let read = |path| std::fs::read_to_string(path).ok();
    let number = |path| read(path)?.trim().parse::<u64>().ok();
    let machine = read("/proc/meminfo").as_deref().and_then(available);
    let group = number("/sys/fs/cgroup/memory.max").zip(number("/sys/fs/cgroup/memory.current"));
    let group = group.map(|(max, current)| max.saturating_sub(current));
    [machine, group].into_iter().flatten().min()
}

/// The line of Linux's table that says how much is available.
fn available(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_its_line() {
        assert_eq!(available("MemTotal:       24684096 kB\nMemAvailable:   21498108 kB\nBuffers: 1 kB\n"), Some(21_498_108 * 1024));
        for table in ["", "MemTotal: 1 kB", "MemAvailable: x kB", "MemAvailable: 1 MB", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(available(table), None, "{table}");
        }
    }
}
