//! `Q4_0` and `Q4_1`: nibbles for 32 columns, in the file's order.

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::{Scale, ScaleMin};
use super::scales::halves;
use crate::panels::{FOUR_BITS, HALVES, ROWS, far_groups, store_halves};

/// Unit: nibbles (4 vectors), scales (16 f16).
pub(crate) struct Q4_0;

/// Unit: nibbles (4 vectors), scales and minima (16 f16 each).
pub(crate) struct Q4_1;

impl Codec for Q4_0 {
    const FORMAT: Format = Format::Q4_0;
    const SUM: Sum = Sum::Pairs(4);
    type Head = Scale<8>;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(FOUR_BITS);
        bits::store_dwords(&rows.map(|row| bits::load_bytes(&row[2..])), quants);
        store_halves(rows, 0, scales);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with 4 vectors.
        unsafe { bits::nibbles(unit, half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants.
        room[0].write(Scale { d: unsafe { halves(unit.add(FOUR_BITS)) } })
    }
}

impl Codec for Q4_1 {
    const FORMAT: Format = Format::Q4_1;
    const SUM: Sum = Sum::Pairs(4);
    type Head = ScaleMin;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(FOUR_BITS);
        bits::store_dwords(&rows.map(|row| bits::load_bytes(&row[4..])), quants);
        let (scales, minima) = scales.split_at_mut(HALVES);
        store_halves(rows, 0, scales);
        store_halves(rows, 2, minima);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with 4 vectors.
        unsafe { bits::nibbles(unit, half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales and then the minima stand behind the quants.
        room[0].write(unsafe { ScaleMin { d: halves(unit.add(FOUR_BITS)), m: halves(unit.add(FOUR_BITS + HALVES)) } })
    }
}
