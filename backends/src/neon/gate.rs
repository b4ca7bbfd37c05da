//! Gated activations and the residual addition.

use std::arch::aarch64::*;

use super::exp::exp;
use super::lanes::{all, zip};

pub(super) fn silu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "silu_mul");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { silu_mul_neon(gate, up) }
}

#[target_feature(enable = "neon")]
fn silu_mul_neon(gate: &mut [f32], up: &[f32]) {
    zip(gate, up, |x, up| vmulq_f32(times_sigmoid(x, x), up));
}

pub(super) fn gelu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gelu_mul");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { gelu_mul_neon(gate, up) }
}

#[target_feature(enable = "neon")]
fn gelu_mul_neon(gate: &mut [f32], up: &[f32]) {
    /// `2 sqrt(2 / pi)`, as in the reference.
    const SCALE: f32 = 1.595_769;
    zip(gate, up, |x, up| {
        let cube = vmulq_f32(vmulq_f32(x, x), x);
        let u = vmulq_f32(vfmaq_f32(x, cube, all(0.044_715)), all(SCALE));
        vmulq_f32(times_sigmoid(x, u), up)
    });
}

/// `x / (1 + exp(-u))`.
#[inline]
#[target_feature(enable = "neon")]
fn times_sigmoid(x: float32x4_t, u: float32x4_t) -> float32x4_t {
    vdivq_f32(x, vaddq_f32(all(1.0), exp(vnegq_f32(u))))
}

pub(super) fn add(acc: &mut [f32], x: &[f32]) {
    assert_eq!(acc.len(), x.len(), "add");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { add_neon(acc, x) }
}

#[target_feature(enable = "neon")]
fn add_neon(acc: &mut [f32], x: &[f32]) {
    zip(acc, x, |acc, x| vaddq_f32(acc, x));
}
