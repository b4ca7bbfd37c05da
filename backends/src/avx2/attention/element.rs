//! The numbers of the cache.

use std::arch::x86_64::*;

use half::f16;
use rml_kernels_ref::kv::KvHead;

/// A number of the cache, widened to f32 as it is loaded.
pub(super) trait Element: Copy {
    /// Whether what is loaded has yet to be multiplied with the scale of its group.
    const SCALED: bool = false;

    /// Scales of keys and of values, if there are any.
    fn scales<'a>(_: &KvHead<'a>) -> [&'a [f16]; 2] {
        [&[], &[]]
    }

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

impl Element for i8 {
    const SCALED: bool = true;

    fn scales<'a>(kv: &KvHead<'a>) -> [&'a [f16]; 2] {
        match kv {
            KvHead::I8 { k_scale, v_scale, .. } => [k_scale, v_scale],
            _ => [&[], &[]],
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const i8) -> __m256 {
        // SAFETY: the caller's, 8 bytes; no alignment is needed.
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(unsafe { _mm_loadl_epi64(at.cast()) }))
    }

    fn widen(self) -> f32 {
        self.into()
    }
}
