//! One block of keys for a tile of rows: scores, their exponentials, the sum of values, and the fold into what came before.

#![allow(clippy::needless_range_loop, reason = "rows index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use half::f16;
use rml_kernels_ref::kv::{KEY_BLOCK, KEY_PANEL, SpanState};

use super::element::Element;
use super::{MAX_HEAD, Seen};
use crate::avx512::exp::exp;

/// Numbers in a register, one for each key of a panel.
pub(super) const WIDTH: usize = 16;

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
pub(super) struct Block<'a, T> {
    /// Keys of the head, in panels.
    pub(super) k: &'a [T],
    /// Values of the head, in rows.
    pub(super) v: &'a [T],
    /// Scales of keys and of values, in panels, where numbers have them.
    pub(super) scales: [&'a [f16]; 2],
    /// Head size.
    pub(super) d: usize,
    /// First position.
    pub(super) start: usize,
    /// What scores are multiplied with.
    pub(super) scale: f32,
    /// What keeps them within limits.
    pub(super) cap: Option<f32>,
}

impl<T: Element> Block<'_, T> {
    /// Folds the block into the state of `N` rows, which see `seen` of the span.
    ///
    /// # Safety
    /// `d` numbers of each query are written, the cache holds the keys seen, in whole panels; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn attend<const N: usize>(&self, queries: &Queries<N>, seen: &[Seen; N], state: &mut SpanState<'_>) {
        // Within the block, empty ranges at 0.
        let mut seen = *seen;
        for s in &mut seen {
            let (from, to) = (s.from.max(self.start), s.to.min(self.start + KEY_BLOCK));
            *s = if from < to { Seen { from: from - self.start, to: to - self.start } } else { Seen::default() };
        }
        let (from, to) = super::hull(&seen);
        if from >= to {
            return;
        }
        let mut p = [[0.0; KEY_BLOCK]; N];
        // SAFETY: the caller's.
        unsafe { self.score(queries, from / KEY_PANEL..to.div_ceil(KEY_PANEL), &mut p) };
        if let Some(cap) = self.cap {
            p.iter_mut().for_each(|p| soft_cap(p, cap));
        }
        let mut max = [f32::NEG_INFINITY; N];
        let mut sum = [0.0; N];
        for r in 0..N {
            (max[r], sum[r]) = exponentiate(&mut p[r], seen[r]);
        }
        let fold = fold(&max, &sum, state.max, state.sum);
        // SAFETY: the caller's.
        unsafe { self.add_values(&p, &seen, &fold, state.out) };
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

/// Turns the scores of the keys seen into exponentials relative to their largest, and those of the others into 0; returns
/// that largest and the sum.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn exponentiate(p: &mut Scores, seen: Seen) -> (f32, f32) {
    // A bit for each key.
    let bits = u64::MAX.checked_shl(seen.from as u32).unwrap_or(0) & !u64::MAX.checked_shl(seen.to as u32).unwrap_or(0);
    let panels = p.as_chunks_mut::<WIDTH>().0;
    let mut max = _mm512_set1_ps(f32::NEG_INFINITY);
    for (i, p) in panels.iter().enumerate() {
        let there = (bits >> (i * WIDTH)) as u16;
        max = _mm512_mask_max_ps(max, there, load(p), max); // the second operand where the first is NaN
    }
    let max = match _mm512_reduce_max_ps(max) {
        0.0 => rml_kernels_ref::lanes::max(&panels.as_flattened()[seen.from..seen.to]), // zeros differ in sign: the first counts
        max => max,
    };
    let mut lanes = _mm512_setzero_ps();
    for (i, p) in panels.iter_mut().enumerate() {
        let there = (bits >> (i * WIDTH)) as u16;
        let e = _mm512_maskz_mov_ps(there, exp(_mm512_sub_ps(load(p), _mm512_set1_ps(max))));
        lanes = _mm512_add_ps(lanes, e);
        store(e, p);
    }
    (max, reduce(lanes))
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
