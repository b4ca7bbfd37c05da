//! The numbers of the cache.

use std::arch::aarch64::*;

use half::f16;
use rml_kernels_ref::kv::KvHead;

use crate::neon::half::load_halves;

/// A number of the cache, widened to f32 as it is loaded.
pub(super) trait Element: Copy {
    /// Whether what is loaded has yet to be multiplied with the scale of its group.
    const SCALED: bool = false;

    /// Scales of keys and of values, if there are any.
    fn scales<'a>(_: &KvHead<'a>) -> [&'a [f16]; 2] {
        [&[], &[]]
    }

    /// 4 numbers.
    ///
    /// # Safety
    /// `at` holds them.
    unsafe fn load(at: *const Self) -> float32x4_t;

    /// One number.
    fn widen(self) -> f32;
}

impl Element for f32 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const f32) -> float32x4_t {
        // SAFETY: the caller's; no alignment is needed.
        unsafe { vld1q_f32(at) }
    }

    fn widen(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const f16) -> float32x4_t {
        // SAFETY: the caller's, 8 bytes.
        unsafe { load_halves(at.cast()) }
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
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const i8) -> float32x4_t {
        // SAFETY: the caller's, 4 bytes.
        let bytes = vcreate_s8(u64::from(unsafe { at.cast::<u32>().read_unaligned() }));
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
    }

    fn widen(self) -> f32 {
        self.into()
    }
}
