//! Gated activations and the residual addition.

use std::arch::aarch64::*;

use rml_kernels_ref::gate::{LIMIT, STEEPNESS};

use super::exp::exp;
use super::lanes::{all, map, zip};

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

pub(super) fn limited_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "limited_mul");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { limited_mul_neon(gate, up) }
}

#[target_feature(enable = "neon")]
fn limited_mul_neon(gate: &mut [f32], up: &[f32]) {
    zip(gate, up, |x, up| {
        // What is no number stays so.
        let x = vminq_f32(x, all(LIMIT));
        let up = vmaxq_f32(vminq_f32(up, all(LIMIT)), all(-LIMIT));
        vmulq_f32(times_sigmoid(x, vmulq_f32(x, all(STEEPNESS))), vaddq_f32(up, all(1.0)))
    });
}

pub(super) fn soft_cap(x: &mut [f32], cap: f32) {
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { soft_cap_neon(x, cap) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn soft_cap_neon(x: &mut [f32], cap: f32) {
    let (slope, twice) = (all(2.0 / cap), all(2.0 * cap));
    map(x, |x| vsubq_f32(all(cap), vdivq_f32(twice, vaddq_f32(all(1.0), exp(vmulq_f32(x, slope))))));
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
