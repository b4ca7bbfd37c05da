//! Quantization of activations.

use std::arch::x86_64::*;

use rml_kernels_ref::activation::{Q8_BLOCK, Q8RowMut};
use rml_kernels_ref::quantize::ZERO_BELOW;

/// Blocks that are scaled together, one to a lane: their divisions are one.
const LANES: usize = 16;

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
    // SAFETY: installed; the row and its blocks have the lengths asserted.
    unsafe {
        for first in (0..blocks).step_by(LANES) {
            quantize_blocks(x, first, LANES.min(blocks - first), out);
        }
    }
}

/// Quantizes `n <= 16` blocks from `first` on.
///
/// # Safety
/// `x` and `out` have these blocks; the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn quantize_blocks(x: &[f32], first: usize, n: usize, out: &mut Q8RowMut<'_>) {
    let there = u16::MAX >> (LANES - n);
    let x = x[first * Q8_BLOCK..][..n * Q8_BLOCK].as_ptr();
    let q = out.q[first * Q8_BLOCK..][..n * Q8_BLOCK].as_mut_ptr();
    let sum = out.sum[2 * first..][..2 * n].as_mut_ptr();
    let mut max = [0_i32; LANES];
    for (b, max) in max.iter_mut().enumerate().take(n) {
        // SAFETY: block `b` of those that are there.
        unsafe {
            let halves = [_mm512_loadu_ps(x.add(b * Q8_BLOCK)), _mm512_loadu_ps(x.add(b * Q8_BLOCK + 16))];
            // The order of magnitudes is that of their bits, NaN being the largest of all.
            let bits = [_mm512_castps_si512(_mm512_abs_ps(halves[0])), _mm512_castps_si512(_mm512_abs_ps(halves[1]))];
            *max = _mm512_reduce_max_epi32(_mm512_max_epi32(bits[0], bits[1]));
        }
    }
    // SAFETY: 16 numbers.
    let max = _mm512_castsi512_ps(unsafe { _mm512_loadu_si512(max.as_ptr().cast()) });
    let most = _mm512_set1_ps(127.0);
    let finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(max, _mm512_set1_ps(f32::INFINITY));
    let some = finite & _mm512_cmp_ps_mask::<_CMP_GE_OQ>(max, _mm512_set1_ps(ZERO_BELOW));
    let scale = _mm512_mask_mov_ps(_mm512_set1_ps(f32::NAN), finite, _mm512_maskz_div_ps(some, max, most));
    let mut inverse = [0.0_f32; LANES];
    // SAFETY: 16 numbers.
    unsafe { _mm512_storeu_ps(inverse.as_mut_ptr(), _mm512_maskz_div_ps(some, most, max)) };
    for (b, &inverse) in inverse.iter().enumerate().take(n) {
        // SAFETY: block `b` of those that are there, in `x`, `q` and `sum`.
        unsafe {
            let factor = _mm512_set1_ps(inverse);
            // Conversion rounds ties to even, as the current rounding mode is the default one. Where the inverse is 0 the
            // quants are, even of what is not finite.
            let keep = if inverse == 0.0 { 0 } else { u16::MAX };
            let low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(_mm512_loadu_ps(x.add(b * Q8_BLOCK)), factor));
            let high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(_mm512_loadu_ps(x.add(b * Q8_BLOCK + 16)), factor));
            let bytes = [_mm512_cvtsepi32_epi8(low), _mm512_cvtsepi32_epi8(high)];
            _mm_storeu_si128(q.add(b * Q8_BLOCK).cast(), bytes[0]);
            _mm_storeu_si128(q.add(b * Q8_BLOCK + 16).cast(), bytes[1]);
            sum.add(2 * b).write(byte_sum(bytes[0]));
            sum.add(2 * b + 1).write(byte_sum(bytes[1]));
        }
    }
    // SAFETY: `n` blocks from `first` on.
    unsafe {
        let sums = _mm512_maskz_loadu_epi32(there, sum.cast());
        let total = _mm512_cvtepi32_ps(_mm512_madd_epi16(sums, _mm512_set1_epi16(1)));
        _mm512_mask_storeu_ps(out.scale[first..].as_mut_ptr(), there, scale);
        _mm512_mask_storeu_ps(out.scaled_sum[first..].as_mut_ptr(), there, _mm512_mul_ps(scale, total));
    }
}

/// The sum of 16 signed bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn byte_sum(bytes: __m128i) -> i16 {
    const OFFSET: i16 = 128; // makes bytes unsigned
    let unsigned = _mm_xor_si128(bytes, _mm_set1_epi8(OFFSET as i8));
    let eights = _mm_sad_epu8(unsigned, _mm_setzero_si128());
    _mm_cvtsi128_si32(_mm_add_epi64(eights, _mm_unpackhi_epi64(eights, eights))) as i16 - 16 * OFFSET
}
