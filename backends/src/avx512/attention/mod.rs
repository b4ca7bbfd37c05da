//! Attention over one span of the cache.
//!
//! Rows are pairs of a token and a query head. Up to twelve share each load of a key or a value, and many share a block that
//! is widened to f32 once ([`wide`]). Most blocks are seen whole by all rows: these take no masks. What a row computes does
//! not depend on the rows beside it.

#![allow(clippy::needless_range_loop, reason = "rows index several arrays at once")]

mod block;
mod columns;
mod element;
mod rows;
mod scores;
mod values;
mod wide;

use std::mem::MaybeUninit;

use rml_kernels_ref::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, KEY_SPAN, KvHead, SpanState, kv_groups};

use block::{Aligned, Block, Queries};
use element::Element;

/// Largest head: a widened block has room for as much.
pub(super) const MAX_HEAD: usize = 256;

/// The keys that a row sees, of the span by position or of a block from 0 on.
#[derive(Clone, Copy, Default)]
struct Seen {
    from: usize,
    to: usize,
}

impl Seen {
    /// What a row sees of the span.
    fn of_row(span: &AttendSpan<'_>, row: usize) -> Self {
        let end = span.first + row / span.g + 1;
        Seen { from: end.saturating_sub(span.window).max(span.span * KEY_SPAN), to: end.min((span.span + 1) * KEY_SPAN) }
    }

    /// What it sees of the block from `start` on; nothing is an empty range at 0.
    fn within(self, start: usize) -> Self {
        let (from, to) = (self.from.max(start), self.to.min(start + KEY_BLOCK));
        if from < to { Seen { from: from - start, to: to - start } } else { Seen::default() }
    }

    /// The lanes of panel `i` of a block that are seen.
    #[inline]
    fn of_panel(self, i: usize) -> u16 {
        let from = |key: usize| u64::MAX.checked_shl(key as u32).unwrap_or(0);
        ((from(self.from) & !from(self.to)) >> (i * KEY_PANEL)) as u16
    }
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
    // SAFETY: the caller's shapes; these rows are among them.
    unsafe {
        match span.m * span.g {
            1 => few::<T, 1>(span, k, v, state),
            2 => few::<T, 2>(span, k, v, state),
            3 => few::<T, 3>(span, k, v, state),
            4 => few::<T, 4>(span, k, v, state),
            5 => few::<T, 5>(span, k, v, state),
            6 => few::<T, 6>(span, k, v, state),
            rows => {
                for from in (0..rows).step_by(wide::ROWS) {
                    wide::attend(span, k, v, from..rows.min(from + wide::ROWS), state);
                }
            }
        }
    }
}

/// Attends for the `N` rows of a span.
///
/// # Safety
/// As for [`attend_rows`]; there are these rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn few<T: Element, const N: usize>(span: &AttendSpan<'_>, k: &[T], v: &[T], state: &mut SpanState<'_>) {
    let d = span.d;
    let mut queries: Queries<'_, N> = [&[]; N];
    let mut seen = [Seen::default(); N];
    for r in 0..N {
        (seen[r], queries[r]) = (Seen::of_row(span, r), query_of(span, r));
    }
    let state = clear(state, 0, &seen, d);
    let (max, sum) = (state.max.first_chunk_mut().expect("N rows"), state.sum.first_chunk_mut().expect("N rows"));
    let ((from, to), common) = (hull(&seen), common(&seen));
    for start in blocks(from, to) {
        let block = block_at(span, k, v, start);
        let mut within = [Seen::default(); N];
        let seen = if is_whole(start, common) {
            None
        } else {
            for r in 0..N {
                within[r] = seen[r].within(start);
            }
            Some(&within)
        };
        let mut p = Aligned([const { MaybeUninit::uninit() }; N]);
        // SAFETY: the caller's: the cache holds the keys that are seen.
        unsafe {
            let fold = block.weigh(&queries, seen, &mut p.0, max, sum);
            block.add_values(&p.0, seen, &fold, state.out);
        }
    }
}

/// Where the blocks of the keys `from .. to` start.
fn blocks(from: usize, to: usize) -> impl Iterator<Item = usize> {
    (from.min(to) / KEY_BLOCK * KEY_BLOCK..to).step_by(KEY_BLOCK)
}

/// The block from position `start` on.
fn block_at<'a, T: Element>(span: &AttendSpan<'a>, k: &'a [T], v: &'a [T], start: usize) -> Block<'a, T> {
    let groups = if T::SCALED { kv_groups(span.d) } else { 0 };
    let [of_k, of_v] = T::scales(&span.kv);
    let scales = [&of_k[start * groups..], &of_v[start * groups..]];
    Block { k: &k[start * span.d..], v: &v[start * span.d..], scales, d: span.d, scale: span.scale, cap: span.cap }
}

/// The query of a row.
fn query_of<'a>(span: &AttendSpan<'a>, row: usize) -> &'a [f32] {
    let (i, h) = (row / span.g, row % span.g);
    &span.q[i * span.q_stride + h * span.d..][..span.d]
}

/// The state of the rows from `first` on, without any keys so far. The first block of keys replaces what a row has; where
/// there will be none, it has zeros.
fn clear<'s>(state: &'s mut SpanState<'_>, first: usize, seen: &[Seen], d: usize) -> SpanState<'s> {
    let rows = first..first + seen.len();
    let state = SpanState { out: &mut state.out[first * d..rows.end * d], max: &mut state.max[rows.clone()], sum: &mut state.sum[rows] };
    state.max.fill(f32::NEG_INFINITY);
    state.sum.fill(0.0);
    for r in (0..seen.len()).filter(|&r| seen[r].from >= seen[r].to) {
        state.out[r * d..][..d].fill(0.0);
    }
    state
}

/// From the first key that any row sees up to the last.
fn hull(seen: &[Seen]) -> (usize, usize) {
    let some = seen.iter().filter(|s| s.from < s.to);
    some.fold((usize::MAX, 0), |(from, to), s| (from.min(s.from), to.max(s.to)))
}

/// The keys that all rows see; an empty range if there are none.
fn common(seen: &[Seen]) -> (usize, usize) {
    let (from, to) = seen.iter().fold((0, usize::MAX), |(from, to), s| (from.max(s.from), to.min(s.to)));
    (from, to.max(from))
}

/// Whether keys `from .. to` are all of the block from `start` on, and perhaps more.
fn is_whole(start: usize, (from, to): (usize, usize)) -> bool {
    from <= start && start + KEY_BLOCK <= to
}
