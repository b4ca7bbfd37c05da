//! RMS norm.

use std::arch::aarch64::*;

use super::lanes::{QUADS, WIDTH, all, fold, load, load_tail, reduce, store, store_tail};

pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rms_norm: rows of {}, {} and {}", x.len(), weight.len(), out.len());
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { rms_norm_neon(x, weight, eps, out) }
}

#[target_feature(enable = "neon")]
fn rms_norm_neon(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let squares = reduce(fold(x, [all(0.0); QUADS], |acc, x| vfmaq_f32(acc, x, x)));
    let inv = all(1.0 / (squares / x.len() as f32 + eps).sqrt());
    let scaled = |x, weight| vmulq_f32(vmulq_f32(x, inv), weight);
    let ((x, x_tail), (weight, weight_tail)) = (x.as_chunks::<WIDTH>(), weight.as_chunks::<WIDTH>());
    let (out, out_tail) = out.as_chunks_mut::<WIDTH>();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        store(scaled(load(x), load(weight)), out);
    }
    if !out_tail.is_empty() {
        store_tail(scaled(load_tail(x_tail), load_tail(weight_tail)), out_tail);
    }
}
