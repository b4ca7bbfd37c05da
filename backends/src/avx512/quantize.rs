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
    let mut bits = [_mm512_setzero_si512(); LANES];
    for (b, bits) in bits.iter_mut().enumerate().take(n) {
        // SAFETY: block `b` of those that are there.
        unsafe {
            let halves = [_mm512_loadu_ps(x.add(b * Q8_BLOCK)), _mm512_loadu_ps(x.add(b * Q8_BLOCK + 16))];
            // The order of magnitudes is that of their bits, NaN being the largest of all.
            *bits = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(halves[0])), _mm512_castps_si512(_mm512_abs_ps(halves[1])));
        }
    }
    let max = _mm512_castsi512_ps(largest_of_each(bits));
    let most = _mm512_set1_ps(127.0);
    let finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(max, _mm512_set1_ps(f32::INFINITY));
    let some = finite & _mm512_cmp_ps_mask::<_CMP_GE_OQ>(max, _mm512_set1_ps(ZERO_BELOW));
    let scale = _mm512_mask_mov_ps(_mm512_set1_ps(f32::NAN), finite, _mm512_maskz_div_ps(some, max, most));
    let mut inverse = [0.0_f32; LANES];
    // SAFETY: 16 numbers.
    unsafe { _mm512_storeu_ps(inverse.as_mut_ptr(), _mm512_maskz_div_ps(some, most, max)) };
    // Conversion rounds ties to even, as the current rounding mode is the default one. Where the inverse is 0 the quants are,
    // even of what is not finite.
    let whole = |b: usize, half: usize| {
        let keep = if some >> b & 1 == 1 { u16::MAX } else { 0 };
        // SAFETY: half of block `b` of those that are there.
        let x = unsafe { _mm512_loadu_ps(x.add(b * Q8_BLOCK + 16 * half)) };
        _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x, _mm512_set1_ps(inverse[b])))
    };
    let mut sums = [_mm512_setzero_si512(); LANES / 2];
    for (pair, sum) in sums.iter_mut().enumerate().take(n / 2) {
        let b = 2 * pair;
        let bytes = pack([whole(b, 0), whole(b, 1), whole(b + 1, 0), whole(b + 1, 1)]);
        // SAFETY: both blocks are there.
        unsafe { _mm512_storeu_si512(q.add(b * Q8_BLOCK).cast(), bytes) };
        *sum = sum_of_lanes(bytes);
    }
    if n % 2 == 1 {
        let zero = _mm512_setzero_si512();
        let bytes = pack([whole(n - 1, 0), whole(n - 1, 1), zero, zero]);
        // SAFETY: the last block is there.
        unsafe { _mm256_storeu_si256(q.add((n - 1) * Q8_BLOCK).cast(), _mm512_castsi512_si256(bytes)) };
        sums[n / 2] = sum_of_lanes(bytes);
    }
    let sums = in_order(sums);
    // SAFETY: `n` blocks from `first` on, with two sums each.
    unsafe {
        let total = _mm512_cvtepi32_ps(_mm512_madd_epi16(sums, _mm512_set1_epi16(1)));
        _mm512_mask_storeu_epi32(out.sum[2 * first..].as_mut_ptr().cast(), there, sums);
        _mm512_mask_storeu_ps(out.scale[first..].as_mut_ptr(), there, scale);
        _mm512_mask_storeu_ps(out.scaled_sum[first..].as_mut_ptr(), there, _mm512_mul_ps(scale, total));
    }
}

/// The largest number of vector `i` in lane `i`: halves are interleaved and folded until each vector is a lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn largest_of_each(v: [__m512i; LANES]) -> __m512i {
    let mut fours = [_mm512_setzero_si512(); 4]; // vectors 4 i .. 4 i + 4, four partial results each
    for i in 0..4 {
        let twos = |x, y| _mm512_max_epi32(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
        let (x, y) = (twos(v[4 * i], v[4 * i + 1]), twos(v[4 * i + 2], v[4 * i + 3]));
        fours[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
    }
    let fold = |x, y| _mm512_max_epi32(_mm512_shuffle_i32x4::<0x44>(x, y), _mm512_shuffle_i32x4::<0xEE>(x, y));
    let (x, y) = (fold(fours[0], fours[1]), fold(fours[2], fours[3]));
    _mm512_max_epi32(_mm512_shuffle_i32x4::<0x88>(x, y), _mm512_shuffle_i32x4::<0xDD>(x, y))
}

/// 64 bytes of four vectors of numbers, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn pack(x: [__m512i; 4]) -> __m512i {
    let bytes = _mm512_packs_epi16(_mm512_packs_epi32(x[0], x[1]), _mm512_packs_epi32(x[2], x[3]));
    // Packing goes by lanes of 128 bits: dword `i` of lane `l` is that of vector `i`.
    _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes)
}

/// The sum of the 16 signed bytes of every lane of 128 bits, in its first 16 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn sum_of_lanes(bytes: __m512i) -> __m512i {
    const OFFSET: i16 = 128; // makes bytes unsigned
    let eights = _mm512_sad_epu8(_mm512_xor_si512(bytes, _mm512_set1_epi8(OFFSET as i8)), _mm512_setzero_si512());
    _mm512_sub_epi16(_mm512_add_epi64(eights, _mm512_unpackhi_epi64(eights, eights)), _mm512_set1_epi64(i64::from(16 * OFFSET)))
}

/// The sums of pairs of blocks, as [`sum_of_lanes`] gives them, one behind the other.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn in_order(sums: [__m512i; LANES / 2]) -> __m512i {
    let four = |i: usize| {
        let [a, b] = [_mm512_unpacklo_epi16(sums[i], sums[i + 1]), _mm512_unpacklo_epi16(sums[i + 2], sums[i + 3])];
        _mm512_unpacklo_epi32(a, b)
    };
    // Word `i` of lane `l` is that of pair `i`, half `l`.
    let lanes = _mm512_unpacklo_epi64(four(0), four(4));
    let mut order = [0_i16; 32];
    for (to, from) in order.iter_mut().enumerate() {
        *from = (to % 4 * 8 + to / 4) as i16;
    }
    // SAFETY: 32 words.
    _mm512_permutexvar_epi16(unsafe { _mm512_loadu_si512(order.as_ptr().cast()) }, lanes)
}
