//! Gated activations, what limits a number, and the residual addition.

use std::arch::x86_64::*;

use rml_kernels_ref::gate::{LIMIT, STEEPNESS};

use super::exp::exp;
use super::lanes::{map, zip};

pub(super) fn silu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "silu_mul");
    // SAFETY: installed.
    unsafe { silu_mul_avx2(gate, up) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn silu_mul_avx2(gate: &mut [f32], up: &[f32]) {
    zip(gate, up, |x, up| _mm256_mul_ps(times_sigmoid(x, x), up));
}

pub(super) fn gelu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gelu_mul");
    // SAFETY: installed.
    unsafe { gelu_mul_avx2(gate, up) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn gelu_mul_avx2(gate: &mut [f32], up: &[f32]) {
    /// `2 sqrt(2 / pi)`, as in the reference.
    const SCALE: f32 = 1.595_769;
    zip(gate, up, |x, up| {
        let cube = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
        let u = _mm256_mul_ps(_mm256_fmadd_ps(cube, _mm256_set1_ps(0.044_715), x), _mm256_set1_ps(SCALE));
        _mm256_mul_ps(times_sigmoid(x, u), up)
    });
}

pub(super) fn limited_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "limited_mul");
    // SAFETY: installed.
    unsafe { limited_mul_avx2(gate, up) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn limited_mul_avx2(gate: &mut [f32], up: &[f32]) {
    let (high, low) = (_mm256_set1_ps(LIMIT), _mm256_set1_ps(-LIMIT));
    zip(gate, up, |x, up| {
        // Both yield their second operand where one is NaN.
        let x = _mm256_min_ps(high, x);
        let up = _mm256_max_ps(low, _mm256_min_ps(high, up));
        let gate = times_sigmoid(x, _mm256_mul_ps(x, _mm256_set1_ps(STEEPNESS)));
        _mm256_mul_ps(gate, _mm256_add_ps(up, _mm256_set1_ps(1.0)))
    });
}

pub(super) fn soft_cap(x: &mut [f32], cap: f32) {
    // SAFETY: installed.
    unsafe { soft_cap_avx2(x, cap) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn soft_cap_avx2(x: &mut [f32], cap: f32) {
    let (slope, twice, cap) = (_mm256_set1_ps(2.0 / cap), _mm256_set1_ps(2.0 * cap), _mm256_set1_ps(cap));
    map(x, |x| {
        let e = exp(_mm256_mul_ps(x, slope));
        _mm256_sub_ps(cap, _mm256_div_ps(twice, _mm256_add_ps(_mm256_set1_ps(1.0), e)))
    });
}

/// `x / (1 + exp(-u))`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn times_sigmoid(x: __m256, u: __m256) -> __m256 {
    let e = exp(_mm256_xor_ps(u, _mm256_set1_ps(-0.0)));
    _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0), e))
}

pub(super) fn add(acc: &mut [f32], x: &[f32]) {
    assert_eq!(acc.len(), x.len(), "add");
    // SAFETY: installed.
    unsafe { add_avx2(acc, x) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_avx2(acc: &mut [f32], x: &[f32]) {
    zip(acc, x, |acc, x| _mm256_add_ps(acc, x));
}
