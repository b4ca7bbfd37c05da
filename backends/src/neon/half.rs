//! IEEE halves. The instructions are part of NEON; Rust's functions for them are not stable.

use std::arch::aarch64::*;
use std::arch::asm;

/// 4 halves, widened exactly.
///
/// # Safety
/// `at` holds them.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn load_halves(at: *const u8) -> float32x4_t {
    // SAFETY: 8 bytes, the caller's; bytes need no alignment.
    let halves = unsafe { vld1_u8(at) };
    let wide;
    // SAFETY: a conversion within registers.
    unsafe { asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) halves, options(pure, nomem, nostack, preserves_flags)) };
    wide
}

/// 4 numbers rounded to halves, ties to even.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn to_halves(x: float32x4_t) -> uint16x4_t {
    let halves;
    // SAFETY: a conversion within registers; the rounding mode is the default one.
    unsafe { asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) halves, in(vreg) x, options(pure, nomem, nostack, preserves_flags)) };
    halves
}
