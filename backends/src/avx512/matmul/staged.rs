//! A block of a panel with its quants unpacked to bytes and its scales to f32, for products with many tokens.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::scales::Scales;
use super::source::Source;
use crate::panels::{BLOCK, ROWS, VECTOR};

/// A block of 32 columns, unpacked.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct StagedBlock<S> {
    quants: [u8; ROWS * BLOCK], // (8 groups, 16 rows, 4)
    scales: S,
}

/// The source that reads [`StagedBlock`]s.
pub(super) struct Staged<S>(PhantomData<S>);

impl<S: Scales + 'static> Source for Staged<S> {
    const BLOCKS: usize = 1;
    const BYTES: usize = size_of::<StagedBlock<S>>();
    type Scales = S;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn quants(unit: *const u8, _: usize, group: usize) -> __m512i {
        // SAFETY: within the quants, which stand first, aligned.
        unsafe { _mm512_load_si512(unit.add(VECTOR * group).cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn scales(unit: *const u8, _: usize) -> S {
        // SAFETY: a unit is a staged block.
        unsafe { (*unit.cast::<StagedBlock<S>>()).scales }
    }
}

/// Unpacks one unit to `C::BLOCKS` staged blocks.
///
/// # Safety
/// `unit` holds a unit, `dst` has room for the blocks; the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn unpack<C: Source>(unit: *const u8, dst: *mut StagedBlock<C::Scales>) {
    for b in 0..C::BLOCKS {
        // SAFETY: the unit's blocks are `C::BLOCKS` in number, there and in `dst`; groups are below 8.
        unsafe {
            let dst = dst.add(b);
            for group in 0..8 {
                let at = (&raw mut (*dst).quants).cast::<u8>().add(VECTOR * group);
                _mm512_store_si512(at.cast(), C::quants(unit, b, group));
            }
            (&raw mut (*dst).scales).write(C::scales(unit, b));
        }
    }
}
