//! One block of keys for a tile of rows: scores, their exponentials, the sum of values, and the fold into what came before.

#![allow(clippy::needless_range_loop, reason = "rows index several arrays at once")]

use std::arch::aarch64::*;

use half::f16;
use rml_kernels_ref::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, SpanState};

use super::Seen;
use super::element::Element;
use crate::neon::exp::exp;
use crate::neon::lanes::{self, QUADS, WIDTH, all};

/// Most rows of a tile.
pub(super) const MAX_ROWS: usize = 4;

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
    /// The span has these rows and the cache the keys they see, in whole panels; so has the state.
    #[target_feature(enable = "neon")]
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
#[target_feature(enable = "neon")]
fn exponentiate(p: &mut Scores, seen: Seen) -> (f32, f32) {
    let (registers, _) = p.as_chunks_mut::<WIDTH>();
    let touched = seen.from / WIDTH..seen.to.div_ceil(WIDTH);
    let mut max = all(f32::NEG_INFINITY);
    for i in touched.clone() {
        let s = vbslq_f32(is_seen(i, seen), lanes::load(&registers[i]), all(f32::NEG_INFINITY));
        max = lanes::larger(s, max);
    }
    let max = match lanes::largest(max) {
        0.0 => rml_kernels_ref::lanes::max(&registers.as_flattened()[seen.from..seen.to]), // zeros differ in sign: the first counts
        max => max,
    };
    let mut lanes_sum = [all(0.0); QUADS];
    for i in touched {
        let e = exp(vsubq_f32(lanes::load(&registers[i]), all(max)));
        let e = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(e), is_seen(i, seen)));
        lanes_sum[i % QUADS] = vaddq_f32(lanes_sum[i % QUADS], e);
        lanes::store(e, &mut registers[i]);
    }
    (max, lanes::reduce(lanes_sum))
}

/// All bits of the lanes of register `i` whose keys are seen.
#[inline]
#[target_feature(enable = "neon")]
fn is_seen(i: usize, seen: Seen) -> uint32x4_t {
    const FIRST: [u32; WIDTH] = [0, 1, 2, 3];
    // SAFETY: 4 numbers.
    let first = unsafe { vld1q_u32(FIRST.as_ptr()) };
    // Positions in a block are below 64 and fit.
    let t = vaddq_u32(vdupq_n_u32((i * WIDTH) as u32), first);
    vandq_u32(vcgeq_u32(t, vdupq_n_u32(seen.from as u32)), vcltq_u32(t, vdupq_n_u32(seen.to as u32)))
}

/// Folds maxima and sums of `N` rows, and says what is to happen to their outputs.
#[inline]
#[target_feature(enable = "neon")]
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
