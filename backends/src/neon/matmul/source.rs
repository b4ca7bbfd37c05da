//! What each format yields to the tile loop: the quants and the scales of 4 rows, read from a unit as
//! [`panels`](crate::panels) says.

use std::arch::aarch64::*;

use rml_kernels_ref::format::Format;

use super::bits::{Quants, bytes, nibbles, part, signed, two_bits, with_bit, with_bits};
use super::scales::{Grouped, GroupedMin, Scale, ScaleMin, Scales};
use crate::neon::half::load_halves;
use crate::panels::decoded::{FLOATS, Units};
use crate::panels::{
    BLOCK, BLOCKS_OF_256, EIGHT_BITS, FIVE_BITS, FOUR_BITS, HALVES, ROWS, SIX_BITS, SIXES, THREE_BITS, TWO_BITS, far_groups, near_groups,
};

/// Blocks of 32 columns by 16 rows, in units.
pub(super) trait Source: 'static {
    /// Blocks in a unit.
    const BLOCKS: usize;
    /// Bytes of a unit.
    const BYTES: usize;
    /// Scales of a block.
    type Scales: Scales;

    /// Quants of rows `4 quad ..` of block `b`.
    ///
    /// # Safety
    /// `unit` holds a unit; `b < BLOCKS`, `quad < 4`.
    unsafe fn quants(unit: *const u8, b: usize, quad: usize) -> Quants;

    /// Scales of rows `4 quad ..` of block `b`.
    ///
    /// # Safety
    /// As for [`quants`](Self::quants).
    unsafe fn scales(unit: *const u8, b: usize, quad: usize) -> Self::Scales;
}

/// A [`Source`] that panels are made of.
pub(super) trait Packed: Source {
    /// The format, or one of those that are decoded to it.
    const FORMAT: Format;

    /// Bytes of a panel of `k` columns; none unless these are whole units.
    fn panel_bytes(k: usize) -> Option<usize> {
        let columns = Self::BLOCKS * BLOCK;
        if k.is_multiple_of(columns) { (k / columns).checked_mul(Self::BYTES) } else { None }
    }
}

/// A format: its quants and scales as functions of the unit, the block and the quad. A unit has the bytes of the file's blocks, unless it
/// is of [`Units`].
macro_rules! source {
    ($name:ident, $format:ident, $scales:ty, |$unit:ident, $b:ident, $quad:ident| $quants:expr, $make:expr) => {
        source!($name, $format in ROWS * Format::$format.block_bytes(), $scales, |$unit, $b, $quad| $quants, $make);
    };
    ($name:ident, $format:ident in $bytes:expr, $scales:ty, |$unit:ident, $b:ident, $quad:ident| $quants:expr, $make:expr) => {
        pub(super) enum $name {}

        impl Packed for $name {
            const FORMAT: Format = Format::$format;
        }

        impl Source for $name {
            const BLOCKS: usize = Format::$format.block_len() / BLOCK;
            const BYTES: usize = $bytes;
            type Scales = $scales;

            #[inline]
            #[target_feature(enable = "neon")]
            unsafe fn quants($unit: *const u8, $b: usize, $quad: usize) -> Quants {
                // SAFETY: the block's quants stand in the unit.
                unsafe { $quants }
            }

            #[inline]
            #[target_feature(enable = "neon")]
            unsafe fn scales($unit: *const u8, $b: usize, $quad: usize) -> $scales {
                // SAFETY: the scales stand behind the quants.
                unsafe { $make }
            }
        }
    };
}

source!(Q4_0, Q4_0, Scale<8>, |unit, _b, quad| nibbles(unit, quad, far_groups), Scale(halves(unit.add(FOUR_BITS), quad)));
source!(Q4_1, Q4_1, ScaleMin, |unit, _b, quad| nibbles(unit, quad, far_groups), scale_min(unit.add(FOUR_BITS), quad));
source!(Q5_0, Q5_0, Scale<16>, |unit, _b, quad| five_bits(unit, quad), Scale(halves(unit.add(FIVE_BITS), quad)));
source!(Q5_1, Q5_1, ScaleMin, |unit, _b, quad| five_bits(unit, quad), scale_min(unit.add(FIVE_BITS), quad));
source!(Q8_0, Q8_0, Scale<0>, |unit, _b, quad| bytes(unit, quad), Scale(halves(unit.add(EIGHT_BITS), quad)));
source!(
    Q4K,
    Q4_K,
    ScaleMin,
    |unit, b, quad| nibbles(unit.add(b * FOUR_BITS), quad, far_groups),
    six_bit_scales(unit.add(BLOCKS_OF_256 * FOUR_BITS), b, quad)
);
source!(
    Q5K,
    Q5_K,
    ScaleMin,
    |unit, b, quad| five_bits(unit.add(b * FIVE_BITS), quad),
    six_bit_scales(unit.add(BLOCKS_OF_256 * FIVE_BITS), b, quad)
);
source!(
    Q6K,
    Q6_K,
    Grouped<32>,
    |unit, b, quad| {
        let block = unit.add(b * SIX_BITS);
        with_bits(nibbles(block, quad, near_groups), two_bits(block.add(FOUR_BITS), quad, 4))
    },
    {
        let groups = unit.add(BLOCKS_OF_256 * SIX_BITS);
        let d = halves(groups.add(16 * ROWS), quad);
        Grouped { d, groups: [signed(groups, quad, 2 * b), signed(groups, quad, 2 * b + 1)] }
    }
);
source!(
    Q3K,
    Q3_K,
    Grouped<4>,
    |unit, b, quad| {
        let block = unit.add(b * THREE_BITS);
        with_bit(two_bits(block, quad, 0), block.add(TWO_BITS), quad, 2)
    },
    {
        let sixes = unit.add(BLOCKS_OF_256 * THREE_BITS);
        let d = halves(sixes.add(SIXES * ROWS), quad);
        Grouped { d, groups: [three_bit_scale(sixes, 2 * b, quad), three_bit_scale(sixes, 2 * b + 1, quad)] }
    }
);
source!(Q2K, Q2_K, GroupedMin, |unit, b, quad| two_bits(unit.add(b * TWO_BITS), quad, 0), {
    let groups = unit.add(BLOCKS_OF_256 * TWO_BITS);
    GroupedMin {
        d: halves(groups.add(16 * ROWS), quad),
        dmin: halves(groups.add(16 * ROWS + HALVES), quad),
        groups: [part(groups, quad, 2 * b, [0, 0], 15), part(groups, quad, 2 * b + 1, [0, 0], 15)],
        minima: [part(groups, quad, 2 * b, [4, 0], 15), part(groups, quad, 2 * b + 1, [4, 0], 15)],
    }
});

source!(Scaled1, IQ4_NL in Units::Scaled(1).bytes(), Scale<0>, |unit, _b, quad| bytes(unit, quad), Scale(floats(unit.add(EIGHT_BITS), quad)));
source!(
    Scaled8,
    IQ4_XS in Units::Scaled(8).bytes(),
    Scale<0>,
    |unit, b, quad| bytes(unit.add(b * EIGHT_BITS), quad),
    Scale(floats(unit.add(8 * EIGHT_BITS + b * FLOATS), quad))
);
source!(DecodedGroups, IQ2_XS in Units::Grouped.bytes(), Grouped<0>, |unit, b, quad| bytes(unit.add(b * EIGHT_BITS), quad), {
    let groups = unit.add(BLOCKS_OF_256 * EIGHT_BITS);
    Grouped { d: floats(groups.add(16 * ROWS), quad), groups: [signed(groups, quad, 2 * b), signed(groups, quad, 2 * b + 1)] }
});

/// The f32 of 4 rows.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn floats(of_rows: *const u8, quad: usize) -> float32x4_t {
    // SAFETY: 16 bytes of 64, the caller's; the load needs no alignment.
    vreinterpretq_f32_u8(unsafe { vld1q_u8(of_rows.add(16 * quad)) })
}

/// The f16 of 4 rows.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn halves(of_rows: *const u8, quad: usize) -> float32x4_t {
    // SAFETY: 8 bytes of 32, the caller's.
    unsafe { load_halves(of_rows.add(8 * quad)) }
}

/// Quants of five bits: nibbles (4 vectors) and fifth bits (1 vector).
#[inline]
#[target_feature(enable = "neon")]
unsafe fn five_bits(block: *const u8, quad: usize) -> Quants {
    // SAFETY: 4 vectors and 1, the caller's.
    unsafe { with_bit(nibbles(block, quad, far_groups), block.add(FOUR_BITS), quad, 4) }
}

/// Scales and minima as f16.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn scale_min(scales: *const u8, quad: usize) -> ScaleMin {
    // SAFETY: twice 16 f16, the caller's.
    unsafe { ScaleMin { d: halves(scales, quad), m: halves(scales.add(HALVES), quad) } }
}

/// The 6-bit scale and minimum of block `b` of 8, multiplied out: 12 bytes of 16 rows, then two scales of scales.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn six_bit_scales(scales: *const u8, b: usize, quad: usize) -> ScaleMin {
    // SAFETY: the caller's.
    unsafe {
        let (scale, min) = if b < 4 {
            (part(scales, quad, b, [0, 0], 63), part(scales, quad, b + 4, [0, 0], 63))
        } else {
            // The first four of both fill 6 bits of their byte; its upper two belong to one of the last four.
            let (scale, min) = (part(scales, quad, b - 4, [6, 4], 3), part(scales, quad, b, [6, 4], 3));
            (vorrq_s32(part(scales, quad, b + 4, [0, 0], 15), scale), vorrq_s32(part(scales, quad, b + 4, [4, 0], 15), min))
        };
        let d = halves(scales.add(SIXES * ROWS), quad);
        let dmin = vnegq_f32(halves(scales.add(SIXES * ROWS + HALVES), quad));
        ScaleMin { d: vmulq_f32(d, vcvtq_f32_s32(scale)), m: vmulq_f32(dmin, vcvtq_f32_s32(min)) }
    }
}

/// The 6-bit scale `j` of 16 of `Q3_K`, its offset taken away: 12 bytes of 16 rows.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn three_bit_scale(sixes: *const u8, j: usize, quad: usize) -> int32x4_t {
    // SAFETY: the caller's.
    let (low, high) = unsafe { (part(sixes, quad, j % 8, [j / 8 * 4, 0], 15), part(sixes, quad, 8 + j % 4, [2 * (j / 4), 4], 3)) };
    vsubq_s32(vorrq_s32(low, high), vdupq_n_s32(32))
}
