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
use super::vnni;
use crate::panels::Tokens;
use crate::panels::stream::ask_ahead;

/// Adds `n_units` units to the results of `N` tokens, the first `A` and the other `B` in two goes: a go has to fit the
/// registers. With `prefetch` the units are on their way from memory and are asked for beforehand.
///
/// # Safety
/// `units` holds the units; there are `N` tokens with the columns of `n_units`; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn tile<C: Codec, const A: usize, const B: usize, const N: usize>(
    units: *const u8,
    n_units: usize,
    mut x: Tokens,
    prefetch: bool,
    mut acc: Acc<N>,
) -> Acc<N> {
    const { assert!(A + B == N) };
    let mut room: Heads<C::Head> = [const { MaybeUninit::uninit() }; MAX_UNIT];
    for i in 0..n_units {
        let unit = units.wrapping_add(i * C::UNIT_BYTES);
        // SAFETY: the unit is one of those the caller vouches for, and so are the tokens' blocks.
        unsafe {
            let heads = C::heads(unit, &mut room);
            for b in 0..C::UNIT {
                ask_ahead::<_MM_HINT_T0>(unit, C::UNIT_BYTES, C::UNIT, b, prefetch);
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
            Sum::Signed => sum_signed::<C, N>(unit, b, head, x),
            Sum::Dot(offset) => sum_dot::<C, N>(unit, b, head, x, offset),
        };
        for t in 0..N {
            let token = x.block(t);
            for half in 0..2 {
                let sum = match C::SUM {
                    Sum::Dot(_) => sum[t][half],
                    _ => head.less_offset(half, sum[t][half], &token),
                };
                acc[t][half] = head.finish(half, acc[t][half], sum, &token);
            }
        }
    }
}

/// The body for each of the 4 pairs, `P` being a constant: only where loops are unrolled do sums stay in registers.
macro_rules! for_each_pair {
    ($P:ident $body:block) => {{
        for_each_pair!(@0 $P $body);
        for_each_pair!(@1 $P $body);
        for_each_pair!(@2 $P $body);
        for_each_pair!(@3 $P $body);
    }};
    (@$p:literal $P:ident $body:block) => {{
        const $P: usize = $p;
        $body
    }};
}

/// Sums of products with unsigned quants, in 16 bits for `n_pairs` pairs and then widened as the head says.
///
/// # Safety
/// As for [`tile`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sum_pairs<C: Codec, const N: usize>(unit: *const u8, b: usize, head: &C::Head, x: Tokens, n_pairs: usize) -> [[__m256i; 2]; N] {
    let mut short = [[_mm256_setzero_si256(); 2]; N];
    let mut sum = [[_mm256_setzero_si256(); 2]; N];
    for_each_pair!(P {
        let (first, last) = (P.is_multiple_of(n_pairs), (P + 1).is_multiple_of(n_pairs));
        // SAFETY: the caller's.
        let w = unsafe { [C::pair(unit, b, 0, P), C::pair(unit, b, 1, P)] };
        for g in 0..2 {
            for t in 0..N {
                // SAFETY: the caller's.
                let a = unsafe { x.group(t, C::groups(P)[g]) };
                let product = [_mm256_maddubs_epi16(w[0][g], a), _mm256_maddubs_epi16(w[1][g], a)];
                for half in 0..2 {
                    let added = if first && g == 0 { product[half] } else { _mm256_add_epi16(short[t][half], product[half]) };
                    short[t][half] = in_order(added);
                }
            }
        }
        if last {
            for t in 0..N {
                for half in 0..2 {
                    // SAFETY: the caller's; the pairs lie in the half `P / 2` of the columns where the widener asks for it.
                    let wide = _mm256_madd_epi16(short[t][half], unsafe { head.widener(half, P / 2) });
                    sum[t][half] = if P < n_pairs { wide } else { _mm256_add_epi32(sum[t][half], wide) };
                }
            }
        }
    });
    sum
}

/// Sums of products with signed quants, widened as the head says: magnitudes are multiplied with activations that take over the
/// sign.
///
/// # Safety
/// As for [`tile`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sum_signed<C: Codec, const N: usize>(unit: *const u8, b: usize, head: &C::Head, x: Tokens) -> [[__m256i; 2]; N] {
    let mut sum = [[_mm256_setzero_si256(); 2]; N];
    for_each_pair!(P {
        // SAFETY: the caller's.
        let w = unsafe { [C::pair(unit, b, 0, P), C::pair(unit, b, 1, P)] };
        for g in 0..2 {
            let size = [_mm256_abs_epi8(w[0][g]), _mm256_abs_epi8(w[1][g])];
            for t in 0..N {
                // SAFETY: the caller's.
                let a = unsafe { x.group(t, C::groups(P)[g]) };
                for half in 0..2 {
                    // At most 2 * 128 * 127, which 16 bits hold.
                    let product = _mm256_maddubs_epi16(size[half], _mm256_sign_epi8(a, w[half][g]));
                    // SAFETY: the caller's; the pairs lie in the half `P / 2` of the columns where the widener asks for it.
                    let wide = _mm256_madd_epi16(product, unsafe { head.widener(half, P / 2) });
                    sum[t][half] = in_order(if P == 0 && g == 0 { wide } else { _mm256_add_epi32(sum[t][half], wide) });
                }
            }
        }
    });
    sum
}

/// Sums of products by dot products of bytes, those of the first 16 columns times their whole scales where they have some.
///
/// # Safety
/// As for [`tile`]; the CPU has AVX-VNNI.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sum_dot<C: Codec, const N: usize>(unit: *const u8, b: usize, head: &C::Head, x: Tokens, offset: i16) -> [[__m256i; 2]; N] {
    let mut sum = [[_mm256_setzero_si256(); 2]; N];
    let mut weighed = sum;
    for_each_pair!(P {
        let columns = P / 2; // in a grouped format
        if P == 0 || C::Head::GROUPED && P == 2 {
            for t in 0..N {
                weighed[t] = sum[t];
                // SAFETY: the caller's.
                sum[t] = [unsafe { vnni::seed::<C::Head>(&x.block(t), columns, offset) }; 2];
            }
        }
        // SAFETY: the caller's.
        let w = unsafe { [C::pair(unit, b, 0, P), C::pair(unit, b, 1, P)] };
        for g in 0..2 {
            for t in 0..N {
                // SAFETY: the caller's.
                unsafe {
                    let a = x.group(t, C::groups(P)[g]);
                    for half in 0..2 {
                        sum[t][half] = vnni::dot(sum[t][half], w[half][g], a);
                    }
                }
            }
        }
        if C::Head::GROUPED && P % 2 == 1 {
            for t in 0..N {
                for half in 0..2 {
                    // Each lane has the scale twice, 16 bits each.
                    // SAFETY: the caller's.
                    let scale = _mm256_srai_epi32::<16>(unsafe { head.widener(half, columns) });
                    let product = _mm256_mullo_epi32(sum[t][half], scale);
                    sum[t][half] = if P == 1 { product } else { _mm256_add_epi32(weighed[t][half], product) };
                }
            }
        }
    });
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
