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

    /// The numbers themselves, where they need no widening.
    fn as_f32(_: &[Self]) -> Option<&[f32]> {
        None
    }

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
    fn as_f32(numbers: &[f32]) -> Option<&[f32]> {
        Some(numbers)
    }

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

impl Element for i8 {
    const SCALED: bool = true;

    fn scales<'a>(kv: &KvHead<'a>) -> [&'a [f16]; 2] {
        match kv {
            KvHead::I8 { k_scale, v_scale, .. } => [k_scale, v_scale],
            _ => [&[], &[]],
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load(at: *const i8) -> __m512 {
        // SAFETY: the caller's, 16 bytes; no alignment is needed.
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(unsafe { _mm_loadu_si128(at.cast()) }))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load_some(there: u16, at: *const i8) -> __m512 {
        // SAFETY: the caller's; the others are not read.
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(unsafe { _mm_maskz_loadu_epi8(there, at) }))
    }
}
