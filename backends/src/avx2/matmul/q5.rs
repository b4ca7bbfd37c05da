//! `Q5_0` and `Q5_1`: nibbles and a fifth bit for 32 columns.

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::{Scale, ScaleMin};
use super::scales::halves;
use crate::panels::{FIVE_BITS, FOUR_BITS, HALVES, ROWS, far_groups, store_halves};

/// Unit: nibbles (4 vectors), fifth bits (1 vector), scales (16 f16).
pub(crate) struct Q5_0;

/// Unit: nibbles (4 vectors), fifth bits (1 vector), scales and minima (16 f16 each).
pub(crate) struct Q5_1;

impl Codec for Q5_0 {
    const FORMAT: Format = Format::Q5_0;
    const SUM: Sum = Sum::Pairs(2);
    type Head = Scale<16>;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(FIVE_BITS);
        store_quants(rows, 2, quants);
        store_halves(rows, 0, scales);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with a block's quants.
        unsafe { quants(unit, half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants.
        room[0].write(Scale { d: unsafe { halves(unit.add(FIVE_BITS)) } })
    }
}

impl Codec for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const SUM: Sum = Sum::Pairs(2);
    type Head = ScaleMin;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(FIVE_BITS);
        store_quants(rows, 4, quants);
        let (scales, minima) = scales.split_at_mut(HALVES);
        store_halves(rows, 0, scales);
        store_halves(rows, 2, minima);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with a block's quants.
        unsafe { quants(unit, half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales and then the minima stand behind the quants.
        room[0].write(unsafe { ScaleMin { d: halves(unit.add(FIVE_BITS)), m: halves(unit.add(FIVE_BITS + HALVES)) } })
    }
}

/// Packs the fifth bits, 4 bytes from `at` on, and the nibbles behind them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store_quants(rows: &[&[u8]; ROWS], at: usize, quants: &mut [u8]) {
    let (nibbles, fifths) = quants.split_at_mut(FOUR_BITS);
    bits::store_dwords(&rows.map(|row| bits::load_bytes(&row[at + 4..])), nibbles);
    bits::store_bits(&rows.map(|row| u32::from_le_bytes(*row[at..].first_chunk().expect("4 bytes"))), fifths);
}

/// Quants of pair `p`, rows by `half`.
///
/// # Safety
/// `block` holds nibbles (4 vectors) and fifth bits (1 vector); the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn quants(block: *const u8, half: usize, p: usize) -> [__m256i; 2] {
    // SAFETY: the caller's.
    unsafe {
        let [low, high] = bits::nibbles(block, half, p);
        let (fifths, [g, h]) = (block.add(FOUR_BITS), far_groups(p));
        [_mm256_or_si256(low, bits::one_bit(fifths, half, g, 4)), _mm256_or_si256(high, bits::one_bit(fifths, half, h, 4))]
    }
}
