//! Three ways to multiply 4 rows by 32 columns of bytes with a few tokens: exact, so they yield the same sums.
//!
//! Sums of `N` tokens stand in `N` registers, in an order of their own until [`Multiply::by_token`]. `sdot` and `smmla` name
//! their extension, so that they assemble in functions for any CPU; who hands them out has seen that it is there.

#![allow(clippy::needless_range_loop, reason = "tokens and groups index several arrays at once")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::bits::Quants;

/// A block of 32 columns of `N` tokens.
pub(super) type TokenQuants<const N: usize> = [[int8x16_t; 2]; N];

/// A way to multiply.
pub(super) trait Multiply: 'static {
    /// What a lone token is multiplied with.
    type Alone: Multiply;
    /// Whether tokens come in pairs, `N` being even.
    const PAIRED: bool = false;

    /// Weights as [`add`](Self::add) takes them.
    ///
    /// # Safety
    /// Installed, here and below.
    unsafe fn weights(w: Quants) -> Quants;

    /// Tokens as [`add`](Self::add) takes them.
    unsafe fn tokens<const N: usize>(x: TokenQuants<N>) -> TokenQuants<N>;

    /// Sums of all rows that start from what each token has in its lane.
    unsafe fn seed<const N: usize>(seed: int32x4_t) -> [int32x4_t; N];

    /// Adds the products of columns `16 half ..` to the sums.
    unsafe fn add<const N: usize>(w: &Quants, x: &TokenQuants<N>, half: usize, sums: [int32x4_t; N]) -> [int32x4_t; N];

    /// The sums of the 4 rows, a register for each token.
    unsafe fn by_token<const N: usize>(sums: [int32x4_t; N]) -> [int32x4_t; N];
}

/// With `sdot`: 4 columns of 4 rows.
pub(super) enum Dot {}

/// With `smmla`: 8 columns of 2 rows and 2 tokens.
pub(super) enum Matrix {}

/// With widening multiplications: 4 columns of 2 rows.
pub(super) enum Widening {}

/// `acc` plus, for each of 4 rows, the products of its 4 columns with columns `4 LANE ..` of `x`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn sdot<const LANE: i32>(mut acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: within registers; the caller vouches for the instruction.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {acc:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
            acc = inout(vreg) acc, w = in(vreg) w, x = in(vreg) x, lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// `acc` plus the products of 8 columns of two rows with those of two tokens, row by row.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn smmla(mut acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: within registers; the caller vouches for the instruction.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "smmla {acc:v}.4s, {w:v}.16b, {x:v}.16b",
            acc = inout(vreg) acc, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// Lane `t` in every lane; a constant once loops are unrolled.
#[inline]
#[target_feature(enable = "neon")]
fn lane(v: int32x4_t, t: usize) -> int32x4_t {
    match t {
        0 => vdupq_laneq_s32::<0>(v),
        1 => vdupq_laneq_s32::<1>(v),
        2 => vdupq_laneq_s32::<2>(v),
        _ => vdupq_laneq_s32::<3>(v),
    }
}

/// A seed for each token, in its register.
#[inline]
#[target_feature(enable = "neon")]
fn seed_by_token<const N: usize>(seed: int32x4_t) -> [int32x4_t; N] {
    let mut sums = [vdupq_n_s32(0); N];
    for t in 0..N {
        sums[t] = lane(seed, t);
    }
    sums
}

impl Multiply for Dot {
    type Alone = Dot;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn weights(w: Quants) -> Quants {
        w
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn tokens<const N: usize>(x: TokenQuants<N>) -> TokenQuants<N> {
        x
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn seed<const N: usize>(seed: int32x4_t) -> [int32x4_t; N] {
        seed_by_token(seed)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn add<const N: usize>(w: &Quants, x: &TokenQuants<N>, half: usize, mut sums: [int32x4_t; N]) -> [int32x4_t; N] {
        // Token by token within a group, so that no sum waits for the one before it.
        // SAFETY: the caller's.
        unsafe {
            for t in 0..N {
                sums[t] = sdot::<0>(sums[t], w[4 * half], x[t][half]);
            }
            for t in 0..N {
                sums[t] = sdot::<1>(sums[t], w[4 * half + 1], x[t][half]);
            }
            for t in 0..N {
                sums[t] = sdot::<2>(sums[t], w[4 * half + 2], x[t][half]);
            }
            for t in 0..N {
                sums[t] = sdot::<3>(sums[t], w[4 * half + 3], x[t][half]);
            }
        }
        sums
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn by_token<const N: usize>(sums: [int32x4_t; N]) -> [int32x4_t; N] {
        sums
    }
}

impl Multiply for Matrix {
    type Alone = Dot;
    const PAIRED: bool = true;

    /// Groups `2 i` and `2 i + 1` side by side: 8 columns of the first two rows, then of the last two.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn weights(mut w: Quants) -> Quants {
        for i in 0..4 {
            let (a, b) = (vreinterpretq_s32_s8(w[2 * i]), vreinterpretq_s32_s8(w[2 * i + 1]));
            (w[2 * i], w[2 * i + 1]) = (vreinterpretq_s8_s32(vzip1q_s32(a, b)), vreinterpretq_s8_s32(vzip2q_s32(a, b)));
        }
        w
    }

    /// For each pair of tokens, the first 16 columns of both, 8 and 8, and then the last 16.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn tokens<const N: usize>(mut x: TokenQuants<N>) -> TokenQuants<N> {
        for p in 0..N / 2 {
            let [a, b] = [x[2 * p], x[2 * p + 1]];
            for half in 0..2 {
                let (a, b) = (vreinterpretq_s64_s8(a[half]), vreinterpretq_s64_s8(b[half]));
                x[2 * p + half] = [vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))];
            }
        }
        x
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn seed<const N: usize>(seed: int32x4_t) -> [int32x4_t; N] {
        let pairs = vreinterpretq_s64_s32(seed);
        let mut sums = [vdupq_n_s32(0); N];
        for t in 0..N {
            let pair = if t < 2 { vdupq_laneq_s64::<0>(pairs) } else { vdupq_laneq_s64::<1>(pairs) };
            sums[t] = vreinterpretq_s32_s64(pair);
        }
        sums
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn add<const N: usize>(w: &Quants, x: &TokenQuants<N>, half: usize, mut sums: [int32x4_t; N]) -> [int32x4_t; N] {
        for i in 0..2 {
            for p in 0..N / 2 {
                let x = x[2 * p + half][i];
                // SAFETY: the caller's.
                unsafe {
                    sums[2 * p] = smmla(sums[2 * p], w[4 * half + 2 * i], x);
                    sums[2 * p + 1] = smmla(sums[2 * p + 1], w[4 * half + 2 * i + 1], x);
                }
            }
        }
        sums
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn by_token<const N: usize>(mut sums: [int32x4_t; N]) -> [int32x4_t; N] {
        for p in 0..N / 2 {
            let (a, b) = (sums[2 * p], sums[2 * p + 1]);
            (sums[2 * p], sums[2 * p + 1]) = (vuzp1q_s32(a, b), vuzp2q_s32(a, b));
        }
        sums
    }
}

impl Multiply for Widening {
    type Alone = Widening;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn weights(w: Quants) -> Quants {
        w
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn tokens<const N: usize>(x: TokenQuants<N>) -> TokenQuants<N> {
        x
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn seed<const N: usize>(seed: int32x4_t) -> [int32x4_t; N] {
        seed_by_token(seed)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn add<const N: usize>(w: &Quants, x: &TokenQuants<N>, half: usize, mut sums: [int32x4_t; N]) -> [int32x4_t; N] {
        for t in 0..N {
            let x = vreinterpretq_s32_s8(x[t][half]);
            let mut rows = [vdupq_n_s32(0); 2];
            for i in 0..2 {
                let x = [vreinterpretq_s8_s32(lane(x, 2 * i)), vreinterpretq_s8_s32(lane(x, 2 * i + 1))];
                let w = [w[4 * half + 2 * i], w[4 * half + 2 * i + 1]];
                // At most 2 * 128 * 127, which 16 bits hold.
                let low = vmlal_s8(vmull_s8(vget_low_s8(w[0]), vget_low_s8(x[0])), vget_low_s8(w[1]), vget_low_s8(x[1]));
                let high = vmlal_high_s8(vmull_high_s8(w[0], x[0]), w[1], x[1]);
                rows = [vpadalq_s16(rows[0], low), vpadalq_s16(rows[1], high)];
            }
            sums[t] = vaddq_s32(sums[t], vpaddq_s32(rows[0], rows[1]));
        }
        sums
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn by_token<const N: usize>(sums: [int32x4_t; N]) -> [int32x4_t; N] {
        sums
    }
}
