//! Panels on their way from memory: what is asked for ahead of its use.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

use super::VECTOR;

/// Blocks of a row up to which a stream is helped along: the end of a panel interrupts it, and the CPU's own prefetching takes
/// some time to go on. Longer rows are faster without help, but for units of several blocks, which interrupt it themselves.
pub(crate) const PREFETCHED: usize = 48;
/// How far ahead of its use a weight is asked for from memory.
const AHEAD: usize = 4 * 1024;
/// The same for floats, in bytes of all panels that are read together: what is on its way must leave most of the first-level
/// cache alone.
const FLOATS_AHEAD: usize = 8 * 1024;
/// Lines at the end of a unit of several blocks that hold its scales, at most: they are read first.
const SCALE_LINES: usize = 5;

/// Asks for what comes behind block `b` of a unit: scales of the next one always, quants if the stream is to be helped along.
///
/// `HINT` says which cache they go to. The second level's queue of lines under way is the longer one, which `avx512` needs; the loops
/// of `avx2` do not outrun the first level's, and would wait for the second.
#[inline]
#[target_feature(enable = "sse")]
pub(crate) fn ask_ahead<const HINT: i32>(unit: *const u8, unit_bytes: usize, n_blocks: usize, b: usize, prefetch: bool) {
    if n_blocks > 1 && b < SCALE_LINES {
        // Those of the next unit, which no stream of lines reaches in time.
        _mm_prefetch::<_MM_HINT_T0>(unit.wrapping_add(2 * unit_bytes - (b + 1) * VECTOR).cast());
    }
    if prefetch {
        // A block's share at a time: a whole unit at once would fill the queue of loads.
        let share = unit_bytes / n_blocks;
        for line in (0..share).step_by(VECTOR) {
            _mm_prefetch::<HINT>(unit.wrapping_add(AHEAD + b * share + line).cast());
        }
    }
}

/// Asks for the float that comes some way behind `at`, one of `n_panels` panels that are read together.
#[inline]
#[target_feature(enable = "sse")]
pub(crate) fn ask_for_floats_ahead<const HINT: i32>(at: *const u8, n_panels: usize) {
    _mm_prefetch::<HINT>(at.wrapping_add(FLOATS_AHEAD / n_panels).cast());
}
