//! Where the results of a panel go.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::TileMut;
use crate::panels::ROWS;

/// Results of 16 rows for `N` tokens, rows by halves.
pub(super) type Acc<const N: usize> = [[__m256; 2]; N];

/// The cells of one panel: at most 16 of each token.
pub(super) struct PanelOut<'a> {
    at: *mut f32,
    stride: usize,
    n_rows: usize,
    tile: PhantomData<&'a mut f32>,
}

impl<'a> PanelOut<'a> {
    /// The cells of the panel whose first row is column `row` of the tile's matrix.
    ///
    /// # Panics
    /// If the tile does not have that column.
    pub(super) fn new(tile: &'a mut TileMut<'_>, row: usize) -> Self {
        let cols = tile.cols();
        assert!(cols.contains(&row), "row {row} of {cols:?}");
        let at = tile.as_mut_ptr().wrapping_add(row - cols.start);
        PanelOut { at, stride: tile.stride(), n_rows: ROWS.min(cols.end - row), tile: PhantomData }
    }

    /// What was stored for tokens `t ..`.
    ///
    /// # Safety
    /// The tile has these tokens, and they were written; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn load<const N: usize>(&self, t: usize) -> Acc<N> {
        let mut acc = [[_mm256_setzero_ps(); 2]; N];
        for (i, acc) in acc.iter_mut().enumerate() {
            // SAFETY: `n_rows` cells of a token of the tile, which is borrowed exclusively; a register is 8 numbers.
            unsafe {
                let cells = self.at.add((t + i) * self.stride);
                if self.n_rows == ROWS {
                    *acc = [_mm256_loadu_ps(cells), _mm256_loadu_ps(cells.add(8))];
                } else {
                    std::ptr::copy_nonoverlapping(cells, acc.as_mut_ptr().cast::<f32>(), self.n_rows);
                }
            }
        }
        acc
    }

    /// Stores the results of tokens `t ..`.
    ///
    /// # Safety
    /// The tile has these tokens; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn store<const N: usize>(&mut self, t: usize, acc: &Acc<N>) {
        for (i, acc) in acc.iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe {
                let cells = self.at.add((t + i) * self.stride);
                if self.n_rows == ROWS {
                    _mm256_storeu_ps(cells, acc[0]);
                    _mm256_storeu_ps(cells.add(8), acc[1]);
                } else {
                    std::ptr::copy_nonoverlapping(acc.as_ptr().cast::<f32>(), cells, self.n_rows);
                }
            }
        }
    }
}
