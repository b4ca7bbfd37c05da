//! Attention over one span of the cache.
//!
//! Rows are pairs of a token and a query head. Up to four share each load of a key or a value; tiles of rows take a block of
//! keys in turn while it is in the first-level cache. What a row computes does not depend on the rows beside it.

mod append;
mod block;
mod element;
mod merge;
mod scores;
mod values;

use rml_kernels_ref::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, KEY_SPAN, KvHead, SpanState, kv_groups};

pub(super) use append::append;
use element::Element;
pub(super) use merge::merge_spans;

/// Rows that walk the blocks together: their queries and outputs stay in the second-level cache.
const GANG: usize = 48;

/// The keys that a row sees in the span.
#[derive(Clone, Copy, Default)]
struct Seen {
    from: usize,
    to: usize,
}

pub(super) fn attend(span: &AttendSpan<'_>, state: &mut SpanState<'_>) {
    let rows = span.m * span.g;
    if rows == 0 {
        return;
    }
    let n_keys = (span.first + span.m).min((span.span + 1) * KEY_SPAN);
    assert!(span.q.len() >= (span.m - 1) * span.q_stride + span.g * span.d, "attend: queries of {} tokens", span.m);
    assert!(state.out.len() >= rows * span.d && state.max.len() >= rows && state.sum.len() >= rows, "attend: a state of {rows} rows");
    let fits = |k: usize, v: usize| k >= n_keys.next_multiple_of(KEY_PANEL) * span.d && v >= n_keys * span.d;
    // SAFETY: the cache holds whole panels of every key up to the last.
    unsafe {
        match span.kv {
            KvHead::F16 { k, v } => {
                assert!(fits(k.len(), v.len()), "attend: {n_keys} keys");
                attend_neon(span, k, v, state);
            }
            KvHead::F32 { k, v } => {
                assert!(fits(k.len(), v.len()), "attend: {n_keys} keys");
                attend_neon(span, k, v, state);
            }
            KvHead::I8 { k, v, k_scale, v_scale } => {
                let n_scales = n_keys.next_multiple_of(KEY_PANEL) * kv_groups(span.d);
                assert!(fits(k.len(), v.len()) && k_scale.len().min(v_scale.len()) >= n_scales, "attend: {n_keys} keys");
                attend_neon(span, k, v, state);
            }
        }
    }
}

/// # Safety
/// The shapes are those asserted by [`attend`].
#[target_feature(enable = "neon")]
unsafe fn attend_neon<T: Element>(span: &AttendSpan<'_>, k: &[T], v: &[T], state: &mut SpanState<'_>) {
    let rows = span.m * span.g;
    for gang in (0..rows).step_by(GANG) {
        let n = GANG.min(rows - gang);
        let mut seen = [Seen::default(); GANG];
        for (i, seen) in seen[..n].iter_mut().enumerate() {
            let position = span.first + (gang + i) / span.g;
            seen.from = (position + 1).saturating_sub(span.window).max(span.span * KEY_SPAN);
            seen.to = (position + 1).min((span.span + 1) * KEY_SPAN);
        }
        state.out[gang * span.d..][..n * span.d].fill(0.0);
        state.max[gang..][..n].fill(f32::NEG_INFINITY);
        state.sum[gang..][..n].fill(0.0);
        let (from, to) = hull(&seen[..n]);
        let mut block = block::start_of(from);
        while block < to {
            for first in (0..n).step_by(block::MAX_ROWS) {
                let (scales, row) = (T::scales(&span.kv), gang + first);
                let tile = block::Block { k, v, scales, d: span.d, start: block, scale: span.scale };
                // SAFETY: the caller's shapes; these rows are among them, and so are the keys they see.
                unsafe {
                    match n - first {
                        1 => tile.attend::<1>(span, row, &seen[first..], state),
                        2 => tile.attend::<2>(span, row, &seen[first..], state),
                        3 => tile.attend::<3>(span, row, &seen[first..], state),
                        _ => tile.attend::<4>(span, row, &seen[first..], state),
                    }
                }
            }
            block += KEY_BLOCK;
        }
    }
}

/// From the first key that any row sees up to the last.
fn hull(seen: &[Seen]) -> (usize, usize) {
    let some = seen.iter().filter(|s| s.from < s.to);
    some.fold((usize::MAX, 0), |(from, to), s| (from.min(s.from), to.max(s.to)))
}
