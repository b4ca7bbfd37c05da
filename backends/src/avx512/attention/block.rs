//! One block of keys for a tile of rows: scores, their exponentials, the sum of values, and the fold into what came before.

#![allow(clippy::needless_range_loop, reason = "rows index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use half::f16;
use rml_kernels_ref::kv::{KEY_BLOCK, KEY_PANEL};

use super::Seen;
use super::element::Element;
use super::rows::{Fold, first, fold, largest, numbers, sums};
use crate::avx512::exp::{exp, exp_each};

/// Numbers in a register, one for each key of a panel.
pub(super) const WIDTH: usize = 16;

/// Panels of a block.
const PANELS: usize = KEY_BLOCK / KEY_PANEL;

/// What starts at a cache line: a register that lies across two takes twice as long to load and longer to store.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Queries of a tile, `d` numbers or more each.
pub(super) type Queries<'a, const N: usize> = [&'a [f32]; N];

/// Scores of a row, then their exponentials: key `start + i` at `i`.
pub(super) type Scores = [f32; KEY_BLOCK];

/// A block of keys and values.
#[derive(Clone, Copy)]
pub(super) struct Block<'a, T> {
    /// Keys from the block's first on, in panels.
    pub(super) k: &'a [T],
    /// Values from the block's first on, in rows.
    pub(super) v: &'a [T],
    /// Scales of these keys and values, in panels, where numbers have them.
    pub(super) scales: [&'a [f16]; 2],
    /// Head size.
    pub(super) d: usize,
    /// What scores are multiplied with.
    pub(super) scale: f32,
    /// What keeps them within limits.
    pub(super) cap: Option<f32>,
}

impl<T: Element> Block<'_, T> {
    /// Turns the scores of `N` rows, which see `seen` of the block or all of it, into exponentials `p`, and folds these into maxima
    /// and sums.
    ///
    /// Leaves `p` as it is if they see nothing; then [`Fold::is_none`].
    ///
    /// # Safety
    /// The cache holds the keys seen, in whole panels; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn weigh<const N: usize>(
        &self,
        queries: &Queries<'_, N>,
        seen: Option<&[Seen; N]>,
        p: &mut [MaybeUninit<Scores>; N],
        max: &mut [f32; N],
        sum: &mut [f32; N],
    ) -> Fold {
        let (from, to) = seen.map_or((0, KEY_BLOCK), |seen| super::hull(seen));
        if from >= to {
            return Fold::default();
        }
        let panels = from / KEY_PANEL..to.div_ceil(KEY_PANEL);
        if panels != (0..PANELS) {
            p.fill(MaybeUninit::zeroed());
        }
        // SAFETY: the caller's; every panel is written.
        let p = unsafe {
            self.score(queries, panels, p);
            &mut *std::ptr::from_mut(p).cast::<[Scores; N]>()
        };
        if let Some(cap) = self.cap {
            p.iter_mut().for_each(|p| soft_cap(p, cap));
        }
        let (block_max, block_sum) = match seen {
            None => exponentiate::<N, true>(p, &[Seen::default(); N]),
            Some(seen) => exponentiate::<N, false>(p, seen),
        };
        fold(block_max, block_sum, max, sum)
    }
}

/// The first 16 of `x`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn load(x: &[f32; WIDTH]) -> __m512 {
    // SAFETY: 16 readable numbers; the load needs no alignment.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn store(v: __m512, x: &mut [f32; WIDTH]) {
    // SAFETY: 16 writable numbers; the store needs no alignment.
    unsafe { _mm512_storeu_ps(x.as_mut_ptr(), v) }
}

/// Keeps scores within `cap`, as `rml_kernels_ref::gate::soft_cap` says.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn soft_cap(p: &mut Scores, cap: f32) {
    let (slope, twice, cap) = (_mm512_set1_ps(2.0 / cap), _mm512_set1_ps(2.0 * cap), _mm512_set1_ps(cap));
    for p in p.as_chunks_mut::<WIDTH>().0 {
        let e = exp(_mm512_mul_ps(load(p), slope));
        store(_mm512_sub_ps(cap, _mm512_div_ps(twice, _mm512_add_ps(_mm512_set1_ps(1.0), e))), p);
    }
}

/// Turns the scores of the keys seen, which are all if `WHOLE`, into exponentials relative to their row's largest, and those of
/// the others into 0; returns the largest and the sum of every row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn exponentiate<const N: usize, const WHOLE: bool>(p: &mut [Scores; N], seen: &[Seen; N]) -> (__m512, __m512) {
    let of_panel = |r: usize, i| if WHOLE { u16::MAX } else { seen[r].of_panel(i) };
    // All maxima first, so that no exponential waits for the one of its row.
    let mut lanes = [_mm512_setzero_ps(); WIDTH];
    for r in 0..N {
        let mut l = _mm512_set1_ps(f32::NEG_INFINITY);
        for (i, p) in p[r].as_chunks::<WIDTH>().0.iter().enumerate() {
            l = _mm512_mask_max_ps(l, of_panel(r, i), load(p), l); // the second operand where the first is NaN
        }
        lanes[r] = l;
    }
    let mut max = numbers(largest::<N>(lanes));
    if _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(load(&max), _mm512_setzero_ps()) & first(N) != 0 {
        for r in 0..N {
            let keys = if WHOLE { 0..KEY_BLOCK } else { seen[r].from..seen[r].to };
            if max[r] == 0.0 {
                max[r] = rml_kernels_ref::lanes::max(&p[r][keys]); // zeros differ in sign: the first counts
            }
        }
    }
    for r in 0..N {
        let p = p[r].as_chunks_mut::<WIDTH>().0;
        let mut e = [_mm512_setzero_ps(); PANELS];
        for i in 0..PANELS {
            e[i] = _mm512_sub_ps(load(&p[i]), _mm512_set1_ps(max[r]));
        }
        e = exp_each(e);
        let mut l = _mm512_setzero_ps();
        for i in 0..PANELS {
            let e = _mm512_maskz_mov_ps(of_panel(r, i), e[i]);
            l = _mm512_add_ps(l, e);
            store(e, &mut p[i]);
        }
        lanes[r] = l;
    }
    (load(&max), sums::<N>(lanes))
}
