//! The numbers of the cache.

use std::arch::x86_64::*;

use half::f16;

/// A number of the cache, widened to f32 as it is loaded.
pub(super) trait Element: Copy {
    /// 16 numbers.
    ///
    /// # Safety
    /// `at` holds them; the CPU has the features.
    unsafe fn load(at: *const Self) -> __m512;

    /// The numbers whose bits are set, zeros between them.
    ///
    /// # Safety
    /// `at` holds those numbers; the CPU has the features.
    unsafe fn load_some(there: u16, at: *const Self) -> __m512;
}

impl Element for f32 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load(at: *const f32) -> __m512 {
        // SAFETY: the caller's; no alignment is needed.
        unsafe { _mm512_loadu_ps(at) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load_some(there: u16, at: *const f32) -> __m512 {
        // SAFETY: the caller's; the others are not read.
        unsafe { _mm512_maskz_loadu_ps(there, at) }
    }
}

impl Element for f16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load(at: *const f16) -> __m512 {
        // SAFETY: the caller's, 32 bytes; no alignment is needed.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load_some(there: u16, at: *const f16) -> __m512 {
        // SAFETY: the caller's; the others are not read.
        _mm512_cvtph_ps(unsafe { _mm256_maskz_loadu_epi16(there, at.cast()) })
    }
}
