//! Where the results of a panel go.

use std::arch::aarch64::*;
use std::marker::PhantomData;

use crate::TileMut;
use crate::panels::ROWS;

/// Results of `Q` quads of rows for `N` tokens.
pub(super) type Acc<const N: usize, const Q: usize> = [[float32x4_t; N]; Q];

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

    /// The cells of quad `quad` of token `t`, and how many of the 4 there are.
    fn cells(&self, t: usize, quad: usize) -> (*mut f32, usize) {
        (self.at.wrapping_add(t * self.stride + 4 * quad), self.n_rows.saturating_sub(4 * quad).min(4))
    }

    /// What was stored for quads `first ..` of `n` tokens from `t` on, and zeros for the rest of `N`.
    ///
    /// # Safety
    /// The tile has these tokens, and they were written.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn load<const N: usize, const Q: usize>(&self, first: usize, t: usize, n: usize) -> Acc<N, Q> {
        let mut acc = [[vdupq_n_f32(0.0); N]; Q];
        for (quad, acc) in acc.iter_mut().enumerate() {
            for (i, acc) in acc.iter_mut().enumerate().take(n) {
                let (cells, there) = self.cells(t + i, first + quad);
                // SAFETY: cells of a token of the tile, which is borrowed exclusively; a register is 4 numbers.
                unsafe {
                    if there == 4 {
                        *acc = vld1q_f32(cells);
                    } else {
                        let mut some = [0.0; 4];
                        std::ptr::copy_nonoverlapping(cells, some.as_mut_ptr(), there);
                        *acc = vld1q_f32(some.as_ptr());
                    }
                }
            }
        }
        acc
    }

    /// Stores the results of quads `first ..` for the first `n` of `N` tokens, from `t` on.
    ///
    /// # Safety
    /// The tile has these tokens.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn store<const N: usize, const Q: usize>(&mut self, first: usize, t: usize, n: usize, acc: &Acc<N, Q>) {
        for (quad, acc) in acc.iter().enumerate() {
            for (i, acc) in acc.iter().enumerate().take(n) {
                let (cells, there) = self.cells(t + i, first + quad);
                // SAFETY: as in `load`.
                unsafe {
                    if there == 4 {
                        vst1q_f32(cells, *acc);
                    } else {
                        let mut some = [0.0; 4];
                        vst1q_f32(some.as_mut_ptr(), *acc);
                        std::ptr::copy_nonoverlapping(some.as_ptr(), cells, there);
                    }
                }
            }
        }
    }
}
