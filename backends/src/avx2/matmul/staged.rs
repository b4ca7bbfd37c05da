//! A stretch of a panel with its quants unpacked to bytes and its scales to f32, for products with many tokens.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rml_kernels_ref::format::Format;

use super::codec::{Codec, Heads, MAX_UNIT, Sum};
use crate::panels::{BLOCK, ROWS};

/// A block of 32 columns, unpacked.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
pub(super) struct StagedBlock<H> {
    quants: [u8; ROWS * BLOCK], // (8 groups, 16 rows, 4)
    head: H,
}

/// The codec of a [`StagedBlock`] that was made from `C`.
pub(super) struct Staged<C>(PhantomData<C>);

impl<C: Codec> Codec for Staged<C> {
    const FORMAT: Format = C::FORMAT;
    const SUM: Sum = C::SUM;
    const UNIT_BYTES: usize = size_of::<StagedBlock<C::Head>>();
    const UNIT: usize = 1;
    type Head = C::Head;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        C::groups(p)
    }

    unsafe fn pack(_: &[&[u8]; ROWS], _: &mut [u8]) {
        unreachable!("staged blocks are made from packed ones")
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: within the quants, which stand first.
        unsafe {
            let (unit, [g, h]) = (unit.add(32 * half), C::groups(p));
            [_mm256_load_si256(unit.add(64 * g).cast()), _mm256_load_si256(unit.add(64 * h).cast())]
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, _: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: a unit is a staged block.
        unsafe { &raw const (*unit.cast::<StagedBlock<C::Head>>()).head }
    }
}

/// Unpacks one unit to `C::UNIT` staged blocks.
///
/// # Safety
/// `unit` holds a unit, `dst` has room for the blocks; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn unpack<C: Codec>(unit: *const u8, dst: *mut StagedBlock<C::Head>) {
    let mut room: Heads<C::Head> = [const { MaybeUninit::uninit() }; MAX_UNIT];
    // SAFETY: the unit's blocks are `C::UNIT` in number, in the unit, in its heads and in `dst`; groups are below 8.
    unsafe {
        let heads = C::heads(unit, &mut room);
        for b in 0..C::UNIT {
            let dst = dst.add(b);
            for p in 0..4 {
                for half in 0..2 {
                    let (quants, groups) = (C::pair(unit, b, half, p), C::groups(p));
                    let at = (&raw mut (*dst).quants).cast::<u8>().add(32 * half);
                    _mm256_store_si256(at.add(64 * groups[0]).cast(), quants[0]);
                    _mm256_store_si256(at.add(64 * groups[1]).cast(), quants[1]);
                }
            }
            (*dst).head = *heads.add(b);
        }
    }
}
