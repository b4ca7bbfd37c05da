//! Float weights: how they are widened, and how rows are turned into panels.

use std::arch::aarch64::*;

use half::{bf16, f16};
use rml_kernels_ref::format::Format;

use crate::neon::half::load_halves;
use crate::neon::lanes::Lanes;
use crate::panels::ROWS;

/// A float that weights are stored as.
pub(super) trait Stored: 'static {
    /// The format.
    const FORMAT: Format;
    /// Bytes of a weight.
    const BYTES: usize = Self::FORMAT.block_bytes();

    /// 16 weights, widened exactly.
    ///
    /// # Safety
    /// `at` holds them.
    unsafe fn load(at: *const u8) -> Lanes;
}

impl Stored for f32 {
    const FORMAT: Format = Format::F32;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const u8) -> Lanes {
        // SAFETY: four times 16 bytes; bytes need no alignment.
        let quad = |i: usize| vreinterpretq_f32_u8(unsafe { vld1q_u8(at.add(16 * i)) });
        [quad(0), quad(1), quad(2), quad(3)]
    }
}

impl Stored for f16 {
    const FORMAT: Format = Format::F16;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const u8) -> Lanes {
        // SAFETY: four times 8 bytes.
        unsafe { [load_halves(at), load_halves(at.add(8)), load_halves(at.add(16)), load_halves(at.add(24))] }
    }
}

impl Stored for bf16 {
    const FORMAT: Format = Format::BF16;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const u8) -> Lanes {
        // The upper half of an f32.
        let quad = |i: usize| {
            // SAFETY: four times 8 bytes.
            let halves = vreinterpret_u16_u8(unsafe { vld1_u8(at.add(8 * i)) });
            vreinterpretq_f32_u32(vshll_n_u16::<16>(halves))
        };
        [quad(0), quad(1), quad(2), quad(3)]
    }
}

/// Packs a panel: weight `j` of row `r` goes to `16 j + r`, and zeros where rows are missing.
pub(super) fn pack_panel<S: Stored>(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
    let row_bytes = k * S::BYTES;
    assert!(n_rows <= ROWS && src.len() == n_rows * row_bytes && dst.len() == ROWS * row_bytes, "a panel of {n_rows} rows");
    match S::BYTES {
        2 => transpose::<2>(src, n_rows, k, dst),
        _ => transpose::<4>(src, n_rows, k, dst),
    }
}

fn transpose<const N: usize>(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
    let (src, columns) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
    for (j, column) in columns.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
        for (r, weight) in column.iter_mut().enumerate() {
            *weight = if r < n_rows { src[r * k + j] } else { [0; N] };
        }
    }
}
