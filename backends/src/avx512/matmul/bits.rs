//! Quants of a few bits, read 16 rows at a time; see `avx2::matmul::bits` for how they stand in a vector.

use std::arch::x86_64::*;

use crate::panels::{ROWS, VECTOR};

/// Vector `i`.
///
/// # Safety
/// `vectors` holds more than `i` vectors; the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn load(vectors: *const u8, i: usize) -> __m512i {
    // SAFETY: the caller's.
    unsafe { _mm512_loadu_si512(vectors.add(VECTOR * i).cast()) }
}

/// The bits `mask << from` of every byte, moved to bit `to`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn at(v: __m512i, from: usize, to: usize, mask: u8) -> __m512i {
    let count = |n: usize| _mm_cvtsi64_si128(n as i64); // a constant, once loops are unrolled
    let moved = if from < to { _mm512_sll_epi16(v, count(to - from)) } else { _mm512_srl_epi16(v, count(from - to)) };
    _mm512_and_si512(moved, _mm512_set1_epi8((mask << to) as i8))
}

/// Nibbles of vector `i`: the low ones or the high ones.
///
/// # Safety
/// As for [`load`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn nibbles(vectors: *const u8, i: usize, high: bool) -> __m512i {
    // SAFETY: the caller's.
    at(unsafe { load(vectors, i) }, if high { 4 } else { 0 }, 0, 15)
}

/// Nibbles of `group`, where vector `p` holds groups `p` and `p + 4`.
///
/// # Safety
/// As for [`load`], with 4 vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn far_nibbles(vectors: *const u8, group: usize) -> __m512i {
    // SAFETY: the caller's.
    unsafe { nibbles(vectors, group % 4, group >= 4) }
}

/// The two bits of `group`, moved to bit `to`.
///
/// # Safety
/// As for [`load`], with 2 vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn two_bits(vectors: *const u8, group: usize, to: usize) -> __m512i {
    // SAFETY: the caller's.
    at(unsafe { load(vectors, group / 4) }, 2 * (group % 4), to, 3)
}

/// The bit of `group`, moved to bit `to`.
///
/// # Safety
/// As for [`load`], with 1 vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn one_bit(vector: *const u8, group: usize, to: usize) -> __m512i {
    // SAFETY: the caller's.
    at(unsafe { load(vector, 0) }, group, to, 1)
}

/// 16 f16 as f32.
///
/// # Safety
/// `src` holds them; the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn halves(src: *const u8) -> __m512 {
    // SAFETY: 32 bytes.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(src.cast()) })
}

/// Byte `i` of every row.
///
/// # Safety
/// `bytes` holds more than `i` bytes of 16 rows; the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn bytes(bytes: *const u8, i: usize) -> __m128i {
    // SAFETY: 16 bytes.
    unsafe { _mm_loadu_si128(bytes.add(ROWS * i).cast()) }
}

/// The bits `mask << from` of every byte of 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn part(v: __m128i, from: usize, mask: u8) -> __m128i {
    _mm_and_si128(_mm_srl_epi16(v, _mm_cvtsi64_si128(from as i64)), _mm_set1_epi8(mask as i8))
}
