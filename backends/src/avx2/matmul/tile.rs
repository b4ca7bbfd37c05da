//! The inner loops: 16 rows by a few tokens, over all columns.
//!
//! Rows sit one to a lane and columns are walked in order, so the result does not depend on the number of tokens.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use rml_kernels_ref::activation::Q8;

use super::codec::{BLOCK, Codec, Heads, ROWS, Sum};
use super::head::{Head, TokenBlock};

/// Results of 16 rows for `N` tokens.
pub(super) type Acc<const N: usize> = [[__m256; 2]; N];

/// How far ahead of its use a weight is asked for from memory.
const AHEAD: usize = 6 * 1024;

/// Activations of successive tokens, from some column on.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    q: *const i8,
    scale: *const f32,
    scaled_sum: *const f32,
    sum: *const i16,
    k: usize,
}

impl Tokens {
    /// All tokens of `x`, whose rows have `k` columns.
    pub(super) fn new(x: &Q8<'_>, k: usize) -> Self {
        Tokens { q: x.q.as_ptr(), scale: x.scale.as_ptr(), scaled_sum: x.scaled_sum.as_ptr(), sum: x.sum.as_ptr(), k }
    }

    /// From token `t` and block `b` on.
    ///
    /// # Safety
    /// The activations have such a token and block.
    #[inline(always)]
    pub(super) unsafe fn at(self, t: usize, b: usize) -> Self {
        let (k, blocks) = (self.k, self.k / BLOCK);
        // SAFETY: within each of the four arrays, as the caller vouches.
        unsafe {
            Tokens {
                q: self.q.add(t * k + b * BLOCK),
                scale: self.scale.add(t * blocks + b),
                scaled_sum: self.scaled_sum.add(t * blocks + b),
                sum: self.sum.add(2 * (t * blocks + b)),
                k,
            }
        }
    }

    /// Four quants of token `t`, repeated in every dword: columns `4 * group ..` of the first block.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(&self, t: usize, group: usize) -> __m256i {
        // SAFETY: the caller says that the token and block exist, a group is 4 of its 32 bytes.
        _mm256_set1_epi32(unsafe { self.q.add(t * self.k + 4 * group).cast::<i32>().read_unaligned() })
    }

    /// Scale and sums of token `t`'s first block.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(&self, t: usize) -> TokenBlock {
        let i = t * (self.k / BLOCK);
        // SAFETY: the caller says that the token and block exist; a block has two sums.
        unsafe {
            TokenBlock {
                scale: _mm256_set1_ps(*self.scale.add(i)),
                scaled_sum: _mm256_set1_ps(*self.scaled_sum.add(i)),
                sums: _mm256_set1_epi32(self.sum.add(2 * i).cast::<i32>().read_unaligned()),
            }
        }
    }
}

#[inline(always)]
fn opaque(n: usize) -> usize {
    let mut m = n;
    unsafe { std::arch::asm!("/* {0} */", inout(reg) m, options(pure, nomem, nostack, preserves_flags)) };
    m
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fence(v: __m256i) -> __m256i {
    let mut v = v;
    // pure would let the compiler move it
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) v, options(nomem, nostack, preserves_flags)) };
    v
}

/// Integer sums of block `b` of a unit for `N` tokens: of quants as stored, times the widener of the head.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot<C: Codec, const N: usize>(unit: *const u8, b: usize, head: &C::Head, x: Tokens) -> [[__m256i; 2]; N] {
    let mut sum = [[_mm256_setzero_si256(); 2]; N];
    match C::SUM {
        Sum::Pairs(n_pairs) => {
            for first in (0..4).step_by(n_pairs) {
                let mut short = [[_mm256_setzero_si256(); 2]; N];
                for p in first..first + n_pairs {
                    let w = unsafe { [C::pair(unit, b, 0, p), C::pair(unit, b, 1, p)] };
                    for g in 0..2 {
                        for t in 0..N {
                            let a = unsafe { x.group(t, C::groups(p)[g]) };
                            let product = [_mm256_maddubs_epi16(w[0][g], a), _mm256_maddubs_epi16(w[1][g], a)];
                            for half in 0..2 {
                                short[t][half] = fence(if p == first && g == 0 {
                                    product[half]
                                } else {
                                    _mm256_add_epi16(short[t][half], product[half])
                                });
                            }
                        }
                    }
                }
                for t in 0..N {
                    for half in 0..2 {
                        let wide = _mm256_madd_epi16(short[t][half], unsafe { head.widener(half, first / 2) });
                        sum[t][half] = if first == 0 { wide } else { _mm256_add_epi32(sum[t][half], wide) };
                    }
                }
            }
        }
        Sum::Signed => {
            let ones = _mm256_set1_epi16(1);
            let mut p = 0;
            let end = opaque(4);
            while p != end {
                let w = unsafe { [C::pair(unit, b, 0, p), C::pair(unit, b, 1, p)] };
                p += 1;
                let p = p - 1;
                for g in 0..2 {
                    let size = [_mm256_abs_epi8(w[0][g]), _mm256_abs_epi8(w[1][g])];
                    for t in 0..N {
                        let a = unsafe { x.group(t, C::groups(p)[g]) };
                        for half in 0..2 {
                            let product = _mm256_maddubs_epi16(size[half], _mm256_sign_epi8(a, w[half][g]));
                            sum[t][half] = _mm256_add_epi32(sum[t][half], _mm256_madd_epi16(product, ones));
                        }
                    }
                }
            }
        }
    }
    sum
}

/// Adds block `b` of a unit to the results of `N` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn block<C: Codec, const N: usize>(unit: *const u8, b: usize, head: &C::Head, x: Tokens, acc: &mut [[__m256; 2]]) {
    let sum = unsafe { dot::<C, N>(unit, b, head, x) };
    for t in 0..N {
        let token = unsafe { x.block(t) };
        for half in 0..2 {
            acc[t][half] = unsafe { head.finish(half, acc[t][half], sum[t][half], &token) };
        }
    }
}

/// Adds `n_units` units to the results of `A + B` tokens, which are taken in two goes where registers ask for it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn tile<C: Codec, const A: usize, const B: usize, const T: usize, const STREAM: bool>(
    mut unit: *const u8,
    n_units: usize,
    x: Tokens,
    acc: &mut Acc<T>,
) {
    const { assert!(A + B == T) };
    let mut sums = *acc;
    let mut room: Heads<C::Head> = [const { MaybeUninit::uninit() }; _];
    let mut x = x;
    for _ in 0..n_units {
        if STREAM {
            for line in (0..C::UNIT_BYTES).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(unit.wrapping_add(AHEAD + line).cast());
            }
        }
        let heads = unsafe { C::heads(unit, &mut room) };
        for b in 0..C::UNIT {
            let head = unsafe { &*heads.add(b) };
            unsafe { block::<C, A>(unit, b, head, x, &mut sums[..A]) };
            if B > 0 {
                unsafe { block::<C, B>(unit, b, head, x.at(A, 0), &mut sums[A..]) };
            }
            x = unsafe { x.at(0, 1) };
        }
        unit = unsafe { unit.add(C::UNIT_BYTES) };
    }
    *acc = sums;
    let _ = ROWS;
}
