//! Attention over one span of the cache.
//!
//! Rows are pairs of a token and a query head. Up to twelve share each load of a key or a value and walk the blocks of the
//! span together. What a row computes does not depend on the rows beside it.

#![allow(clippy::needless_range_loop, reason = "rows index several arrays at once")]

mod block;
mod element;
mod scores;
mod values;

use std::mem::MaybeUninit;

use rml_kernels_ref::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, KEY_SPAN, KvHead, SpanState, kv_groups};

use block::{Block, Queries};
use element::Element;

/// Largest head: queries of a tile are copied side by side, this far apart.
pub(super) const MAX_HEAD: usize = 256;

/// The keys that a row sees in the span.
#[derive(Clone, Copy, Default)]
struct Seen {
    from: usize,
    to: usize,
}

pub(super) fn attend(span: &AttendSpan<'_>, state: &mut SpanState<'_>) {
    if span.d > MAX_HEAD {
        return crate::avx2::attention::attend(span, state);
    }
    let rows = span.m * span.g;
    if rows == 0 {
        return;
    }
    let n_keys = (span.first + span.m).min((span.span + 1) * KEY_SPAN);
    assert!(span.q.len() >= (span.m - 1) * span.q_stride + span.g * span.d, "attend: queries of {} tokens", span.m);
    assert!(state.out.len() >= rows * span.d && state.max.len() >= rows && state.sum.len() >= rows, "attend: a state of {rows} rows");
    let fits = |k: usize, v: usize| k >= n_keys.next_multiple_of(KEY_PANEL) * span.d && v >= n_keys * span.d;
    // SAFETY: installed; the cache holds whole panels of every key up to the last.
    unsafe {
        match span.kv {
            KvHead::F16 { k, v } => {
                assert!(fits(k.len(), v.len()), "attend: {n_keys} keys");
                attend_rows(span, k, v, state);
            }
            KvHead::F32 { k, v } => {
                assert!(fits(k.len(), v.len()), "attend: {n_keys} keys");
                attend_rows(span, k, v, state);
            }
            KvHead::I8 { k, v, k_scale, v_scale } => {
                let n_scales = n_keys.next_multiple_of(KEY_PANEL) * kv_groups(span.d);
                assert!(fits(k.len(), v.len()) && k_scale.len().min(v_scale.len()) >= n_scales, "attend: {n_keys} keys");
                attend_rows(span, k, v, state);
            }
        }
    }
}

/// # Safety
/// The shapes are those asserted by [`attend`]; the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn attend_rows<T: Element>(span: &AttendSpan<'_>, k: &[T], v: &[T], state: &mut SpanState<'_>) {
    let rows = span.m * span.g;
    let mut row = 0;
    while row < rows {
        // SAFETY: the caller's shapes; these rows are among them.
        row += unsafe {
            match rows - row {
                1 => tile::<T, 1>(span, k, v, row, state),
                2 => tile::<T, 2>(span, k, v, row, state),
                3 => tile::<T, 3>(span, k, v, row, state),
                4 => tile::<T, 4>(span, k, v, row, state),
                5 => tile::<T, 5>(span, k, v, row, state),
                6 => tile::<T, 6>(span, k, v, row, state),
                7 => tile::<T, 7>(span, k, v, row, state),
                8..12 => tile::<T, 8>(span, k, v, row, state),
                _ => tile::<T, 12>(span, k, v, row, state),
            }
        };
    }
}

/// Attends for rows `row .. row + N`; returns `N`.
///
/// # Safety
/// As for [`attend_rows`]; there are these rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile<T: Element, const N: usize>(span: &AttendSpan<'_>, k: &[T], v: &[T], row: usize, state: &mut SpanState<'_>) -> usize {
    let d = span.d;
    let mut queries: Queries<N> = [[MaybeUninit::uninit(); MAX_HEAD]; N];
    let mut seen = [Seen::default(); N];
    for r in 0..N {
        let (i, h) = ((row + r) / span.g, (row + r) % span.g);
        for (copy, &q) in queries[r].iter_mut().zip(&span.q[i * span.q_stride + h * d..][..d]) {
            copy.write(q);
        }
        let position = span.first + i;
        seen[r].from = (position + 1).saturating_sub(span.window).max(span.span * KEY_SPAN);
        seen[r].to = (position + 1).min((span.span + 1) * KEY_SPAN);
    }
    let mut state = SpanState { out: &mut state.out[row * d..][..N * d], max: &mut state.max[row..][..N], sum: &mut state.sum[row..][..N] };
    state.out.fill(0.0);
    state.max.fill(f32::NEG_INFINITY);
    state.sum.fill(0.0);
    let (from, to) = hull(&seen);
    let mut start = from / KEY_BLOCK * KEY_BLOCK;
    while start < to {
        // SAFETY: the caller's: the cache holds the keys that are seen; `d` numbers of each query are written.
        unsafe {
            Block { k, v, scales: T::scales(&span.kv), d, start, scale: span.scale, cap: span.cap }.attend(&queries, &seen, &mut state)
        };
        start += KEY_BLOCK;
    }
    N
}

/// From the first key that any row sees up to the last.
fn hull(seen: &[Seen]) -> (usize, usize) {
    let some = seen.iter().filter(|s| s.from < s.to);
    some.fold((usize::MAX, 0), |(from, to), s| (from.min(s.from), to.max(s.to)))
}
