//! Where the results of a panel go.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::TileMut;
use crate::panels::ROWS;

/// The cells of one panel: at most 16 of each token.
pub(super) struct PanelOut<'a> {
    at: *mut f32,
    stride: usize,
    rows: u16, // a bit for each row that there is
    tile: PhantomData<&'a mut f32>,
}

impl<'a> PanelOut<'a> {
    /// The cells of the panel whose first row is column `row` of the tile's matrix.
    ///
    /// # Panics
    /// If the tile does not have that column.
    #[inline]
    pub(super) fn new(tile: &'a mut TileMut<'_>, row: usize) -> Self {
        let cols = tile.cols();
        assert!(cols.contains(&row), "row {row} of {cols:?}");
        let at = tile.as_mut_ptr().wrapping_add(row - cols.start);
        PanelOut { at, stride: tile.stride(), rows: u16::MAX >> (ROWS - ROWS.min(cols.end - row)), tile: PhantomData }
    }

    /// What was stored for tokens `t ..`.
    ///
    /// # Safety
    /// The tile has these tokens, and they were written; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn load<const N: usize>(&self, t: usize) -> [__m512; N] {
        let mut acc = [_mm512_setzero_ps(); N];
        for (i, acc) in acc.iter_mut().enumerate() {
            // SAFETY: cells of a token of the tile, which is borrowed exclusively.
            *acc = unsafe { _mm512_maskz_loadu_ps(self.rows, self.at.add((t + i) * self.stride)) };
        }
        acc
    }

    /// Stores the results of tokens `t ..`.
    ///
    /// # Safety
    /// The tile has these tokens; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn store<const N: usize>(&mut self, t: usize, acc: &[__m512; N]) {
        for (i, acc) in acc.iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe { _mm512_mask_storeu_ps(self.at.add((t + i) * self.stride), self.rows, *acc) };
        }
    }
}
