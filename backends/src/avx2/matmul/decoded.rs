//! Formats without a packing of their own: blocks are decoded when they are packed, to a byte a weight and scales in f32.
//!
//! A panel takes 9 bits a weight where 32 weights share a scale, and 8.75 where 16 share a whole one. That is two to six
//! times the file's, but products run as those of `Q8_0` do.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use rml_kernels_ref::blocks::Block;
use rml_kernels_ref::format::Format;

use super::bits::{self, VECTOR};
use super::codec::{BLOCK, Codec, Heads, ROWS, Sum, far_groups, near_groups};
use super::head::{Scale, SignedGroups};

/// Bytes of a block of 32 columns.
pub(crate) const QUANTS: usize = 8 * VECTOR;
/// Bytes of 16 f32.
pub(crate) const FLOATS: usize = 4 * ROWS;
/// Blocks in a unit of a grouped format.
pub(crate) const GROUPED_BLOCKS: usize = 8;

/// A format, as a type.
pub(crate) trait Stored: 'static {
    /// The format.
    const FORMAT: Format;
}

/// Types for formats, which have no values.
macro_rules! stored {
    ($($name:ident $format:ident),*) => {
        $(
            /// The format.
            pub(crate) enum $name {}

            impl Stored for $name {
                const FORMAT: Format = Format::$format;
            }
        )*
    };
}

stored!(Iq1S IQ1_S, Iq1M IQ1_M, Iq2Xxs IQ2_XXS, Iq2Xs IQ2_XS, Iq2S IQ2_S, Iq3Xxs IQ3_XXS, Iq3S IQ3_S);
stored!(Iq4Nl IQ4_NL, Iq4Xs IQ4_XS, Tq1 TQ1_0, Tq2 TQ2_0, Mxfp4 MXFP4);

/// Blocks of a format with a scale for 32 columns. Unit: bytes (8 vectors, one a group), for each block; then scales (16 f32),
/// for each block.
pub(crate) struct Scaled<F>(PhantomData<F>);

impl<F: Stored> Codec for Scaled<F> {
    const FORMAT: Format = F::FORMAT;
    const SUM: Sum = Sum::Signed;
    const UNIT_BYTES: usize = Self::UNIT * (QUANTS + FLOATS);
    type Head = Scale<0>;

    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(Self::UNIT * QUANTS);
        pack_quants(F::FORMAT, rows, quants, |r, block| {
            for (scales, scale) in scales.chunks_exact_mut(FLOATS).zip(&block.scale) {
                scales[4 * r..][..4].copy_from_slice(&scale.to_le_bytes());
            }
        });
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with 8 vectors a block.
        unsafe { pair(unit, b, half, far_groups(p)) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        for (b, head) in room[..Self::UNIT].iter_mut().enumerate() {
            // SAFETY: the scales stand behind the quants.
            head.write(Scale { d: unsafe { floats(unit.add(Self::UNIT * QUANTS + b * FLOATS)) } });
        }
        room.as_ptr().cast()
    }
}

/// Blocks of a format with a whole scale for 16 columns. Unit: bytes (8 vectors, one a group), for each of 8 blocks; then
/// whole scales (16, 16 rows); then scales of scales (16 f32).
pub(crate) struct Grouped<F>(PhantomData<F>);

impl<F: Stored> Codec for Grouped<F> {
    const FORMAT: Format = F::FORMAT;
    const SUM: Sum = Sum::Signed;
    const UNIT_BYTES: usize = GROUPED_BLOCKS * QUANTS + 16 * ROWS + FLOATS;
    type Head = SignedGroups;

    fn groups(p: usize) -> [usize; 2] {
        near_groups(p)
    }

    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(GROUPED_BLOCKS * QUANTS);
        let (groups, supers) = scales.split_at_mut(16 * ROWS);
        pack_quants(F::FORMAT, rows, quants, |r, block| {
            groups.chunks_exact_mut(ROWS).zip(&block.group).for_each(|(groups, &group)| groups[r] = group as u8);
            supers[4 * r..][..4].copy_from_slice(&block.scale[0].to_le_bytes());
        });
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with 8 vectors a block.
        unsafe { pair(unit, b, half, near_groups(p)) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants, then the scales of scales.
        unsafe {
            let groups = unit.add(GROUPED_BLOCKS * QUANTS);
            let d = floats(groups.add(16 * ROWS));
            for (b, head) in room.iter_mut().enumerate() {
                let groups = groups.add(2 * b * ROWS).cast::<[i8; ROWS]>();
                head.write(SignedGroups::new(d, [&*groups, &*groups.add(1)]));
            }
        }
        room.as_ptr().cast()
    }
}

/// Decodes a block of each row into vectors, and shows each to `scales`.
fn pack_quants(format: Format, rows: &[&[u8]; ROWS], quants: &mut [u8], mut scales: impl FnMut(usize, &Block)) {
    let mut block = Block::default();
    for (r, row) in rows.iter().enumerate() {
        block.read(format, row);
        for (quants, q) in quants.chunks_exact_mut(QUANTS).zip(block.q.as_chunks::<BLOCK>().0) {
            for (vector, q) in quants.chunks_exact_mut(VECTOR).zip(q.as_chunks::<4>().0) {
                vector[4 * r..][..4].copy_from_slice(&q.map(|q| q as u8));
            }
        }
        scales(r, &block);
    }
}

/// # Safety
/// `unit` holds more than `b` blocks; `half < 2`; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pair(unit: *const u8, b: usize, half: usize, groups: [usize; 2]) -> [__m256i; 2] {
    // SAFETY: the caller's.
    unsafe { [bits::load(unit.add(b * QUANTS), half, groups[0]), bits::load(unit.add(b * QUANTS), half, groups[1])] }
}

/// 16 f32, rows by halves.
///
/// # Safety
/// `src` holds them; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn floats(src: *const u8) -> [__m256; 2] {
    // SAFETY: twice 32 bytes.
    unsafe { [_mm256_loadu_ps(src.cast()), _mm256_loadu_ps(src.add(32).cast())] }
}
