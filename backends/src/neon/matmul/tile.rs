//! The inner loops: quads of rows by a few tokens, over all columns.
//!
//! Rows sit one to a lane and columns are walked in order, so a result does not depend on what is computed beside it.

#![allow(clippy::needless_range_loop, reason = "tokens and quads index several arrays at once")]

use std::arch::aarch64::*;

use super::multiply::{Multiply, TokenQuants};
use super::results::Acc;
use super::scales::{Scales, TokenBlock};
use super::source::Source;
use crate::panels::{BLOCK, Tokens};

/// The body for each quad below `$n`, `$q` being a constant: only where loops are unrolled do results stay in registers.
macro_rules! for_each_quad {
    ($q:ident < $n:ident $body:block) => {{
        for_each_quad!(@0 $q < $n $body);
        for_each_quad!(@1 $q < $n $body);
        for_each_quad!(@2 $q < $n $body);
        for_each_quad!(@3 $q < $n $body);
    }};
    (@$i:literal $q:ident < $n:ident $body:block) => {
        if $i < $n {
            const $q: usize = $i;
            $body
        }
    };
}

/// Adds `n_units` units to the results of `Q` quads from `first` on and of `N` tokens.
///
/// # Safety
/// `units` holds the units; the tokens have the columns of `n_units`; `first + Q <= 4`; the multiplication is installed.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn tile<C: Source, M: Multiply, const ARRANGED: bool, const N: usize, const Q: usize>(
    units: *const u8,
    n_units: usize,
    first: usize,
    x: &[Tokens; N],
    mut acc: Acc<N, Q>,
) -> Acc<N, Q> {
    const { assert!(N <= 4 && Q <= 4) };
    for i in 0..n_units {
        let unit = units.wrapping_add(i * C::BYTES);
        for b in 0..C::BLOCKS {
            // SAFETY: the unit is one of those the caller vouches for, and so are the tokens' blocks.
            unsafe {
                let (quants, token) = load::<C::Scales, M, N>(x, i * C::BLOCKS + b);
                for_each_quad!(QUAD < Q {
                    let w = C::quants(unit, b, first + QUAD);
                    let w = if ARRANGED { w } else { M::weights(w) };
                    let sums = sums::<C::Scales, M, N>(&w, &quants, &token);
                    let scales = C::scales(unit, b, first + QUAD);
                    for t in 0..N {
                        let sum = if halves::<C::Scales, N>() { scales.join(sums[0][t], sums[1][t]) } else { sums[0][t] };
                        acc[QUAD][t] = scales.finish(acc[QUAD][t], sum, &token, t);
                    }
                });
            }
        }
    }
    acc
}

/// Whether sums are taken by halves of the columns: for their scales' sake, or to have two chains for a lone token.
const fn halves<S: Scales, const N: usize>() -> bool {
    S::GROUPED || N == 1
}

/// Sums of products of a block, by halves or both in the first.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn sums<S: Scales, M: Multiply, const N: usize>(w: &[int8x16_t; 8], x: &TokenQuants<N>, token: &TokenBlock) -> [[int32x4_t; N]; 2] {
    // Seeds, so that a stored offset needs no instruction of its own.
    let seed = |sums| if S::OFFSET != 0 { vmulq_n_s32(sums, -S::OFFSET) } else { vdupq_n_s32(0) };
    // SAFETY: the caller's.
    unsafe {
        if halves::<S, N>() {
            let low = M::add(w, x, 0, M::seed(seed(token.sums[0])));
            let high = M::add(w, x, 1, M::seed(seed(token.sums[1])));
            [M::by_token(low), M::by_token(high)]
        } else {
            let start = M::seed(seed(vaddq_s32(token.sums[0], token.sums[1])));
            let both = M::add(w, x, 1, M::add(w, x, 0, start));
            [M::by_token(both), [vdupq_n_s32(0); N]]
        }
    }
}

/// Block `b` of `N` tokens: its quants as the multiplication takes them, and the rest.
///
/// # Safety
/// The tokens have that block.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load<S: Scales, M: Multiply, const N: usize>(x: &[Tokens; N], b: usize) -> (TokenQuants<N>, TokenBlock) {
    let mut quants = [[vdupq_n_s8(0); 2]; N];
    let (mut scale, mut scaled_sum, mut sums) = ([0.0_f32; 4], [0.0_f32; 4], [0_i32; 4]);
    for t in 0..N {
        // SAFETY: a block has 32 quants, one scale, one scaled sum and two sums.
        unsafe {
            let q = x[t].q.add(b * BLOCK);
            quants[t] = [vld1q_s8(q), vld1q_s8(q.add(16))];
            scale[t] = *x[t].scale.add(b);
            if S::MIN {
                scaled_sum[t] = *x[t].scaled_sum.add(b);
            }
            if S::SUMS {
                sums[t] = x[t].sum.add(2 * b).cast::<i32>().read_unaligned();
            }
        }
    }
    // SAFETY: 4 numbers each; the multiplication is the caller's.
    unsafe {
        let both = vld1q_s32(sums.as_ptr()); // the sum of the first half in the lower 16 bits
        let sums = [vshrq_n_s32::<16>(vshlq_n_s32::<16>(both)), vshrq_n_s32::<16>(both)];
        let token = TokenBlock { scale: vld1q_f32(scale.as_ptr()), scaled_sum: vld1q_f32(scaled_sum.as_ptr()), sums };
        (M::tokens(quants), token)
    }
}
