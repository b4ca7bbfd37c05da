//! Scales of 16 rows, side by side.

use std::arch::x86_64::*;

use super::codec::ROWS;

/// Bytes of 16 f16.
pub(crate) const HALVES: usize = 2 * ROWS;

/// 16 f16 as f32, rows by halves.
///
/// # Safety
/// `src` holds them; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn halves(src: *const u8) -> [__m256; 2] {
    // SAFETY: twice 16 bytes.
    unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(src.cast())), _mm256_cvtph_ps(_mm_loadu_si128(src.add(16).cast()))] }
}

/// Bytes of rows `8 * half ..` as 32-bit numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn widen(bytes: &[u8; ROWS], half: usize) -> __m256i {
    let bytes: &[u8; 8] = &bytes.as_chunks().0[half];
    // SAFETY: 8 readable bytes.
    _mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) })
}

/// `N` bytes of every row from byte `at` on: byte `i` of all rows, then byte `i + 1` of all.
pub(super) fn store_bytes<const N: usize>(rows: &[&[u8]; ROWS], at: usize, dst: &mut [u8]) {
    for (r, row) in rows.iter().enumerate() {
        for (i, &byte) in row[at..at + N].iter().enumerate() {
            dst[i * ROWS + r] = byte;
        }
    }
}

/// Two bytes of every row from byte `at` on.
pub(super) fn store_halves(rows: &[&[u8]; ROWS], at: usize, dst: &mut [u8]) {
    for (row, dst) in rows.iter().zip(dst.as_chunks_mut::<2>().0) {
        dst.copy_from_slice(&row[at..at + 2]);
    }
}
