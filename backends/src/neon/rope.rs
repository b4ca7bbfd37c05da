//! Rotary position embedding.

use std::arch::aarch64::*;

use super::lanes::{load, store};

fn check(x: &[f32], d: usize, cos: &[f32], sin: &[f32]) {
    assert!(d > 0 && x.len().is_multiple_of(d), "rope: {} numbers in heads of {d}", x.len());
    assert!(cos.len() == sin.len() && 2 * cos.len() <= d, "rope: {} angles for heads of {d}", cos.len());
}

pub(super) fn rope_pairs(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    check(x, d, cos, sin);
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { rope_pairs_neon(x, d, cos, sin) }
}

#[target_feature(enable = "neon")]
fn rope_pairs_neon(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    let (cos, cos_tail) = cos.as_chunks::<4>();
    let (sin, sin_tail) = sin.as_chunks::<4>();
    let n_rot = 8 * cos.len();
    for head in x.chunks_exact_mut(d) {
        let (whole, rest) = head.split_at_mut(n_rot);
        for ((pairs, cos), sin) in whole.as_chunks_mut::<8>().0.iter_mut().zip(cos).zip(sin) {
            let (cos, sin) = (load(cos), load(sin));
            // SAFETY: 8 numbers.
            unsafe {
                let float32x4x2_t(a, b) = vld2q_f32(pairs.as_ptr());
                vst2q_f32(pairs.as_mut_ptr(), rotate(a, b, cos, sin));
            }
        }
        for ((pair, &c), &s) in rest.chunks_exact_mut(2).zip(cos_tail).zip(sin_tail) {
            (pair[0], pair[1]) = rotate_one(pair[0], pair[1], c, s);
        }
    }
}

pub(super) fn rope_halves(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    check(x, d, cos, sin);
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { rope_halves_neon(x, d, cos, sin) }
}

#[target_feature(enable = "neon")]
fn rope_halves_neon(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let (cos, cos_tail) = cos.as_chunks::<4>();
    let (sin, sin_tail) = sin.as_chunks::<4>();
    for head in x.chunks_exact_mut(d) {
        let (low, high) = head.split_at_mut(half);
        let (low, low_tail) = low.as_chunks_mut::<4>();
        let (high, high_tail) = high[..half].as_chunks_mut::<4>();
        for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
            let rotated = rotate(load(a), load(b), load(cos), load(sin));
            store(rotated.0, a);
            store(rotated.1, b);
        }
        for (((a, b), &c), &s) in low_tail.iter_mut().zip(high_tail).zip(cos_tail).zip(sin_tail) {
            (*a, *b) = rotate_one(*a, *b, c, s);
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn rotate(a: float32x4_t, b: float32x4_t, cos: float32x4_t, sin: float32x4_t) -> float32x4x2_t {
    float32x4x2_t(vfmaq_f32(vnegq_f32(vmulq_f32(b, sin)), a, cos), vfmaq_f32(vmulq_f32(b, cos), a, sin))
}

fn rotate_one(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a.mul_add(cos, -(b * sin)), a.mul_add(sin, b * cos))
}
