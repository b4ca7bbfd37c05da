//! Packing: from rows of blocks to units of 16 rows.

use std::arch::x86_64::*;

use super::codec::ROWS;

/// Stores 16 bytes of each of 16 rows as 4 vectors of 64 bytes: dword `p` of row `r` becomes lane `r` of vector `p`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store_dwords(rows: &[__m128i; ROWS], dst: &mut [u8; 4 * 64]) {
    for (quad, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
        let [a, b, c, d] = *rows;
        let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
        let (ab_high, cd_high) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
        let dwords = [
            _mm_unpacklo_epi64(ab, cd),
            _mm_unpackhi_epi64(ab, cd),
            _mm_unpacklo_epi64(ab_high, cd_high),
            _mm_unpackhi_epi64(ab_high, cd_high),
        ];
        for (p, v) in dwords.into_iter().enumerate() {
            store(v, &mut dst[p * 64 + quad * 16..][..16]);
        }
    }
}

/// The first 16 bytes of `bytes`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load(bytes: &[u8]) -> __m128i {
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

/// Two bytes of every row from byte `at` on, side by side.
pub(super) fn store_halves(rows: &[&[u8]; ROWS], at: usize, dst: &mut [u8]) {
    for (row, dst) in rows.iter().zip(dst.as_chunks_mut::<2>().0) {
        dst.copy_from_slice(&row[at..at + 2]);
    }
}
