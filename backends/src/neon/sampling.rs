//! What sampling asks of the vocabulary.

use std::arch::aarch64::*;

use rml_kernels_ref::sampling::{BLOCK, FIXED_SHIFT};

use super::exp::exp;
use super::lanes::{WIDTH, all, larger, largest, load, load_tail, store, store_tail};

pub(super) fn block_max(x: &[f32], out: &mut [f32]) -> bool {
    assert_eq!(out.len(), x.len().div_ceil(BLOCK), "a maximum for each block");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { block_max_neon(x, out) }
}

#[target_feature(enable = "neon")]
fn block_max_neon(x: &[f32], out: &mut [f32]) -> bool {
    let (whole, tail) = x.as_chunks::<BLOCK>();
    let mut magnitude = vdupq_n_u32(0);
    for (x, out) in whole.iter().zip(&mut *out) {
        *out = max_of(x, &mut magnitude);
    }
    if let ([first, ..], Some(out)) = (tail, out.last_mut()) {
        // Filled up with a number of its own, which changes neither answer.
        let mut padded = [*first; BLOCK];
        padded[..tail.len()].copy_from_slice(tail);
        *out = max_of(&padded, &mut magnitude);
    }
    vmaxvq_u32(magnitude) < f32::INFINITY.to_bits()
}

/// The largest of a block; its largest magnitude goes into `magnitude`, by the bits, which order infinity and NaN last.
#[inline]
#[target_feature(enable = "neon")]
fn max_of(block: &[f32; BLOCK], magnitude: &mut uint32x4_t) -> f32 {
    let mut max = [all(f32::NEG_INFINITY); 4];
    for (i, x) in block.as_chunks::<WIDTH>().0.iter().enumerate() {
        let x = load(x);
        max[i % 4] = larger(x, max[i % 4]);
        *magnitude = vmaxq_u32(*magnitude, vreinterpretq_u32_f32(vabsq_f32(x)));
    }
    // Where both zeros meet, either may come out; the sum is the positive one.
    largest(larger(larger(max[0], max[1]), larger(max[2], max[3]))) + 0.0
}

pub(super) fn at_least(x: &[f32], threshold: f32, out: &mut [u32]) -> usize {
    assert!(out.len() >= x.len(), "room for every index");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { at_least_neon(x, threshold, out) }
}

#[target_feature(enable = "neon")]
fn at_least_neon(x: &[f32], threshold: f32, out: &mut [u32]) -> usize {
    let limit = all(threshold);
    let mut n_found = 0;
    for (i, x) in x.chunks(4 * WIDTH).enumerate() {
        // Most stretches hold none, and are left at a glance.
        if let Some(whole) = x.first_chunk::<{ 4 * WIDTH }>() {
            let (a, b) = (vcgeq_f32(load(whole), limit), vcgeq_f32(load(&whole[4..]), limit));
            let (c, d) = (vcgeq_f32(load(&whole[8..]), limit), vcgeq_f32(load(&whole[12..]), limit));
            // Counted, as what is merely joined the compiler takes apart: it compares a maximum, which a signaling NaN wins.
            if vaddvq_u32(vaddq_u32(vaddq_u32(a, b), vaddq_u32(c, d))) == 0 {
                continue;
            }
        }
        for (j, &x) in x.iter().enumerate() {
            if x >= threshold {
                out[n_found] = (i * 4 * WIDTH + j) as u32;
                n_found += 1;
            }
        }
    }
    n_found
}

pub(super) fn exp_weights(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "a weight for each logit");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { exp_weights_neon(x, best, sharpness, out) }
}

#[target_feature(enable = "neon")]
fn exp_weights_neon(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]) {
    let (best, sharpness) = (all(best), all(sharpness));
    let weight = |x| exp(vmulq_f32(vsubq_f32(x, best), sharpness));
    let ((x, x_tail), (out, out_tail)) = (x.as_chunks::<WIDTH>(), out.as_chunks_mut::<WIDTH>());
    for (x, out) in x.iter().zip(out) {
        store(weight(load(x)), out);
    }
    if !x_tail.is_empty() {
        store_tail(weight(load_tail(x_tail)), out_tail);
    }
}

pub(super) fn weight_sum(x: &[f32], scale: f32) -> u64 {
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { weight_sum_neon(x, scale) }
}

#[target_feature(enable = "neon")]
fn weight_sum_neon(x: &[f32], scale: f32) -> u64 {
    let shift = vdupq_n_f64(FIXED_SHIFT);
    let bits = |x| vreinterpretq_u64_f64(vaddq_f64(x, shift));
    let mut sums = [vdupq_n_u64(0); 2]; // of the bits of weight + FIXED_SHIFT
    let (whole, tail) = x.as_chunks::<WIDTH>();
    for x in whole {
        let x = vmulq_n_f32(load(x), scale);
        sums[0] = vaddq_u64(sums[0], bits(vcvt_f64_f32(vget_low_f32(x))));
        sums[1] = vaddq_u64(sums[1], bits(vcvt_high_f64_f32(x)));
    }
    let sum = vaddvq_u64(vaddq_u64(sums[0], sums[1]));
    // The bits of FIXED_SHIFT were added once for each number.
    let whole_sum = sum.wrapping_sub(FIXED_SHIFT.to_bits().wrapping_mul((whole.len() * WIDTH) as u64));
    whole_sum.wrapping_add(rml_kernels_ref::sampling::weight_sum(tail, scale))
}
