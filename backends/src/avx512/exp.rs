//! The exponential of `rml_kernels_ref::exp`, 16 at a time.

use std::arch::x86_64::*;

use rml_kernels_ref::exp::{HI, LN2_HI, LN2_LO, LO, POLYNOMIAL};

/// `e^x` in every lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn exp(x: __m512) -> __m512 {
    // Both yield their second operand where one is NaN.
    let x = _mm512_max_ps(_mm512_set1_ps(LO), _mm512_min_ps(_mm512_set1_ps(HI), x));
    let n = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
    let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(n);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HI), x);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LO), r);
    let mut p = _mm512_set1_ps(POLYNOMIAL[0]);
    for c in &POLYNOMIAL[1..] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*c));
    }
    let p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0));
    let power = _mm512_slli_epi32::<23>(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)));
    _mm512_mul_ps(p, _mm512_castsi512_ps(power))
}
