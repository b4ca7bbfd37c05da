//! A stretch of a panel with its quants unpacked to bytes and its scales to f32, for products with many tokens.

use std::arch::aarch64::*;
use std::marker::PhantomData;

use super::bits::Quants;
use super::multiply::Multiply;
use super::scales::Scales;
use super::source::Source;

/// A block of 16 rows by 32 columns, unpacked.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct StagedBlock<S> {
    quants: [Quants; 4], // by quad, as the multiplication takes them
    scales: [S; 4],      // by quad
}

/// The source of [`StagedBlock`]s.
pub(super) struct Staged<S>(PhantomData<S>);

impl<S: Scales> Source for Staged<S> {
    const BLOCKS: usize = 1;
    const BYTES: usize = size_of::<StagedBlock<S>>();
    type Scales = S;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn quants(unit: *const u8, _: usize, quad: usize) -> Quants {
        // SAFETY: a unit is a staged block, written as a whole.
        unsafe { (&raw const (*unit.cast::<StagedBlock<S>>()).quants).cast::<Quants>().add(quad).read() }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn scales(unit: *const u8, _: usize, quad: usize) -> S {
        // SAFETY: as in `quants`.
        unsafe { (&raw const (*unit.cast::<StagedBlock<S>>()).scales).cast::<S>().add(quad).read() }
    }
}

/// Unpacks one unit to `C::BLOCKS` staged blocks.
///
/// # Safety
/// `unit` holds a unit, `dst` has room for the blocks; the multiplication is installed.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn unpack<C: Source, M: Multiply>(unit: *const u8, dst: *mut StagedBlock<C::Scales>) {
    for b in 0..C::BLOCKS {
        for quad in 0..4 {
            // SAFETY: the unit's blocks are `C::BLOCKS` in number, in the unit and in `dst`.
            unsafe {
                let dst = dst.add(b);
                let quants = M::weights(C::quants(unit, b, quad));
                for (g, q) in quants.into_iter().enumerate() {
                    vst1q_s8((&raw mut (*dst).quants).cast::<i8>().add(16 * (8 * quad + g)), q);
                }
                (&raw mut (*dst).scales).cast::<C::Scales>().add(quad).write(C::scales(unit, b, quad));
            }
        }
    }
}
