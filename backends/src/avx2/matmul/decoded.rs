//! Units of formats that are decoded when they are packed, see [`panels::decoded`](crate::panels::decoded).

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::{Scale, SignedGroups};
use crate::panels::decoded::{FLOATS, Units};
use crate::panels::{BLOCKS_OF_256, EIGHT_BITS, ROWS, far_groups, near_groups};

/// [`Units::Scaled`].
pub(crate) struct Scaled<const N: usize>;

impl<const N: usize> Codec for Scaled<N> {
    /// One of those that have such units.
    const FORMAT: Format = if N == 1 { Format::IQ4_NL } else { Format::IQ4_XS };
    const SUM: Sum = Sum::Signed;
    const UNIT_BYTES: usize = Units::Scaled(N).bytes();
    type Head = Scale<0>;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    unsafe fn pack(_: &[&[u8]; ROWS], _: &mut [u8]) {
        unreachable!("blocks are decoded by `Decoded`")
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
        for (b, head) in room[..N].iter_mut().enumerate() {
            // SAFETY: the scales stand behind the quants.
            head.write(Scale { d: unsafe { floats(unit.add(N * EIGHT_BITS + b * FLOATS)) } });
        }
        room.as_ptr().cast()
    }
}

/// [`Units::Grouped`].
pub(crate) struct Grouped;

impl Codec for Grouped {
    /// One of those that have such units.
    const FORMAT: Format = Format::IQ2_XS;
    const SUM: Sum = Sum::Signed;
    const UNIT_BYTES: usize = Units::Grouped.bytes();
    type Head = SignedGroups;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        near_groups(p)
    }

    unsafe fn pack(_: &[&[u8]; ROWS], _: &mut [u8]) {
        unreachable!("blocks are decoded by `Decoded`")
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
            let groups = unit.add(BLOCKS_OF_256 * EIGHT_BITS);
            let d = floats(groups.add(16 * ROWS));
            for (b, head) in room.iter_mut().enumerate() {
                let groups = groups.add(2 * b * ROWS).cast::<[i8; ROWS]>();
                head.write(SignedGroups::new(d, [&*groups, &*groups.add(1)]));
            }
        }
        room.as_ptr().cast()
    }
}

/// # Safety
/// `unit` holds more than `b` blocks; `half < 2`; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pair(unit: *const u8, b: usize, half: usize, groups: [usize; 2]) -> [__m256i; 2] {
    // SAFETY: the caller's.
    unsafe { [bits::load(unit.add(b * EIGHT_BITS), half, groups[0]), bits::load(unit.add(b * EIGHT_BITS), half, groups[1])] }
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
