//! Many rows: each block of the cache is widened to f32 once, first its keys and then its values, and stays in the first-level
//! cache while all rows take it; what is widened next is fetched meanwhile. Conversions share the pipes of the multiplications:
//! one for each tile would cost a tenth of prefill's attention.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, SpanState};

use super::block::{Aligned, Block, Queries, Scores};
use super::element::Element;
use super::rows::Fold;
use super::{MAX_HEAD, Seen, block_at, blocks, clear, common, hull, is_whole, query_of};

/// Rows that share a widened block: whole tiles of the largest size.
pub(super) const ROWS: usize = 288;
/// Tiles that they make, at most: the last may be two.
const TILES: usize = ROWS / 12 + 1;

/// Attends for `rows` of a span.
///
/// # Safety
/// As for [`attend_rows`](super::attend_rows); there are these rows, at most [`ROWS`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn attend<T: Element>(span: &AttendSpan<'_>, k: &[T], v: &[T], rows: Range<usize>, state: &mut SpanState<'_>) {
    let n_rows = rows.len();
    let mut queries: Queries<'_, ROWS> = [&[]; ROWS];
    let mut in_span = [Seen::default(); ROWS];
    for (r, row) in rows.clone().enumerate() {
        (in_span[r], queries[r]) = (Seen::of_row(span, row), query_of(span, row));
    }
    let (mut seen, mut folds) = ([Seen::default(); ROWS], [Fold::default(); TILES]);
    let mut p = Aligned([const { MaybeUninit::uninit() }; ROWS]);
    let mut numbers = Aligned([MaybeUninit::uninit(); KEY_BLOCK * MAX_HEAD]);
    let numbers = zeros(&mut numbers.0[..KEY_BLOCK * span.d]);
    let in_span = &in_span[..n_rows];
    let mut tiles = Tiles {
        queries: &queries[..n_rows],
        whole: false,
        seen: &mut seen[..n_rows],
        p: &mut p.0[..n_rows],
        folds: &mut folds,
        state: clear(state, rows.start, in_span, span.d),
    };
    let ((from, last), common) = (hull(in_span), common(in_span));
    for start in blocks(from, last) {
        tiles.whole = is_whole(start, common);
        let (mut from, mut to) = (0, KEY_BLOCK);
        if !tiles.whole {
            for (seen, in_span) in tiles.seen.iter_mut().zip(in_span) {
                *seen = in_span.within(start);
            }
            (from, to) = hull(tiles.seen);
        }
        let block = block_at(span, k, v, start);
        let next = if start + KEY_BLOCK < last { block_at(span, k, v, start + KEY_BLOCK).k } else { &[] };
        // SAFETY: the caller's: the cache holds the keys that are seen.
        unsafe {
            tiles.take(Step::Weigh, &block.with_wide_keys(from / KEY_PANEL..to.div_ceil(KEY_PANEL), numbers), block.v);
            tiles.take(Step::AddValues, &block.with_wide_values(from..to, numbers), next);
        }
    }
}

/// What is done with a block.
#[derive(Clone, Copy)]
enum Step {
    /// By its keys: exponentials of scores.
    Weigh,
    /// By its values.
    AddValues,
}

/// The rows, and what they know of the block at hand.
struct Tiles<'a> {
    queries: &'a [&'a [f32]],
    whole: bool,          // whether all rows see all of the block
    seen: &'a mut [Seen], // what they see, if not
    p: &'a mut [MaybeUninit<Scores>],
    folds: &'a mut [Fold; TILES],
    state: SpanState<'a>,
}

impl Tiles<'_> {
    /// Takes a step for all rows, and meanwhile fetches a block's worth of `ahead`, the numbers of the step after.
    ///
    /// # Safety
    /// As for [`Block::weigh`] and [`Block::add_values`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn take<T>(&mut self, step: Step, block: &Block<'_, f32>, ahead: &[T]) {
        let ahead = &ahead[..ahead.len().min(KEY_BLOCK * block.d)];
        let mut ahead = ahead.chunks(ahead.len().div_ceil(self.p.len().div_ceil(12)).max(1));
        let (mut row, mut tile) = (0, 0);
        while row < self.p.len() {
            fetch(ahead.next().unwrap_or_default());
            // SAFETY: the caller's.
            row += unsafe {
                match self.p.len() - row {
                    1 => self.tile::<1>(step, block, row, tile),
                    2 => self.tile::<2>(step, block, row, tile),
                    3 => self.tile::<3>(step, block, row, tile),
                    4 => self.tile::<4>(step, block, row, tile),
                    5 => self.tile::<5>(step, block, row, tile),
                    6 => self.tile::<6>(step, block, row, tile),
                    7 => self.tile::<7>(step, block, row, tile),
                    8..12 | 16 => self.tile::<8>(step, block, row, tile),
                    _ => self.tile::<12>(step, block, row, tile),
                }
            };
            tile += 1;
        }
    }

    /// Takes a step for `N` rows, a tile; returns `N`.
    ///
    /// # Safety
    /// As for [`Tiles::take`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn tile<const N: usize>(&mut self, step: Step, block: &Block<'_, f32>, row: usize, tile: usize) -> usize {
        const HERE: &str = "N rows are left";
        let seen: Option<&[Seen; N]> = if self.whole { None } else { Some(self.seen[row..].first_chunk().expect(HERE)) };
        let seen = seen.filter(|seen| !is_whole(0, common(*seen)));
        let p = self.p[row..].first_chunk_mut().expect(HERE);
        let fold = &mut self.folds[tile];
        let SpanState { out, max, sum } = &mut self.state;
        // SAFETY: the caller's.
        unsafe {
            match step {
                Step::Weigh => {
                    let queries: &Queries<'_, N> = self.queries[row..].first_chunk().expect(HERE);
                    let (max, sum) = (max[row..].first_chunk_mut().expect(HERE), sum[row..].first_chunk_mut().expect(HERE));
                    *fold = block.weigh(queries, seen, p, max, sum);
                }
                Step::AddValues => block.add_values(p, seen, fold, &mut out[row * block.d..][..N * block.d]),
            }
        }
        N
    }
}

/// Numbers to be written over: only those that a block needs are touched.
fn zeros(numbers: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    numbers.fill(MaybeUninit::new(0.0));
    // SAFETY: all were just written.
    unsafe { &mut *(std::ptr::from_mut(numbers) as *mut [f32]) }
}

/// Asks for numbers to be brought into the second-level cache.
fn fetch<T>(numbers: &[T]) {
    const LINE: usize = 64;
    let start = numbers.as_ptr().cast::<i8>();
    for line in (0..size_of_val(numbers)).step_by(LINE) {
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(line)) };
    }
}

impl<T: Element> Block<'_, T> {
    /// The block with the keys of `panels` alone, widened into `numbers`.
    ///
    /// # Safety
    /// The cache holds the panels; the CPU has the features.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn with_wide_keys<'n>(&'n self, panels: Range<usize>, numbers: &'n mut [f32]) -> Block<'n, f32> {
        let k = T::as_f32(self.k).unwrap_or_else(|| {
            // SAFETY: the caller's.
            unsafe { self.widen_keys(panels, numbers) };
            numbers
        });
        Block { k, v: &[], scales: [&[], &[]], d: self.d, scale: self.scale, cap: self.cap }
    }

    /// The block with the values of `keys` alone, widened into `numbers`.
    ///
    /// # Safety
    /// The cache holds the keys; the CPU has the features.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn with_wide_values<'n>(&'n self, keys: Range<usize>, numbers: &'n mut [f32]) -> Block<'n, f32> {
        let v = T::as_f32(self.v).unwrap_or_else(|| {
            // SAFETY: the caller's.
            unsafe { self.widen_values(keys, numbers) };
            numbers
        });
        Block { k: &[], v, scales: [&[], &[]], d: self.d, scale: self.scale, cap: self.cap }
    }
}
