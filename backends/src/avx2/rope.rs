//! Rotary position embedding.

use std::arch::x86_64::*;

use super::lanes::{load, store};

fn check(x: &[f32], d: usize, cos: &[f32], sin: &[f32]) {
    assert!(d > 0 && x.len().is_multiple_of(d), "rope: {} numbers in heads of {d}", x.len());
    assert!(cos.len() == sin.len() && 2 * cos.len() <= d, "rope: {} angles for heads of {d}", cos.len());
}

pub(super) fn rope_pairs(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    check(x, d, cos, sin);
    // SAFETY: installed.
    unsafe { rope_pairs_avx2(x, d, cos, sin) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rope_pairs_avx2(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    let (cos, cos_tail) = cos.as_chunks::<4>();
    let (sin, sin_tail) = sin.as_chunks::<4>();
    let n_rot = 8 * cos.len();
    for (j, (cos, sin)) in cos.iter().zip(sin).enumerate() {
        // SAFETY: 4 numbers each.
        let (cos, sin) = unsafe { (_mm_loadu_ps(cos.as_ptr()), _mm_loadu_ps(sin.as_ptr())) };
        let cos_sin = _mm256_set_m128(_mm_unpackhi_ps(cos, sin), _mm_unpacklo_ps(cos, sin));
        let sin_cos = _mm256_permute_ps::<0b10_11_00_01>(cos_sin);
        for head in x.chunks_exact_mut(d) {
            let pairs = &mut head[8 * j..][..8];
            let v = load(pairs);
            let (a, b) = (_mm256_moveldup_ps(v), _mm256_movehdup_ps(v));
            store(_mm256_fmaddsub_ps(a, cos_sin, _mm256_mul_ps(b, sin_cos)), pairs);
        }
    }
    for head in x.chunks_exact_mut(d) {
        for ((pair, &c), &s) in head[n_rot..].chunks_exact_mut(2).zip(cos_tail).zip(sin_tail) {
            (pair[0], pair[1]) = rotate(pair[0], pair[1], c, s);
        }
    }
}

pub(super) fn rope_halves(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    check(x, d, cos, sin);
    // SAFETY: installed.
    unsafe { rope_halves_avx2(x, d, cos, sin) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rope_halves_avx2(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let (cos, cos_tail) = cos.as_chunks::<8>();
    let (sin, sin_tail) = sin.as_chunks::<8>();
    for head in x.chunks_exact_mut(d) {
        let (low, high) = head.split_at_mut(half);
        let (low, low_tail) = low.as_chunks_mut::<8>();
        let (high, high_tail) = high[..half].as_chunks_mut::<8>();
        for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
            let (va, vb, cos, sin) = (load(a), load(b), load(cos), load(sin));
            store(_mm256_fmsub_ps(va, cos, _mm256_mul_ps(vb, sin)), a);
            store(_mm256_fmadd_ps(va, sin, _mm256_mul_ps(vb, cos)), b);
        }
        for (((a, b), &c), &s) in low_tail.iter_mut().zip(high_tail).zip(cos_tail).zip(sin_tail) {
            (*a, *b) = rotate(*a, *b, c, s);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn rotate(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a.mul_add(cos, -(b * sin)), a.mul_add(sin, b * cos))
}
