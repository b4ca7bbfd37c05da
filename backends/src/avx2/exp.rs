//! The exponential: the polynomial of `rml_kernels_ref::exp`, operation for operation.

use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;

use rml_kernels_ref::exp::{HI, LN2_HI, LN2_LO, LO, POLYNOMIAL};

/// `e^x` of 8 numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn exp(x: __m256) -> __m256 {
    let set = |c: f32| _mm256_set1_ps(c);
    // min and max yield their second operand where it is NaN.
    let x = _mm256_max_ps(set(LO), _mm256_min_ps(set(HI), x));
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(x, set(LOG2_E)));
    let r = _mm256_fnmadd_ps(n, set(LN2_HI), x);
    let r = _mm256_fnmadd_ps(n, set(LN2_LO), r);
    let [first, rest @ ..] = POLYNOMIAL;
    let p = rest.iter().fold(set(first), |p, &c| _mm256_fmadd_ps(p, r, set(c)));
    let p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), set(1.0));
    let power = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)));
    _mm256_mul_ps(p, _mm256_castsi256_ps(power))
}
