//! Softmax.

use std::arch::x86_64::*;

use super::exp::exp;
use super::lanes::{fold, largest, map, reduce};

pub(super) fn softmax(x: &mut [f32]) {
    // SAFETY: installed.
    unsafe { softmax_avx2(x) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn softmax_avx2(x: &mut [f32]) {
    // The zeros that fill a row's end must not count, so the maximum is taken of whole registers and then of the rest.
    let (whole, tail) = x.as_chunks::<16>();
    let lowest = _mm256_set1_ps(f32::NEG_INFINITY);
    let lanes = fold(whole.as_flattened(), [lowest; 2], |max, x| _mm256_max_ps(x, max));
    let max = tail.iter().fold(largest(_mm256_max_ps(lanes[0], lanes[1])), |m, &x| if x > m { x } else { m });
    let max = _mm256_set1_ps(max);
    map(x, |x| exp(_mm256_sub_ps(x, max)));
    let sum = reduce(fold(x, [_mm256_setzero_ps(); 2], |acc, x| _mm256_add_ps(acc, x)));
    let inv = _mm256_set1_ps(1.0 / sum);
    map(x, |x| _mm256_mul_ps(x, inv));
}
