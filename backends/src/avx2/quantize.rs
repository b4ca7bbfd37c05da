//! Quantization of activations.

use std::arch::x86_64::*;

use rml_kernels_ref::activation::{Q8_BLOCK, Q8RowMut};
use rml_kernels_ref::quantize::ZERO_BELOW;

use super::lanes::load;

pub(super) fn quantize(x: &[f32], out: &mut Q8RowMut<'_>) {
    let blocks = x.len() / Q8_BLOCK;
    assert!(
        x.len().is_multiple_of(Q8_BLOCK)
            && out.q.len() == x.len()
            && out.scale.len() == blocks
            && out.scaled_sum.len() == blocks
            && out.sum.len() == 2 * blocks,
        "quantize: a row of {}",
        x.len()
    );
    // SAFETY: installed.
    unsafe { quantize_avx2(x, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantize_avx2(x: &[f32], out: &mut Q8RowMut<'_>) {
    let (x, _) = x.as_chunks::<Q8_BLOCK>();
    let (q, _) = out.q.as_chunks_mut::<Q8_BLOCK>();
    let (sum, _) = out.sum.as_chunks_mut::<2>();
    for ((((x, q), scale), scaled_sum), sum) in x.iter().zip(q).zip(&mut *out.scale).zip(&mut *out.scaled_sum).zip(sum) {
        let v = [load(x), load(&x[8..]), load(&x[16..]), load(&x[24..])];
        let max = largest_magnitude(&v);
        let inverse;
        (*scale, inverse) = match max {
            _ if !max.is_finite() => (f32::NAN, 0.0),
            _ if max < ZERO_BELOW => (0.0, 0.0),
            _ => (max / 127.0, 127.0 / max),
        };
        let bytes = narrow(&v, inverse);
        // SAFETY: a block is 32 bytes.
        unsafe { _mm256_storeu_si256(q.as_mut_ptr().cast(), bytes) };
        *sum = half_sums(bytes);
        *scaled_sum = *scale * f32::from(sum[0] + sum[1]);
    }
}

/// 32 numbers times `inverse` as signed bytes: rounded, ties to even, and kept within -128 and 127. Where the inverse is 0 so
/// are the bytes, even of what is not finite.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn narrow(v: &[__m256; 4], inverse: f32) -> __m256i {
    if inverse == 0.0 {
        return _mm256_setzero_si256();
    }
    // Conversion rounds ties to even, as the current rounding mode is the default one.
    let inverse = _mm256_set1_ps(inverse);
    let mut whole = [_mm256_setzero_si256(); 4];
    for (whole, v) in whole.iter_mut().zip(v) {
        *whole = _mm256_cvtps_epi32(_mm256_mul_ps(*v, inverse));
    }
    let short = [_mm256_packs_epi32(whole[0], whole[1]), _mm256_packs_epi32(whole[2], whole[3])];
    // Packing goes by halves of a register: dwords of 4 numbers come as 0 2 4 6 1 3 5 7.
    _mm256_permutevar8x32_epi32(_mm256_packs_epi16(short[0], short[1]), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// The largest magnitude, NaN being the largest of all: the order of magnitudes is that of their bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn largest_magnitude(v: &[__m256; 4]) -> f32 {
    let mut m8 = _mm256_setzero_si256();
    for v in v {
        m8 = _mm256_max_epi32(m8, _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0), *v)));
    }
    let m4 = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256::<1>(m8));
    let m2 = _mm_max_epi32(m4, _mm_shuffle_epi32::<0b11_10_11_10>(m4));
    let m1 = _mm_max_epi32(m2, _mm_shuffle_epi32::<0b01_01_01_01>(m2));
    f32::from_bits(_mm_cvtsi128_si32(m1) as u32)
}

/// Sums of the first and the last 16 of 32 signed bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half_sums(bytes: __m256i) -> [i16; 2] {
    const OFFSET: i16 = 128; // makes bytes unsigned
    let unsigned = _mm256_xor_si256(bytes, _mm256_set1_epi8(OFFSET as i8));
    let eights = _mm256_sad_epu8(unsigned, _mm256_setzero_si256());
    let sums = _mm256_add_epi64(eights, _mm256_unpackhi_epi64(eights, eights));
    let halves = [_mm_cvtsi128_si32(_mm256_castsi256_si128(sums)), _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(sums))];
    [halves[0] as i16 - 16 * OFFSET, halves[1] as i16 - 16 * OFFSET]
}
