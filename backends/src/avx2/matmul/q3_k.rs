//! `Q2_K` and `Q3_K`: two bits, and a third, for 8 blocks, with whole scales for 16 columns.

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::{Grouped, GroupedMin};
use super::q6_k::at;
use super::scales::halves;
use crate::panels::{BLOCKS_OF_256, HALVES, ROWS, SIXES, THREE_BITS, TWO_BITS, near_groups, store_bytes, store_halves};

/// Unit: two bits (8 blocks, 2 vectors), scales and minima (16, 16 rows; a nibble each), scales of both (16 f16 each).
pub(crate) struct Q2K;

/// Unit: two bits and a third (8 blocks, 2 + 1 vectors), 6-bit scales (12, 16 rows), scales of scales (16 f16).
pub(crate) struct Q3K;

impl Codec for Q2K {
    const FORMAT: Format = Format::Q2_K;
    const SUM: Sum = Sum::Pairs(2);
    type Head = GroupedMin;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        near_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(BLOCKS_OF_256 * TWO_BITS);
        for (b, quants) in quants.chunks_exact_mut(TWO_BITS).enumerate() {
            bits::store_two_bits(&rows.map(|row| two_bits(&row[16..], b)), quants);
        }
        let (groups, supers) = scales.split_at_mut(16 * ROWS);
        store_bytes::<16>(rows, 0, groups);
        store_halves(rows, 80, supers);
        store_halves(rows, 82, &mut supers[HALVES..]);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with the blocks' quants.
        unsafe {
            let (block, [g, h]) = (unit.add(b * TWO_BITS), near_groups(p));
            [bits::two_bits(block, half, g, 0), bits::two_bits(block, half, h, 0)]
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the nibbles of scales and minima stand behind the quants, then the scales of both.
        unsafe {
            let groups = unit.add(BLOCKS_OF_256 * TWO_BITS);
            let (d, dmin) = (halves(groups.add(16 * ROWS)), halves(groups.add(16 * ROWS + HALVES)));
            for (b, head) in room.iter_mut().enumerate() {
                let both = [0, 1].map(|i| _mm_loadu_si128(groups.add((2 * b + i) * ROWS).cast()));
                let [scales, minima] = [0, 4].map(|from| both.map(|v| bytes(at(v, from, 15))));
                head.write(GroupedMin::new(d, scales.each_ref(), dmin, minima.each_ref()));
            }
        }
        room.as_ptr().cast()
    }
}

impl Codec for Q3K {
    const FORMAT: Format = Format::Q3_K;
    const SUM: Sum = Sum::Pairs(2);
    type Head = Grouped<2>;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        near_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(BLOCKS_OF_256 * THREE_BITS);
        for (b, quants) in quants.chunks_exact_mut(THREE_BITS).enumerate() {
            bits::store_two_bits(&rows.map(|row| two_bits(&row[32..], b)), quants);
            bits::store_bits(&rows.map(|row| bits::gather_bits(row, b)), &mut quants[TWO_BITS..]);
        }
        let (sixes, supers) = scales.split_at_mut(SIXES * ROWS);
        store_bytes::<SIXES>(rows, 96, sixes);
        store_halves(rows, 108, supers);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with the blocks' quants.
        unsafe {
            let (block, [g, h]) = (unit.add(b * THREE_BITS), near_groups(p));
            let [low, high] = [bits::two_bits(block, half, g, 0), bits::two_bits(block, half, h, 0)];
            let third = block.add(TWO_BITS);
            [_mm256_or_si256(low, bits::one_bit(third, half, g, 2)), _mm256_or_si256(high, bits::one_bit(third, half, h, 2))]
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the 6-bit scales stand behind the quants, then the scales of scales.
        unsafe {
            let sixes = unit.add(BLOCKS_OF_256 * THREE_BITS);
            let d = halves(sixes.add(SIXES * ROWS));
            let byte = |i: usize| _mm_loadu_si128(sixes.add(i * ROWS).cast());
            let scale = |j: usize| {
                let low = at(byte(j % 8), j / 8 * 4, 15);
                let high = at(byte(8 + j % 4), 2 * (j / 4), 3);
                bytes(_mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16::<4>(high)), _mm_set1_epi8(32)))
            };
            for (b, head) in room.iter_mut().enumerate() {
                head.write(Grouped::new(d, [&scale(2 * b), &scale(2 * b + 1)]));
            }
        }
        room.as_ptr().cast()
    }
}

/// Two bits of each of the 32 columns of block `b`. In the file 128 columns share 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn two_bits(quants: &[u8], b: usize) -> [__m128i; 2] {
    [0, 16].map(|i| at(bits::load_bytes(&quants[32 * (b / 4) + i..]), 2 * (b % 4), 3))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bytes(v: __m128i) -> [i8; ROWS] {
    let mut bytes = [0; ROWS];
    // SAFETY: 16 bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), v) };
    bytes
}
