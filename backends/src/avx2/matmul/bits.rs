//! Quants of a few bits, 16 rows to a vector of 64 bytes: how they are packed and unpacked.
//!
//! A byte of a vector belongs to a row and one of the 4 columns of a group; the groups of a block share it. Nibbles hold
//! two groups, two bits four (in order, from the lowest), single bits all eight.

use std::arch::x86_64::*;

use crate::panels::{ROWS, VECTOR};

/// Half a vector: rows `8 * half ..` of vector `i`.
///
/// # Safety
/// `vectors` holds more than `i` vectors; `half < 2`; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn load(vectors: *const u8, half: usize, i: usize) -> __m256i {
    // SAFETY: 32 bytes of the vector.
    unsafe { _mm256_loadu_si256(vectors.add(VECTOR * i + VECTOR / 2 * half).cast()) }
}

/// The low and the high nibbles of vector `p`.
///
/// # Safety
/// As for [`load`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn nibbles(vectors: *const u8, half: usize, p: usize) -> [__m256i; 2] {
    // SAFETY: the caller's.
    let v = unsafe { load(vectors, half, p) };
    [at(v, 0, 0, 15), at(v, 4, 0, 15)]
}

/// The two bits of `group`, moved to bit `to`.
///
/// # Safety
/// As for [`load`], with 2 vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn two_bits(vectors: *const u8, half: usize, group: usize, to: usize) -> __m256i {
    // SAFETY: the caller's.
    at(unsafe { load(vectors, half, group / 4) }, 2 * (group % 4), to, 3)
}

/// The bit of `group`, moved to bit `to`.
///
/// # Safety
/// As for [`load`], with 1 vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn one_bit(vector: *const u8, half: usize, group: usize, to: usize) -> __m256i {
    // SAFETY: the caller's.
    at(unsafe { load(vector, half, 0) }, group, to, 1)
}

/// The bits `mask << from` of every byte, moved to bit `to`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn at(v: __m256i, from: usize, to: usize, mask: u8) -> __m256i {
    let count = |n: usize| _mm_cvtsi64_si128(n as i64); // a constant, once loops are unrolled
    let moved = if from < to { _mm256_sll_epi16(v, count(to - from)) } else { _mm256_srl_epi16(v, count(from - to)) };
    _mm256_and_si256(moved, _mm256_set1_epi8((mask << to) as i8))
}

/// Stores 16 bytes of each row as 4 vectors: dword `p` of row `r` becomes lane `r` of vector `p`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store_dwords(rows: &[__m128i; ROWS], vectors: &mut [u8]) {
    for (quad, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
        for (p, v) in transpose(rows).into_iter().enumerate() {
            store(v, &mut vectors[VECTOR * p + 16 * quad..]);
        }
    }
}

/// Stores 32 numbers of two bits of each row, a byte each, as 2 vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store_two_bits(rows: &[[__m128i; 2]; ROWS], vectors: &mut [u8]) {
    for (quad, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
        for i in 0..2 {
            let [a, b, c, d] = transpose(&[rows[0][i], rows[1][i], rows[2][i], rows[3][i]]);
            let (low, high) = (_mm_or_si128(a, _mm_slli_epi16::<2>(b)), _mm_or_si128(c, _mm_slli_epi16::<2>(d)));
            store(_mm_or_si128(low, _mm_slli_epi16::<4>(high)), &mut vectors[VECTOR * i + 16 * quad..]);
        }
    }
}

/// Stores 32 bits of each row, a bit a column, as 1 vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store_bits(rows: &[u32; ROWS], vector: &mut [u8]) {
    for (rows, vector) in rows.as_chunks::<4>().0.iter().zip(vector.as_chunks_mut::<16>().0) {
        let [a, b, c, d] = rows.map(|bits| bits as i32);
        let bits = _mm_setr_epi32(a, b, c, d);
        // Column 4 g + i goes from bit 4 g + i to bit 8 i + g: the digits g2 g1 g0 i1 i0 of its number to i1 i0 g2 g1 g0.
        let bits = swap_digits::<4, 1>(bits);
        let bits = swap_digits::<3, 0>(bits);
        let bits = swap_digits::<2, 1>(bits);
        store(swap_digits::<1, 0>(bits), vector);
    }
}

/// Bit `b` of each of the first 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gather_bits(bytes: &[u8], b: usize) -> u32 {
    let bytes: &[u8; 32] = bytes.first_chunk().expect("32 bytes");
    // SAFETY: 32 readable bytes; the load needs no alignment.
    let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    _mm256_movemask_epi8(_mm256_sll_epi16(bytes, _mm_cvtsi64_si128(7 - b as i64))) as u32
}

/// Moves each bit of a dword to where two digits of its number are swapped, `A > B`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn swap_digits<const A: u32, const B: u32>(x: __m128i) -> __m128i {
    // Bits whose digit A is 0 and B is 1 change places with those that have them the other way around.
    let mask = const {
        let (mut mask, mut i) = (0_u32, 0);
        while i < 32 {
            if i >> A & 1 == 0 && i >> B & 1 == 1 {
                mask |= 1 << i;
            }
            i += 1;
        }
        mask
    };
    let distance = _mm_cvtsi32_si128((1 << A) - (1 << B));
    let differ = _mm_and_si128(_mm_xor_si128(x, _mm_srl_epi32(x, distance)), _mm_set1_epi32(mask as i32));
    _mm_xor_si128(x, _mm_xor_si128(differ, _mm_sll_epi32(differ, distance)))
}

/// Dword `p` of row `r` becomes dword `r` of row `p`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn transpose(&[a, b, c, d]: &[__m128i; 4]) -> [__m128i; 4] {
    let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
    [_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd), _mm_unpacklo_epi64(ab_high, cd_high), _mm_unpackhi_epi64(ab_high, cd_high)]
}

/// The first 16 bytes of `bytes`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load_bytes(bytes: &[u8]) -> __m128i {
    let bytes: &[u8; 16] = bytes.first_chunk().expect("16 bytes");
    // SAFETY: 16 readable bytes; the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Stores to the first 16 bytes of `bytes`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store(v: __m128i, bytes: &mut [u8]) {
    let bytes: &mut [u8; 16] = bytes.first_chunk_mut().expect("16 bytes");
    // SAFETY: 16 writable bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), v) }
}
