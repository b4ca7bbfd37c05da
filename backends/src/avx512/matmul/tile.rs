//! The inner loop: 16 rows by a few tokens, over a stretch of columns.
//!
//! Rows sit one to a lane and columns are walked in order, so a result does not depend on what is computed beside it.

#![allow(clippy::needless_range_loop, reason = "tokens and groups index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::scales::Scales;
use super::source::Source;
use super::stage::Stage;
use crate::panels::Tokens;
use crate::panels::stream::ask_ahead;

/// Adds `n_units` units to the results of `N` tokens, at most 8: results, sums and a vector of weights fill the registers.
/// With `prefetch` the units are on their way from memory and are asked for beforehand.
///
/// # Safety
/// `units` holds the units; there are `N` tokens with their columns, and `stage` is filled with them; the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn tile<C: Source, const N: usize>(
    units: *const u8,
    n_units: usize,
    x: Tokens,
    stage: &MaybeUninit<Stage<N>>,
    prefetch: bool,
    mut acc: [__m512; N],
) -> [__m512; N] {
    let mut x = x;
    for i in 0..n_units {
        let unit = units.wrapping_add(i * C::BYTES);
        for b in 0..C::BLOCKS {
            ask_ahead::<_MM_HINT_T1>(unit, C::BYTES, C::BLOCKS, b, prefetch);
            // SAFETY: the unit is one of those the caller vouches for, and so are the tokens' blocks.
            unsafe {
                let block = |t| Stage::block::<C::Scales>(stage, t, i * C::BLOCKS + b);
                let mut sum = [_mm512_setzero_si512(); N];
                for t in 0..N {
                    sum[t] = C::Scales::start(0, block(t).whole);
                }
                for group in 0..4 {
                    add_group::<N>(C::quants(unit, b, group), group, x, &mut sum);
                }
                let scales = C::scales(unit, b);
                let mut weighed = sum;
                if C::Scales::HALVED {
                    for t in 0..N {
                        weighed[t] = scales.weigh(sum[t]);
                        sum[t] = C::Scales::start(1, block(t).whole);
                    }
                }
                for group in 4..8 {
                    add_group::<N>(C::quants(unit, b, group), group, x, &mut sum);
                }
                for t in 0..N {
                    acc[t] = scales.finish(acc[t], weighed[t], sum[t], block(t));
                }
            }
            x = x.at(0, 1);
        }
    }
    acc
}

/// Adds the products of 4 columns.
///
/// # Safety
/// There are `N` tokens with a block; `group < 8`; the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn add_group<const N: usize>(quants: __m512i, group: usize, x: Tokens, sum: &mut [__m512i; N]) {
    for t in 0..N {
        // SAFETY: 4 of the 32 bytes of the token's block.
        let columns = unsafe { x.q.add(t * x.k + 4 * group).cast::<i32>().read_unaligned() };
        sum[t] = _mm512_dpbusd_epi32(sum[t], quants, _mm512_set1_epi32(columns));
    }
}
