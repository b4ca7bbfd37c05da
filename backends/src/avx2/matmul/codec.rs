//! How a quantized format stands in a panel, and what it yields to the tile loops.
//!
//! What stands where is said in [`panels`](crate::panels). A vector of packed nibbles (and their further bits) is a *pair*: it
//! yields two groups of 4 columns.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use rml_kernels_ref::format::Format;

use super::head::Head;
use crate::panels::{BLOCK, ROWS};

/// Most blocks of 32 columns in a unit.
pub(crate) const MAX_UNIT: usize = 8;

/// Room for the heads of one unit.
pub(crate) type Heads<H> = [MaybeUninit<H>; MAX_UNIT];

/// How products of quants and activations are summed before they must be widened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Quants are unsigned and small enough for this many pairs (1, 2 or 4) to be added in 16 bits.
    Pairs(usize),
    /// Quants are signed bytes; each group is widened at once.
    Signed,
    /// Quants are unsigned bytes with this offset, and the CPU sums to 32 bits. Sums start from what takes the offset away.
    Dot(i16),
}

/// A quantized format as it stands in a panel of 16 rows.
pub(crate) trait Codec: 'static {
    /// The format, which says how many columns a unit has.
    const FORMAT: Format;
    /// See [`Sum`].
    const SUM: Sum;
    /// Bytes of a unit: what the 16 rows' blocks take in the file, unless they are decoded.
    const UNIT_BYTES: usize = ROWS * Self::FORMAT.block_bytes();
    /// Blocks of 32 columns in a unit.
    const UNIT: usize = Self::FORMAT.block_len() / BLOCK;
    /// Scales of 32 columns.
    type Head: Head;

    /// Bytes of a panel with rows of `k` weights; `None` if these are no whole blocks or too many.
    fn panel_bytes(k: usize) -> Option<usize> {
        if !k.is_multiple_of(Self::FORMAT.block_len()) {
            return None;
        }
        (k / Self::FORMAT.block_len()).checked_mul(Self::UNIT_BYTES)
    }

    /// The groups of 4 columns that pair `p` yields.
    fn groups(p: usize) -> [usize; 2];

    /// Packs one block of each row into all of a unit.
    ///
    /// # Safety
    /// The CPU has the features.
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]);

    /// Quants of pair `p` of block `b`, for rows `8 * half ..` up to the next 8.
    ///
    /// # Safety
    /// `unit` holds a unit; `b < UNIT`, `half < 2`, `p < 4`; the CPU has the features.
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2];

    /// The heads of a unit's blocks, `UNIT` in number, made in `room` unless they stand in the unit.
    ///
    /// # Safety
    /// `unit` holds a unit; the CPU has the features.
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head;
}
