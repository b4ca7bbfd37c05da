//! How many threads are worth having.
#![cfg_attr(target_os = "macos", allow(unsafe_code, reason = "asks the system for a number by its name"))]

/// How many threads this process should use at once: CPUs, less what its affinity mask and its cgroup's quota take away, and
/// less the slow ones where the system tells them apart: threads that work in step would wait for these.
pub fn usable_threads() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    fast_cores().map_or(usable, |fast| usable.min(fast))
}

/// Performance cores of a Mac.
#[cfg(target_os = "macos")]
fn fast_cores() -> Option<usize> {
    let mut cores: libc::c_int = 0;
    let mut bytes = size_of_val(&cores);
    // SAFETY: the name ends with a zero, the system writes at most `bytes` bytes to `cores`, and nothing is set.
    let status =
        unsafe { libc::sysctlbyname(c"hw.perflevel0.physicalcpu".as_ptr(), (&raw mut cores).cast(), &mut bytes, std::ptr::null_mut(), 0) };
    // Macs with one kind of core do not know the name.
    if status == 0 { usize::try_from(cores).ok().filter(|&cores| cores > 0) } else { None }
}

#[cfg(not(target_os = "macos"))]
fn fast_cores() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_thread_and_no_more_than_cpus() {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=cpus).contains(&usable_threads()));
        assert!(fast_cores().is_none_or(|cores| cores >= usable_threads()));
    }
}
