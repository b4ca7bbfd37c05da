//! One block of keys for a tile of rows: scores, their exponentials, the sum of values, and the fold into what came before.

#![allow(clippy::needless_range_loop, reason = "rows index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use half::f16;
use rml_kernels_ref::kv::{KEY_BLOCK, KEY_PANEL};

use super::element::Element;
use super::{MAX_HEAD, Seen};
use crate::avx512::exp::{exp, exp_each};

/// Numbers in a register, one for each key of a panel.
pub(super) const WIDTH: usize = 16;

/// Panels of a block.
const PANELS: usize = KEY_BLOCK / KEY_PANEL;

/// Queries of a tile, at constant distances: the loop over their components needs one address for all of them.
pub(super) type Queries<const N: usize> = [[MaybeUninit<f32>; MAX_HEAD]; N];

/// Scores of a row, then their exponentials: key `start + i` at `i`.
pub(super) type Scores = [f32; KEY_BLOCK];

/// How the block folds into what a row has so far; see `rml_kernels_ref::attention`.
#[derive(Clone, Copy)]
pub(super) enum Fold {
    Keep,
    Replace,
    Mix(f32, f32),
}

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
    /// Turns the scores of `N` rows, which see `seen` of the block, into exponentials `p`, and folds these into maxima and sums.
    ///
    /// # Safety
    /// `d` numbers of each query are written, the cache holds the keys seen, in whole panels; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn weigh<const N: usize>(
        &self,
        queries: &Queries<N>,
        seen: &[Seen; N],
        p: &mut [Scores; N],
        max: &mut [f32],
        sum: &mut [f32],
    ) -> [Fold; N] {
        let (from, to) = super::hull(seen);
        if from >= to {
            return [Fold::Keep; N];
        }
        // SAFETY: the caller's.
        unsafe { self.score(queries, from / KEY_PANEL..to.div_ceil(KEY_PANEL), p) };
        if let Some(cap) = self.cap {
            p.iter_mut().for_each(|p| soft_cap(p, cap));
        }
        let (block_max, block_sum) = exponentiate(p, seen);
        fold(&block_max, &block_sum, max, sum)
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

/// Turns the scores of the keys seen into exponentials relative to their row's largest, and those of the others into 0; returns
/// the largest and the sum of every row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn exponentiate<const N: usize>(p: &mut [Scores; N], seen: &[Seen; N]) -> ([f32; N], [f32; N]) {
    let (mut max, mut sum) = ([0.0; N], [0.0; N]);
    // All maxima first, so that no exponential waits for the one of its row.
    for r in 0..N {
        let panels = p[r].as_chunks::<WIDTH>().0;
        let mut lanes = _mm512_set1_ps(f32::NEG_INFINITY);
        for (i, p) in panels.iter().enumerate() {
            lanes = _mm512_mask_max_ps(lanes, seen[r].of_panel(i), load(p), lanes); // the second operand where the first is NaN
        }
        max[r] = match _mm512_reduce_max_ps(lanes) {
            0.0 => rml_kernels_ref::lanes::max(&p[r][seen[r].from..seen[r].to]), // zeros differ in sign: the first counts
            max => max,
        };
    }
    let mut lanes = [_mm512_setzero_ps(); N];
    for r in 0..N {
        let p = p[r].as_chunks_mut::<WIDTH>().0;
        let mut e = [_mm512_setzero_ps(); PANELS];
        for i in 0..PANELS {
            e[i] = _mm512_sub_ps(load(&p[i]), _mm512_set1_ps(max[r]));
        }
        e = exp_each(e);
        for i in 0..PANELS {
            let e = _mm512_maskz_mov_ps(seen[r].of_panel(i), e[i]);
            lanes[r] = _mm512_add_ps(lanes[r], e);
            store(e, &mut p[i]);
        }
    }
    for r in 0..N {
        sum[r] = reduce(lanes[r]);
    }
    (max, sum)
}

/// The sum of 16 lanes by halving.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn reduce(l16: __m512) -> f32 {
    let l8 = _mm256_add_ps(_mm512_castps512_ps256(l16), _mm512_extractf32x8_ps::<1>(l16));
    let l4 = _mm_add_ps(_mm256_castps256_ps128(l8), _mm256_extractf128_ps::<1>(l8));
    let l2 = _mm_add_ps(l4, _mm_movehl_ps(l4, l4));
    _mm_cvtss_f32(_mm_add_ss(l2, _mm_movehdup_ps(l2)))
}

/// Folds maxima and sums of `N` rows, and says what is to happen to their outputs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn fold<const N: usize>(max2: &[f32; N], sum2: &[f32; N], max: &mut [f32], sum: &mut [f32]) -> [Fold; N] {
    let (mut older, mut newer) = ([0.0; WIDTH], [0.0; WIDTH]);
    for r in 0..N {
        let m = if max2[r] > max[r] { max2[r] } else { max[r] };
        (older[r], newer[r]) = (max[r] - m, max2[r] - m);
    }
    let (mut a, mut b) = ([0.0; WIDTH], [0.0; WIDTH]);
    store(exp(load(&older)), &mut a);
    store(exp(load(&newer)), &mut b);
    let mut fold = [Fold::Keep; N];
    for r in 0..N {
        if sum2[r] == 0.0 {
            continue;
        }
        fold[r] = if sum[r] == 0.0 {
            (max[r], sum[r]) = (max2[r], sum2[r]);
            Fold::Replace
        } else {
            max[r] = if max2[r] > max[r] { max2[r] } else { max[r] };
            sum[r] = sum[r].mul_add(a[r], sum2[r] * b[r]);
            Fold::Mix(a[r], b[r])
        };
    }
    fold
}
