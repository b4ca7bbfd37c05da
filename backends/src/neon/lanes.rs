//! Sixteen virtual lanes in four registers, and the ends of rows.
//!
//! The order of every sum is that of `rml_kernels_ref::lanes`.

use std::arch::aarch64::*;

/// Numbers in a register.
pub(super) const WIDTH: usize = 4;
/// Registers that hold the 16 lanes.
pub(super) const QUADS: usize = 4;
/// 16 lanes.
pub(super) type Lanes = [float32x4_t; QUADS];

/// `x` in every lane.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn all(x: f32) -> float32x4_t {
    vdupq_n_f32(x)
}

/// The first 4 of `x`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load(x: &[f32]) -> float32x4_t {
    let x: &[f32; WIDTH] = x.first_chunk().expect("4 numbers");
    // SAFETY: 4 readable numbers; the load needs no alignment.
    unsafe { vld1q_f32(x.as_ptr()) }
}

/// Stores to the first 4 of `x`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store(v: float32x4_t, x: &mut [f32]) {
    let x: &mut [f32; WIDTH] = x.first_chunk_mut().expect("4 numbers");
    // SAFETY: 4 writable numbers; the store needs no alignment.
    unsafe { vst1q_f32(x.as_mut_ptr(), v) }
}

/// At most 4 numbers, zeros behind them.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load_tail(x: &[f32]) -> float32x4_t {
    let mut padded = [0.0; WIDTH];
    padded[..x.len()].copy_from_slice(x);
    load(&padded)
}

/// As many numbers as `x` has, at most 4.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store_tail(v: float32x4_t, x: &mut [f32]) {
    let mut padded = [0.0; WIDTH];
    store(v, &mut padded);
    let n = x.len();
    x.copy_from_slice(&padded[..n]);
}

/// The sum of 16 lanes by halving.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn reduce(l: Lanes) -> f32 {
    let l4 = vaddq_f32(vaddq_f32(l[0], l[2]), vaddq_f32(l[1], l[3]));
    let l2 = vadd_f32(vget_low_f32(l4), vget_high_f32(l4));
    vget_lane_f32::<0>(l2) + vget_lane_f32::<1>(l2)
}

/// The larger of each lane, `m` where `x` is NaN or equal: `fmax` would yield NaN, and `fmaxnm` too for one that signals.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn larger(x: float32x4_t, m: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(x, m), x, m)
}

/// The largest of 4 lanes, none of them NaN.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn largest(l: float32x4_t) -> f32 {
    vmaxvq_f32(l)
}

/// `x = f(x)`, element by element.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn map(x: &mut [f32], f: impl Fn(float32x4_t) -> float32x4_t) {
    let (whole, tail) = x.as_chunks_mut::<WIDTH>();
    for x in whole {
        store(f(load(x)), x);
    }
    if !tail.is_empty() {
        store_tail(f(load_tail(tail)), tail);
    }
}

/// `x = f(x, y)`, element by element; `y` is as long as `x`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn zip(x: &mut [f32], y: &[f32], f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) {
    let ((whole, tail), (whole_y, tail_y)) = (x.as_chunks_mut::<WIDTH>(), y.as_chunks::<WIDTH>());
    for (x, y) in whole.iter_mut().zip(whole_y) {
        store(f(load(x), load(y)), x);
    }
    if !tail.is_empty() {
        store_tail(f(load_tail(tail), load_tail(tail_y)), tail);
    }
}

/// The 16 lanes after `f(lanes, x)` on each 16 of `x` in turn; a row's end is filled with zeros.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn fold(x: &[f32], mut lanes: Lanes, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> Lanes {
    let (whole, tail) = x.as_chunks::<{ QUADS * WIDTH }>();
    for x in whole {
        lanes = step(lanes, x, &f);
    }
    if !tail.is_empty() {
        let mut padded = [0.0; QUADS * WIDTH];
        padded[..tail.len()].copy_from_slice(tail);
        lanes = step(lanes, &padded, &f);
    }
    lanes
}

#[inline]
#[target_feature(enable = "neon")]
fn step(l: Lanes, x: &[f32; QUADS * WIDTH], f: &impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> Lanes {
    [f(l[0], load(x)), f(l[1], load(&x[4..])), f(l[2], load(&x[8..])), f(l[3], load(&x[12..]))]
}
