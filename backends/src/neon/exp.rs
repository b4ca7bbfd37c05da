//! The exponential: the polynomial of `rml_kernels_ref::exp`, operation for operation.

use std::arch::aarch64::*;
use std::f32::consts::LOG2_E;

use rml_kernels_ref::exp::{HI, LN2_HI, LN2_LO, LO, POLYNOMIAL};

use super::lanes::all;

/// `e^x` of 4 numbers.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn exp(x: float32x4_t) -> float32x4_t {
    // NaN goes through minimum and maximum.
    let x = vmaxq_f32(all(LO), vminq_f32(all(HI), x));
    let n = vrndnq_f32(vmulq_f32(x, all(LOG2_E)));
    let r = vfmsq_f32(x, n, all(LN2_HI));
    let r = vfmsq_f32(r, n, all(LN2_LO));
    let mut p = all(POLYNOMIAL[0]);
    for &c in &POLYNOMIAL[1..] {
        p = vfmaq_f32(all(c), p, r);
    }
    let p = vaddq_f32(vfmaq_f32(r, p, vmulq_f32(r, r)), all(1.0));
    let power = vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)));
    vmulq_f32(p, vreinterpretq_f32_s32(power))
}
