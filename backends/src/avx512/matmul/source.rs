//! What each format yields to the tile loop, read from the units that `avx2` packs.

use std::arch::x86_64::*;

use super::bits::{bytes, far_nibbles, halves, load, nibbles, one_bit, part, two_bits};
use super::scales::{Grouped, GroupedMin, Scale, ScaleMin, Scales};
use crate::avx2::matmul::codec::Codec;
use crate::avx2::matmul::{decoded, q3_k, q4, q4_k, q5, q6_k, q8};
use crate::panels::decoded::FLOATS;
use crate::panels::{BLOCKS_OF_256, EIGHT_BITS, FIVE_BITS, FOUR_BITS, HALVES, ROWS, SIX_BITS, SIXES, THREE_BITS, TWO_BITS};

/// Blocks of 32 columns by 16 rows, in units.
pub(super) trait Source: 'static {
    /// Blocks in a unit.
    const BLOCKS: usize;
    /// Bytes of a unit.
    const BYTES: usize;
    /// Scales of a block.
    type Scales: Scales;

    /// Columns `4 * group ..` of block `b`, unsigned, a row to a lane.
    ///
    /// # Safety
    /// `unit` holds a unit; `b < BLOCKS`, `group < 8`; the CPU has the features.
    unsafe fn quants(unit: *const u8, b: usize, group: usize) -> __m512i;

    /// Scales of block `b`.
    ///
    /// # Safety
    /// `unit` holds a unit; `b < BLOCKS`; the CPU has the features.
    unsafe fn scales(unit: *const u8, b: usize) -> Self::Scales;
}

/// A [`Source`] that is one of `avx2`'s formats: what its quants and scales are, as functions of `unit`, `b` and `group`.
macro_rules! source {
    ($format:ty, $scales:ty, |$unit:ident, $b:ident, $group:ident| $quants:expr, $make:expr) => {
        impl Source for $format {
            const BLOCKS: usize = <Self as Codec>::UNIT;
            const BYTES: usize = <Self as Codec>::UNIT_BYTES;
            type Scales = $scales;

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            unsafe fn quants($unit: *const u8, $b: usize, $group: usize) -> __m512i {
                // SAFETY: the block's quants stand in the unit.
                unsafe { $quants }
            }

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            unsafe fn scales($unit: *const u8, $b: usize) -> $scales {
                // SAFETY: the scales stand behind the quants.
                unsafe { $make }
            }
        }
    };
}

source!(q4::Q4_0, Scale<8>, |unit, _b, group| far_nibbles(unit, group), Scale(halves(unit.add(FOUR_BITS))));
source!(q4::Q4_1, ScaleMin, |unit, _b, group| far_nibbles(unit, group), scale_min(unit.add(FOUR_BITS)));
source!(q5::Q5_0, Scale<16>, |unit, _b, group| five_bits(unit, group), Scale(halves(unit.add(FIVE_BITS))));
source!(q5::Q5_1, ScaleMin, |unit, _b, group| five_bits(unit, group), scale_min(unit.add(FIVE_BITS)));
source!(q8::Q8_0, Scale<128>, |unit, _b, group| unsigned(unit, group), Scale(halves(unit.add(EIGHT_BITS))));
source!(
    q4_k::Q4K,
    ScaleMin,
    |unit, b, group| far_nibbles(unit.add(b * FOUR_BITS), group),
    six_bit_scales(unit.add(BLOCKS_OF_256 * FOUR_BITS), b)
);
source!(
    q4_k::Q5K,
    ScaleMin,
    |unit, b, group| five_bits(unit.add(b * FIVE_BITS), group),
    six_bit_scales(unit.add(BLOCKS_OF_256 * FIVE_BITS), b)
);
source!(
    q6_k::Q6K,
    Grouped<5>,
    |unit, b, group| {
        let block = unit.add(b * SIX_BITS);
        _mm512_or_si512(nibbles(block, group / 2, group % 2 == 1), two_bits(block.add(FOUR_BITS), group, 4))
    },
    {
        let groups = unit.add(BLOCKS_OF_256 * SIX_BITS);
        let d = halves(groups.add(16 * ROWS));
        Grouped { d, groups: [_mm512_cvtepi8_epi32(bytes(groups, 2 * b)), _mm512_cvtepi8_epi32(bytes(groups, 2 * b + 1))] }
    }
);
source!(
    q3_k::Q3K,
    Grouped<2>,
    |unit, b, group| {
        let block = unit.add(b * THREE_BITS);
        _mm512_or_si512(two_bits(block, group, 0), one_bit(block.add(TWO_BITS), group, 2))
    },
    {
        let sixes = unit.add(BLOCKS_OF_256 * THREE_BITS);
        let (d, first) = (halves(sixes.add(SIXES * ROWS)), 2 * b);
        Grouped { d, groups: [three_bit_scale(sixes, first), three_bit_scale(sixes, first + 1)] }
    }
);
source!(q3_k::Q2K, GroupedMin, |unit, b, group| two_bits(unit.add(b * TWO_BITS), group, 0), {
    let groups = unit.add(BLOCKS_OF_256 * TWO_BITS);
    let (d, dmin) = (halves(groups.add(16 * ROWS)), halves(groups.add(16 * ROWS + HALVES)));
    let (first, last) = (bytes(groups, 2 * b), bytes(groups, 2 * b + 1));
    let minima = [_mm512_cvtepu8_epi32(part(first, 4, 15)), _mm512_cvtepu8_epi32(part(last, 4, 15))];
    GroupedMin {
        d,
        dmin,
        groups: [_mm512_cvtepu8_epi32(part(first, 0, 15)), _mm512_cvtepu8_epi32(part(last, 0, 15))],
        minima: _mm512_or_si512(minima[0], _mm512_slli_epi32::<16>(minima[1])),
    }
});

impl<const N: usize> Source for decoded::Scaled<N> {
    const BLOCKS: usize = <Self as Codec>::UNIT;
    const BYTES: usize = <Self as Codec>::UNIT_BYTES;
    type Scales = Scale<128>;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn quants(unit: *const u8, b: usize, group: usize) -> __m512i {
        // SAFETY: the unit starts with 8 vectors a block.
        unsafe { unsigned(unit.add(b * EIGHT_BITS), group) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn scales(unit: *const u8, b: usize) -> Scale<128> {
        // SAFETY: the scales stand behind the quants.
        Scale(unsafe { _mm512_loadu_ps(unit.add(Self::BLOCKS * EIGHT_BITS + b * FLOATS).cast()) })
    }
}

impl Source for decoded::Grouped {
    const BLOCKS: usize = <Self as Codec>::UNIT;
    const BYTES: usize = <Self as Codec>::UNIT_BYTES;
    type Scales = Grouped<7>;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn quants(unit: *const u8, b: usize, group: usize) -> __m512i {
        // SAFETY: the unit starts with 8 vectors a block.
        unsafe { unsigned(unit.add(b * EIGHT_BITS), group) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn scales(unit: *const u8, b: usize) -> Grouped<7> {
        // SAFETY: the scales stand behind the quants, then the scales of scales.
        unsafe {
            let groups = unit.add(BLOCKS_OF_256 * EIGHT_BITS);
            let d = _mm512_loadu_ps(groups.add(16 * ROWS).cast());
            Grouped { d, groups: [_mm512_cvtepi8_epi32(bytes(groups, 2 * b)), _mm512_cvtepi8_epi32(bytes(groups, 2 * b + 1))] }
        }
    }
}

/// Vector `group` of signed bytes, 128 added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn unsigned(vectors: *const u8, group: usize) -> __m512i {
    // SAFETY: the caller's.
    _mm512_xor_si512(unsafe { load(vectors, group) }, _mm512_set1_epi8(-128))
}

/// Quants of five bits: nibbles (4 vectors) and fifth bits (1 vector).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn five_bits(block: *const u8, group: usize) -> __m512i {
    // SAFETY: 4 vectors and 1, the caller's.
    unsafe { _mm512_or_si512(far_nibbles(block, group), one_bit(block.add(FOUR_BITS), group, 4)) }
}

/// Scales and minima as f16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn scale_min(scales: *const u8) -> ScaleMin {
    // SAFETY: twice 16 f16, the caller's.
    unsafe { ScaleMin { d: halves(scales), m: halves(scales.add(HALVES)) } }
}

/// The 6-bit scale and minimum of block `b` of 8, multiplied out: 12 bytes of 16 rows, then two scales of scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn six_bit_scales(scales: *const u8, b: usize) -> ScaleMin {
    // SAFETY: the caller's.
    unsafe {
        let (scale, min) = if b < 4 {
            (part(bytes(scales, b), 0, 63), part(bytes(scales, b + 4), 0, 63))
        } else {
            // The first four of both fill 6 bits of their byte; its upper two belong to one of the last four.
            let low = bytes(scales, b + 4);
            let (scale, min) = (part(bytes(scales, b - 4), 2, 0b11_0000), part(bytes(scales, b), 2, 0b11_0000));
            (_mm_or_si128(part(low, 0, 15), scale), _mm_or_si128(part(low, 4, 15), min))
        };
        let d = halves(scales.add(SIXES * ROWS));
        let dmin = _mm512_xor_ps(halves(scales.add(SIXES * ROWS + HALVES)), _mm512_set1_ps(-0.0));
        let (scale, min) = (_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(scale)), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(min)));
        ScaleMin { d: _mm512_mul_ps(d, scale), m: _mm512_mul_ps(dmin, min) }
    }
}

/// The 6-bit scale `j` of 16 of `Q3_K`, its offset taken away: 12 bytes of 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn three_bit_scale(sixes: *const u8, j: usize) -> __m512i {
    // SAFETY: the caller's.
    let (low, high) = unsafe { (part(bytes(sixes, j % 8), j / 8 * 4, 15), part(bytes(sixes, 8 + j % 4), 2 * (j / 4), 3)) };
    _mm512_cvtepi8_epi32(_mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16::<4>(high)), _mm_set1_epi8(32)))
}
