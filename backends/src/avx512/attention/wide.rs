//! Many rows: each block of the cache is widened to f32 once, first its keys and then its values, and stays in the first-level
//! cache while all rows take it. Conversions share the pipes of the multiplications: one for each tile would cost a tenth of
//! prefill's attention.

use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, SpanState};

use super::block::{Block, Fold, Queries, Scores};
use super::element::Element;
use super::{MAX_HEAD, Seen, block_at, blocks, clear, copy_query, hull};

/// Rows that share a widened block: whole tiles of the largest size.
pub(super) const ROWS: usize = 144;

/// Keys or values of a block.
type Numbers = [f32; KEY_BLOCK * MAX_HEAD];

/// Attends for `rows` of a span.
///
/// # Safety
/// As for [`attend_rows`](super::attend_rows); there are these rows, at most [`ROWS`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn attend<T: Element>(span: &AttendSpan<'_>, k: &[T], v: &[T], rows: Range<usize>, state: &mut SpanState<'_>) {
    let n_rows = rows.len();
    let mut queries: Queries<ROWS> = [[MaybeUninit::uninit(); MAX_HEAD]; ROWS];
    let mut in_span = [Seen::default(); ROWS];
    for (r, row) in rows.clone().enumerate() {
        in_span[r] = Seen::of_row(span, row);
        copy_query(span, row, &mut queries[r]);
    }
    let (mut seen, mut p, mut fold) = ([Seen::default(); ROWS], [[0.0; KEY_BLOCK]; ROWS], [Fold::Keep; ROWS]);
    let mut numbers: Numbers = [0.0; KEY_BLOCK * MAX_HEAD];
    let mut tiles = Tiles {
        queries: &queries[..n_rows],
        seen: &mut seen[..n_rows],
        p: &mut p[..n_rows],
        fold: &mut fold[..n_rows],
        state: clear(state, rows, span.d),
    };
    let (from, to) = hull(&in_span[..n_rows]);
    for start in blocks(from, to) {
        for (seen, in_span) in tiles.seen.iter_mut().zip(&in_span) {
            *seen = in_span.within(start);
        }
        let block = block_at(span, k, v, start);
        let (from, to) = hull(tiles.seen);
        // SAFETY: the caller's: the cache holds the keys that are seen; `d` numbers of each query are written.
        unsafe {
            tiles.take(Step::Weigh, &block.with_wide_keys(from / KEY_PANEL..to.div_ceil(KEY_PANEL), &mut numbers));
            tiles.take(Step::AddValues, &block.with_wide_values(from..to, &mut numbers));
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
    queries: &'a [[MaybeUninit<f32>; MAX_HEAD]],
    seen: &'a mut [Seen],
    p: &'a mut [Scores],
    fold: &'a mut [Fold],
    state: SpanState<'a>,
}

impl Tiles<'_> {
    /// Takes a step for all rows.
    ///
    /// # Safety
    /// As for [`Block::weigh`] and [`Block::add_values`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn take(&mut self, step: Step, block: &Block<'_, f32>) {
        let mut row = 0;
        while row < self.seen.len() {
            // SAFETY: the caller's.
            row += unsafe {
                match self.seen.len() - row {
                    1 => self.tile::<1>(step, block, row),
                    2 => self.tile::<2>(step, block, row),
                    3 => self.tile::<3>(step, block, row),
                    4 => self.tile::<4>(step, block, row),
                    5 => self.tile::<5>(step, block, row),
                    6 => self.tile::<6>(step, block, row),
                    7 => self.tile::<7>(step, block, row),
                    8..12 | 16 => self.tile::<8>(step, block, row),
                    _ => self.tile::<12>(step, block, row),
                }
            };
        }
    }

    /// Takes a step for `N` rows; returns `N`.
    ///
    /// # Safety
    /// As for [`Tiles::take`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn tile<const N: usize>(&mut self, step: Step, block: &Block<'_, f32>, row: usize) -> usize {
        const HERE: &str = "N rows are left";
        let seen = self.seen[row..].first_chunk().expect(HERE);
        let p = self.p[row..].first_chunk_mut().expect(HERE);
        let fold = self.fold[row..].first_chunk_mut().expect(HERE);
        // SAFETY: the caller's.
        unsafe {
            match step {
                Step::Weigh => {
                    let queries: &Queries<N> = self.queries[row..].first_chunk().expect(HERE);
                    *fold = block.weigh(queries, seen, p, &mut self.state.max[row..][..N], &mut self.state.sum[row..][..N]);
                }
                Step::AddValues => block.add_values(p, seen, fold, &mut self.state.out[row * block.d..][..N * block.d]),
            }
        }
        N
    }
}

impl<T: Element> Block<'_, T> {
    /// The block with the keys of `panels` alone, widened into `numbers`.
    ///
    /// # Safety
    /// The cache holds the panels; the CPU has the features.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn with_wide_keys<'n>(&'n self, panels: Range<usize>, numbers: &'n mut Numbers) -> Block<'n, f32> {
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
    unsafe fn with_wide_values<'n>(&'n self, keys: Range<usize>, numbers: &'n mut Numbers) -> Block<'n, f32> {
        let v = T::as_f32(self.v).unwrap_or_else(|| {
            // SAFETY: the caller's.
            unsafe { self.widen_values(keys, numbers) };
            numbers
        });
        Block { k: &[], v, scales: [&[], &[]], d: self.d, scale: self.scale, cap: self.cap }
    }
}
