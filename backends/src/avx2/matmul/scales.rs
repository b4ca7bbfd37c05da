//! Scales of 16 rows, side by side.

use std::arch::x86_64::*;

use crate::panels::ROWS;

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
