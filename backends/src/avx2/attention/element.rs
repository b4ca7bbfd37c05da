//! The numbers of the cache.

use std::arch::x86_64::*;

use half::f16;

/// A number of the cache, widened to f32 as it is loaded.
pub(super) trait Element: Copy {
    /// 8 numbers.
    ///
    /// # Safety
    /// `at` holds them; the CPU has the features.
    unsafe fn load(at: *const Self) -> __m256;

    /// One number.
    fn widen(self) -> f32;
}

impl Element for f32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const f32) -> __m256 {
        // SAFETY: the caller's; no alignment is needed.
        unsafe { _mm256_loadu_ps(at) }
    }

    fn widen(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const f16) -> __m256 {
        // SAFETY: the caller's, 16 bytes; no alignment is needed.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
    }

    fn widen(self) -> f32 {
        self.to_f32()
    }
}
