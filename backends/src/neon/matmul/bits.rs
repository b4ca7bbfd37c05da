//! Quants of a few bits unpacked: the 8 groups of a block, for the 4 rows of a quad.

#![allow(clippy::needless_range_loop, reason = "groups, vectors and nibbles index several arrays at once")]

use std::arch::aarch64::*;

use crate::panels::{ROWS, VECTOR};

/// A block's quants of 4 rows: 4 columns of each, by group.
pub(super) type Quants = [int8x16_t; 8];

/// The bytes of a quad in vector `i`.
///
/// # Safety
/// `vectors` holds more than `i` vectors; `quad < 4`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load(vectors: *const u8, quad: usize, i: usize) -> uint8x16_t {
    // SAFETY: 16 bytes of the vector.
    unsafe { vld1q_u8(vectors.add(VECTOR * i + 16 * quad)) }
}

/// Bytes as they are.
///
/// # Safety
/// As for [`load`], with 8 vectors.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn bytes(vectors: *const u8, quad: usize) -> Quants {
    let mut q = [vdupq_n_s8(0); 8];
    for g in 0..8 {
        // SAFETY: the caller's.
        q[g] = vreinterpretq_s8_u8(unsafe { load(vectors, quad, g) });
    }
    q
}

/// Nibbles, vector `p` being `groups(p)`.
///
/// # Safety
/// As for [`load`], with 4 vectors.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn nibbles(vectors: *const u8, quad: usize, groups: fn(usize) -> [usize; 2]) -> Quants {
    let mut q = [vdupq_n_s8(0); 8];
    for p in 0..4 {
        // SAFETY: the caller's.
        let v = unsafe { load(vectors, quad, p) };
        let [low, high] = groups(p);
        q[low] = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
        q[high] = vreinterpretq_s8_u8(vshrq_n_u8::<4>(v));
    }
    q
}

/// Two bits, moved to bit `to`.
///
/// # Safety
/// As for [`load`], with 2 vectors.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn two_bits(vectors: *const u8, quad: usize, to: usize) -> Quants {
    let mut q = [vdupq_n_s8(0); 8];
    for g in 0..8 {
        // SAFETY: the caller's.
        q[g] = at(unsafe { load(vectors, quad, g / 4) }, 2 * (g % 4), to, 3);
    }
    q
}

/// `q` with a bit more, at bit `to`.
///
/// # Safety
/// As for [`load`], with 1 vector.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn with_bit(mut q: Quants, vector: *const u8, quad: usize, to: usize) -> Quants {
    // SAFETY: the caller's.
    let bits = unsafe { load(vector, quad, 0) };
    for g in 0..8 {
        q[g] = vorrq_s8(q[g], at(bits, g, to, 1));
    }
    q
}

/// The bits of both.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn with_bits(mut q: Quants, more: Quants) -> Quants {
    for g in 0..8 {
        q[g] = vorrq_s8(q[g], more[g]);
    }
    q
}

/// The bits `mask << from` of every byte, moved to bit `to`. Counts are constants once loops are unrolled.
#[inline]
#[target_feature(enable = "neon")]
fn at(v: uint8x16_t, from: usize, to: usize, mask: u8) -> int8x16_t {
    let moved = vshlq_u8(v, vdupq_n_s8(to as i8 - from as i8));
    vreinterpretq_s8_u8(vandq_u8(moved, vdupq_n_u8(mask << to)))
}

/// The bits `mask << from` of byte `i` of the 4 rows of a quad, moved to bit `to`, as whole numbers.
///
/// # Safety
/// `bytes` holds more than `i` times 16 bytes; `quad < 4`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn part(bytes: *const u8, quad: usize, i: usize, [from, to]: [usize; 2], mask: u32) -> int32x4_t {
    // SAFETY: 4 bytes.
    let four = unsafe { bytes.add(i * ROWS + 4 * quad).cast::<u32>().read_unaligned() };
    // While the four are together in a word: bits that are moved from one byte to the next are not in the mask.
    let moved = if from < to { four << (to - from) } else { four >> (from - to) };
    widen(moved & ((mask << to) * 0x0101_0101))
}

/// Four unsigned bytes as whole numbers.
#[inline]
#[target_feature(enable = "neon")]
fn widen(four: u32) -> int32x4_t {
    let short = vmovl_u8(vcreate_u8(u64::from(four)));
    vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(short)))
}

/// Byte `i` of the 4 rows of a quad, with its sign.
///
/// # Safety
/// `bytes` holds more than `i` times 16 bytes; `quad < 4`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn signed(bytes: *const u8, quad: usize, i: usize) -> int32x4_t {
    // SAFETY: 4 bytes.
    let four = unsafe { bytes.add(i * ROWS + 4 * quad).cast::<u32>().read_unaligned() };
    vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(u64::from(four)))))
}
