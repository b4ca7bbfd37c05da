//! The inner loops: 16 rows by a few tokens, over all columns.
//!
//! Rows sit one to a lane and columns are walked in order, so a result does not depend on what is computed beside it.

#![allow(clippy::needless_range_loop, reason = "tokens, halves and groups index several arrays at once")]

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::codec::{Codec, Heads, MAX_UNIT, Sum};
use super::head::Head;
use super::results::Acc;
use super::tokens::Tokens;

/// How far ahead of its use a weight is asked for from memory.
const AHEAD: usize = 6 * 1024;

/// Adds `n_units` units to the results of `N` tokens, the first `A` and the other `B` in two goes: a go has to fit the
/// registers. With `STREAM` the units are on their way from memory.
///
/// # Safety
/// `units` holds the units; there are `N` tokens with the columns of `n_units`; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn tile<C: Codec, const A: usize, const B: usize, const N: usize, const STREAM: bool>(
    units: *const u8,
    n_units: usize,
    mut x: Tokens,
    mut acc: Acc<N>,
) -> Acc<N> {
    const { assert!(A + B == N) };
    let mut room: Heads<C::Head> = [const { MaybeUninit::uninit() }; MAX_UNIT];
    for i in 0..n_units {
        let unit = units.wrapping_add(i * C::UNIT_BYTES);
        if STREAM {
            for line in (0..C::UNIT_BYTES).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(unit.wrapping_add(AHEAD + line).cast());
            }
        }
        // SAFETY: the unit is one of those the caller vouches for, and so are the tokens' blocks.
        unsafe {
            let heads = C::heads(unit, &mut room);
            for b in 0..C::UNIT {
                add_block::<C, A>(unit, b, &*heads.add(b), x, &mut acc[..A]);
                if B > 0 {
                    add_block::<C, B>(unit, b, &*heads.add(b), x.at(A, 0), &mut acc[A..]);
                }
                x = x.at(0, 1);
            }
        }
    }
    acc
}

/// Adds block `b` of a unit to the results of `N` tokens.
///
/// # Safety
/// As for [`tile`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_block<C: Codec, const N: usize>(unit: *const u8, b: usize, head: &C::Head, x: Tokens, acc: &mut [[__m256; 2]]) {
    // SAFETY: the caller's.
    unsafe {
        let sum = match C::SUM {
            Sum::Pairs(n_pairs) => sum_pairs::<C, N>(unit, b, head, x, n_pairs),
            Sum::Signed => sum_signed::<C, N>(unit, b, x),
        };
        for t in 0..N {
            let token = x.block(t);
            for half in 0..2 {
                acc[t][half] = head.finish(half, acc[t][half], sum[t][half], &token);
            }
        }
    }
}

/// Sums of products with unsigned quants, in 16 bits for `n_pairs` pairs and then widened as the head says.
///
/// # Safety
/// As for [`tile`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sum_pairs<C: Codec, const N: usize>(unit: *const u8, b: usize, head: &C::Head, x: Tokens, n_pairs: usize) -> [[__m256i; 2]; N] {
    let mut sum = [[_mm256_setzero_si256(); 2]; N];
    for first in (0..4).step_by(n_pairs) {
        let mut short = [[_mm256_setzero_si256(); 2]; N];
        for p in first..first + n_pairs {
            // SAFETY: the caller's.
            let w = unsafe { [C::pair(unit, b, 0, p), C::pair(unit, b, 1, p)] };
            for g in 0..2 {
                for t in 0..N {
                    // SAFETY: the caller's.
                    let a = unsafe { x.group(t, C::groups(p)[g]) };
                    let product = [_mm256_maddubs_epi16(w[0][g], a), _mm256_maddubs_epi16(w[1][g], a)];
                    for half in 0..2 {
                        let start = p == first && g == 0;
                        short[t][half] = in_order(if start { product[half] } else { _mm256_add_epi16(short[t][half], product[half]) });
                    }
                }
            }
        }
        for t in 0..N {
            for half in 0..2 {
                // SAFETY: the caller's; pair `first` lies in the half `first / 2` of the columns.
                let wide = _mm256_madd_epi16(short[t][half], unsafe { head.widener(half, first / 2) });
                sum[t][half] = if first == 0 { wide } else { _mm256_add_epi32(sum[t][half], wide) };
            }
        }
    }
    sum
}

/// Sums of products with signed quants: magnitudes are multiplied with activations that take over the sign.
///
/// # Safety
/// As for [`tile`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sum_signed<C: Codec, const N: usize>(unit: *const u8, b: usize, x: Tokens) -> [[__m256i; 2]; N] {
    let ones = _mm256_set1_epi16(1);
    let mut sum = [[_mm256_setzero_si256(); 2]; N];
    for p in 0..4 {
        // SAFETY: the caller's.
        let w = unsafe { [C::pair(unit, b, 0, p), C::pair(unit, b, 1, p)] };
        for g in 0..2 {
            let size = [_mm256_abs_epi8(w[0][g]), _mm256_abs_epi8(w[1][g])];
            for t in 0..N {
                // SAFETY: the caller's.
                let a = unsafe { x.group(t, C::groups(p)[g]) };
                for half in 0..2 {
                    // At most 2 * 128 * 127, which 16 bits hold.
                    let product = _mm256_maddubs_epi16(size[half], _mm256_sign_epi8(a, w[half][g]));
                    sum[t][half] = in_order(_mm256_add_epi32(sum[t][half], _mm256_madd_epi16(product, ones)));
                }
            }
        }
    }
    sum
}

/// Holds the compiler to the order in which sums are written. Left alone it balances them into trees, which need more
/// registers than there are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn in_order(mut v: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(ymm_reg) v, options(nomem, nostack, preserves_flags)) };
    v
}
