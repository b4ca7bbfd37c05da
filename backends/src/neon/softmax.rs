//! Softmax.

use std::arch::aarch64::*;

use super::exp::exp;
use super::lanes::{QUADS, all, fold, larger, largest, map, reduce};

pub(super) fn softmax(x: &mut [f32]) {
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { softmax_neon(x) }
}

#[target_feature(enable = "neon")]
fn softmax_neon(x: &mut [f32]) {
    // The zeros that fill a row's end must not count, so the maximum is taken of whole registers and then of the rest.
    let (whole, tail) = x.as_chunks::<16>();
    let l = fold(whole.as_flattened(), [all(f32::NEG_INFINITY); QUADS], |max, x| larger(x, max));
    let max = largest(larger(larger(l[0], l[1]), larger(l[2], l[3])));
    let max = all(tail.iter().fold(max, |m, &x| if x > m { x } else { m }));
    map(x, |x| exp(vsubq_f32(x, max)));
    let sum = reduce(fold(x, [all(0.0); QUADS], |acc, x| vaddq_f32(acc, x)));
    let inv = all(1.0 / sum);
    map(x, |x| vmulq_f32(x, inv));
}
