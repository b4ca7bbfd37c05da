//! The exponential of `rml_kernels_ref::exp`, 16 at a time.

#![allow(clippy::needless_range_loop, reason = "registers index several arrays at once")]

use std::arch::x86_64::*;

use rml_kernels_ref::exp::{HI, LN2_HI, LN2_LO, LO, POLYNOMIAL};

/// `e^x` in every lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn exp(x: __m512) -> __m512 {
    exp_each([x])[0]
}

/// `e^x` in every lane of `V` registers, step by step: a step takes four cycles, in which the others' can start.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn exp_each<const V: usize>(mut x: [__m512; V]) -> [__m512; V] {
    let mut n = x;
    for i in 0..V {
        // Both yield their second operand where one is NaN.
        x[i] = _mm512_max_ps(_mm512_set1_ps(LO), _mm512_min_ps(_mm512_set1_ps(HI), x[i]));
        n[i] = _mm512_mul_ps(x[i], _mm512_set1_ps(std::f32::consts::LOG2_E));
    }
    for i in 0..V {
        n[i] = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(n[i]);
    }
    for i in 0..V {
        x[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(LN2_HI), x[i]);
    }
    for i in 0..V {
        x[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(LN2_LO), x[i]);
    }
    let mut p = [_mm512_set1_ps(POLYNOMIAL[0]); V];
    for c in &POLYNOMIAL[1..] {
        for i in 0..V {
            p[i] = _mm512_fmadd_ps(p[i], x[i], _mm512_set1_ps(*c));
        }
    }
    for i in 0..V {
        p[i] = _mm512_fmadd_ps(p[i], _mm512_mul_ps(x[i], x[i]), x[i]);
    }
    for i in 0..V {
        let power = _mm512_slli_epi32::<23>(_mm512_add_epi32(_mm512_cvtps_epi32(n[i]), _mm512_set1_epi32(127)));
        p[i] = _mm512_mul_ps(_mm512_add_ps(p[i], _mm512_set1_ps(1.0)), _mm512_castsi512_ps(power));
    }
    p
}
