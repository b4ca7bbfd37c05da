//! RMS norm.

use std::arch::x86_64::*;

use super::lanes::{WIDTH, fold, load, load_tail, reduce, store, store_tail};

pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rms_norm: rows of {}, {} and {}", x.len(), weight.len(), out.len());
    // SAFETY: installed.
    unsafe { rms_norm_avx2(x, weight, eps, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rms_norm_avx2(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let squares = reduce(fold(x, [_mm256_setzero_ps(); 2], |acc, x| _mm256_fmadd_ps(x, x, acc)));
    let inv = _mm256_set1_ps(1.0 / (squares / x.len() as f32 + eps).sqrt());
    let scaled = |x, weight| _mm256_mul_ps(_mm256_mul_ps(x, inv), weight);
    let ((x, x_tail), (weight, weight_tail)) = (x.as_chunks::<WIDTH>(), weight.as_chunks::<WIDTH>());
    let (out, out_tail) = out.as_chunks_mut::<WIDTH>();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        store(scaled(load(x), load(weight)), out);
    }
    if !out_tail.is_empty() {
        store_tail(scaled(load_tail(x_tail), load_tail(weight_tail)), out_tail);
    }
}
