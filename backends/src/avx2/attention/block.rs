//! One block of keys for a tile of rows: scores, their exponentials, the sum of values, and the fold into what came before.

#![allow(clippy::needless_range_loop, reason = "rows index several arrays at once")]

use std::arch::x86_64::*;

use half::f16;
use rml_kernels_ref::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, SpanState};

use super::Seen;
use super::element::Element;
use crate::avx2::exp::exp;
use crate::avx2::gate::soft_cap_avx2;
use crate::avx2::lanes::{self, WIDTH};

/// Most rows of a tile.
pub(super) const MAX_ROWS: usize = 6;

/// The start of the block that position `t` is in.
pub(super) fn start_of(t: usize) -> usize {
    t / KEY_BLOCK * KEY_BLOCK
}

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
}

impl<T: Element> Block<'_, T> {
    /// Folds the block into the state of rows `row ..`, which see `seen` of the span.
    ///
    /// # Safety
    /// The span has these rows and the cache the keys they see, in whole panels; so has the state; the CPU has the features.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn attend<const N: usize>(&self, span: &AttendSpan<'_>, row: usize, seen: &[Seen], state: &mut SpanState<'_>) {
        // Within the block, empty ranges at 0.
        let mut seen: [Seen; N] = *seen.first_chunk().expect("a range for each row");
        for s in &mut seen {
            let (from, to) = (s.from.max(self.start), s.to.min(self.start + KEY_BLOCK));
            *s = if from < to { Seen { from: from - self.start, to: to - self.start } } else { Seen::default() };
        }
        let (from, to) = super::hull(&seen);
        if from >= to {
            return;
        }
        let mut q = [std::ptr::null(); N];
        for r in 0..N {
            let (i, h) = ((row + r) / span.g, (row + r) % span.g);
            q[r] = span.q[i * span.q_stride + h * self.d..][..self.d].as_ptr();
        }
        let mut p = [[0.0; KEY_BLOCK]; N];
        // SAFETY: the caller's.
        unsafe { self.score(&q, from / KEY_PANEL..to.div_ceil(KEY_PANEL), &mut p) };
        if let Some(cap) = span.cap {
            p.iter_mut().for_each(|p| soft_cap_avx2(&mut p[from..to], cap));
        }
        let mut max = [f32::NEG_INFINITY; N];
        let mut sum = [0.0; N];
        for r in 0..N {
            (max[r], sum[r]) = exponentiate(&mut p[r], seen[r]);
        }
        let fold = fold(&max, &sum, &mut state.max[row..][..N], &mut state.sum[row..][..N]);
        let out = &mut state.out[row * self.d..][..N * self.d];
        // SAFETY: the caller's.
        unsafe { self.add_values(&p, &seen, &fold, out) };
    }
}

/// Turns the scores of the keys seen into exponentials relative to their largest, and those of the others into 0; returns
/// that largest and the sum.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn exponentiate(p: &mut Scores, seen: Seen) -> (f32, f32) {
    let (registers, _) = p.as_chunks_mut::<WIDTH>();
    let touched = seen.from / WIDTH..seen.to.div_ceil(WIDTH);
    let mut max = _mm256_set1_ps(f32::NEG_INFINITY);
    for i in touched.clone() {
        let s = _mm256_blendv_ps(_mm256_set1_ps(f32::NEG_INFINITY), lanes::load(&registers[i]), is_seen(i, seen));
        max = _mm256_max_ps(s, max); // the second operand where the first is NaN
    }
    let max = match lanes::largest(max) {
        0.0 => rml_kernels_ref::lanes::max(&registers.as_flattened()[seen.from..seen.to]), // zeros differ in sign: the first counts
        max => max,
    };
    let mut lanes_sum = [_mm256_setzero_ps(); 2];
    for i in touched {
        let e = exp(_mm256_sub_ps(lanes::load(&registers[i]), _mm256_set1_ps(max)));
        let e = _mm256_and_ps(e, is_seen(i, seen));
        lanes_sum[i % 2] = _mm256_add_ps(lanes_sum[i % 2], e);
        lanes::store(e, &mut registers[i]);
    }
    (max, lanes::reduce(lanes_sum))
}

/// All bits of the lanes of register `i` whose keys are seen.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn is_seen(i: usize, seen: Seen) -> __m256 {
    // Positions in a block are below 64 and fit.
    let t = _mm256_add_epi32(_mm256_set1_epi32((i * WIDTH) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    let before = _mm256_cmpgt_epi32(_mm256_set1_epi32(seen.from as i32), t);
    let not_behind = _mm256_cmpgt_epi32(_mm256_set1_epi32(seen.to as i32), t);
    _mm256_castsi256_ps(_mm256_andnot_si256(before, not_behind))
}

/// Folds maxima and sums of `N` rows, and says what is to happen to their outputs.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fold<const N: usize>(max2: &[f32; N], sum2: &[f32; N], max: &mut [f32], sum: &mut [f32]) -> [Fold; N] {
    let (mut older, mut newer) = ([0.0; WIDTH], [0.0; WIDTH]);
    for r in 0..N {
        let m = if max2[r] > max[r] { max2[r] } else { max[r] };
        (older[r], newer[r]) = (max[r] - m, max2[r] - m);
    }
    let (mut a, mut b) = ([0.0; WIDTH], [0.0; WIDTH]);
    lanes::store(exp(lanes::load(&older)), &mut a);
    lanes::store(exp(lanes::load(&newer)), &mut b);
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
