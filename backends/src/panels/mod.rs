//! How quantized matrices are packed, for every backend: 16 rows by 4 columns to 64 bytes, a row to a lane.
//!
//! A panel holds 16 rows. It is a sequence of units, one for each block of the format; a unit takes what the 16 blocks take in
//! the file. First come the quants of each 32 columns, in vectors of 64 bytes: byte `4 r + i` belongs to row `r` and the `i`-th
//! of the 4 columns of a group, and the 8 groups of a block share it. Quants are unsigned, their offset added, but those of
//! `Q8_0`. Then come the scales as the file has them, 16 rows side by side ([`store_bytes`], [`store_halves`]).
//!
//! - 8 bits: group `g` in vector `g`.
//! - 4 bits: vector `p` holds [`far_groups`] of `p` in low and high nibbles, or [`near_groups`] in formats that scale 16
//!   columns at a time, where a vector has to stay within them.
//! - 2 bits: vector `g / 4`, from bit `2 (g % 4)` on.
//! - 1 bit: bit `g` of one vector.
//!
//! Quants of five bits are four and one, those of six four and two, those of three two and one, in this order.

pub(crate) mod decoded;
#[cfg(target_arch = "x86_64")]
pub(crate) mod order;
#[cfg(any(target_arch = "aarch64", test))]
pub(crate) mod pack;
#[cfg(target_arch = "x86_64")]
pub(crate) mod stream;
mod tokens;
pub(crate) mod unpack;

use rml_kernels_ref::format::Format;

pub(crate) use tokens::Tokens;

use crate::backend::Refusal;
use crate::matmul::PackedLayout;

/// Rows in a panel.
pub(crate) const ROWS: usize = 16;
/// Columns that share one activation scale.
pub(crate) const BLOCK: usize = 32;
/// Bytes of a vector.
pub(crate) const VECTOR: usize = 64;
/// Bytes of 16 f16.
pub(crate) const HALVES: usize = 2 * ROWS;
/// Blocks of 32 columns in a unit of 256.
pub(crate) const BLOCKS_OF_256: usize = 8;
/// Bytes that hold the 6-bit scales, or scales and minima, of a row.
pub(crate) const SIXES: usize = 12;

/// Bytes of a block's quants of two bits.
pub(crate) const TWO_BITS: usize = 2 * VECTOR;
/// Bytes of a block's quants of three bits.
pub(crate) const THREE_BITS: usize = TWO_BITS + VECTOR;
/// Bytes of a block's quants of four bits.
pub(crate) const FOUR_BITS: usize = 4 * VECTOR;
/// Bytes of a block's quants of five bits.
pub(crate) const FIVE_BITS: usize = FOUR_BITS + VECTOR;
/// Bytes of a block's quants of six bits.
pub(crate) const SIX_BITS: usize = FOUR_BITS + TWO_BITS;
/// Bytes of a block's quants of eight bits.
pub(crate) const EIGHT_BITS: usize = 8 * VECTOR;

/// Groups `p` and `p + 4`, the order of GGUF's 32-wide blocks.
#[inline]
pub(crate) const fn far_groups(p: usize) -> [usize; 2] {
    [p, p + 4]
}

/// Groups `2 p` and `2 p + 1`.
#[inline]
pub(crate) const fn near_groups(p: usize) -> [usize; 2] {
    [2 * p, 2 * p + 1]
}

/// Bits of a quant, and what was added to make it unsigned.
fn quants(format: Format) -> (usize, i8) {
    match format {
        Format::Q2_K => (2, 0),
        Format::Q3_K => (3, 4),
        Format::Q4_0 => (4, 8),
        Format::Q4_1 | Format::Q4_K => (4, 0),
        Format::Q5_0 => (5, 16),
        Format::Q5_1 | Format::Q5_K => (5, 0),
        Format::Q6_K => (6, 32),
        Format::Q8_0 => (8, 0),
        _ => panic!("{format} has no such panels"),
    }
}

/// Panels for rows of `k` weights that take what they take in the file, or why there are none.
pub(crate) fn layout(format: Format, k: usize) -> Result<PackedLayout, Refusal> {
    layout_of(format, k, format.row_bytes(k).and_then(|bytes| bytes.checked_mul(ROWS)))
}

/// Panels of so many bytes for rows of `k` weights, or why there are none.
pub(crate) fn layout_of(format: Format, k: usize, panel_bytes: Option<usize>) -> Result<PackedLayout, Refusal> {
    match panel_bytes {
        Some(panel_bytes) => Ok(PackedLayout { panel_rows: ROWS, panel_bytes, in_place: false }),
        None if k.is_multiple_of(format.block_len()) => Err(Refusal::new(format!("{k} columns are too many"))),
        None => Err(Refusal::new(format!("{k} columns are not whole blocks of {}", format.block_len()))),
    }
}

/// `N` bytes of every row from byte `at` on: byte `i` of all rows, then byte `i + 1` of all.
pub(crate) fn store_bytes<const N: usize>(rows: &[&[u8]; ROWS], at: usize, dst: &mut [u8]) {
    for (r, row) in rows.iter().enumerate() {
        for (i, &byte) in row[at..at + N].iter().enumerate() {
            dst[i * ROWS + r] = byte;
        }
    }
}

/// Two bytes of every row from byte `at` on.
pub(crate) fn store_halves(rows: &[&[u8]; ROWS], at: usize, dst: &mut [u8]) {
    for (row, dst) in rows.iter().zip(dst.as_chunks_mut::<2>().0) {
        dst.copy_from_slice(&row[at..at + 2]);
    }
}
