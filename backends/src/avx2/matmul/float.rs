//! Products of float weights: panels of 16 rows, column by column, a row to a lane.
//!
//! Columns are walked in order by one accumulator a row, so what is computed together only decides how well the latency of
//! additions is hidden: a lone token takes several panels at a time, several tokens take one.

#![allow(clippy::needless_range_loop, reason = "panels, tokens and halves index several arrays at once")]

use std::arch::x86_64::*;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use super::results::{Acc, PanelOut};
use super::stored::Stored;
use crate::TileMut;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Unpack, Weights};
use crate::panels::stream::ask_for_floats_ahead;
use crate::panels::{self, ROWS};

/// Most tokens of a tile: their sums fill the registers.
const MAX_TOKENS: usize = 6;
/// Columns that are widened at a time for more tokens: they stay in the first-level cache.
const STAGED_COLUMNS: usize = 256;

/// The kernel for weights stored as `S`.
pub(super) struct Float<S> {
    id: &'static str,
    stored: PhantomData<fn() -> S>,
}

impl<S> Float<S> {
    /// The kernel that prints as `id`.
    pub(super) const fn new(id: &'static str) -> Self {
        Float { id, stored: PhantomData }
    }
}

impl<S> fmt::Debug for Float<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl<S: Stored> MatmulKernel for Float<S> {
    fn id(&self) -> &'static str {
        self.id
    }

    fn format(&self) -> Format {
        S::FORMAT
    }

    fn activation(&self) -> ActivationKind {
        ActivationKind::F32
    }

    fn layout(&self, _n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        panels::layout(S::FORMAT, k)
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        // SAFETY: installed.
        unsafe { pack_panel::<S>(src, n_rows, k, dst) }
    }

    fn unpack(&self) -> Option<Unpack> {
        Some(panels::unpack::unpack)
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        let ActivationData::F32(rows) = x.data else { panic!("{} takes activations in f32", self.id) };
        let (m, k, cols) = (x.m, x.k, out.cols());
        assert!(k == w.k && m == out.m() && cols.start.is_multiple_of(ROWS) && cols.end <= w.n, "{}: shapes do not fit", self.id);
        assert!(rows.len() >= m * k, "{}: activations hold less than {m} rows of {k}", self.id);
        let panel_bytes = ROWS * k * S::BYTES;
        let panels = &w.bytes[cols.start / ROWS * panel_bytes..cols.end.div_ceil(ROWS) * panel_bytes];
        // SAFETY: installed; panels, tokens and tile have the shapes asserted.
        unsafe {
            match m {
                0 => {}
                1 => stream::<S, 1, 4>(panels, rows, k, out),
                2 => stream::<S, 2, 2>(panels, rows, k, out),
                3 => stream::<S, 3, 1>(panels, rows, k, out),
                4 => stream::<S, 4, 1>(panels, rows, k, out),
                5 => stream::<S, 5, 1>(panels, rows, k, out),
                6 => stream::<S, 6, 1>(panels, rows, k, out),
                _ => batch::<S>(panels, rows, k, out),
            }
        }
    }
}

/// Packs a panel; the rows that are missing become zeros.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn pack_panel<S: Stored>(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
    let row_bytes = k * S::BYTES;
    assert!(n_rows <= ROWS && src.len() == n_rows * row_bytes && dst.len() == ROWS * row_bytes, "a panel of {n_rows} rows");
    // SAFETY: the lengths are asserted; the CPU has the features, as for this function.
    unsafe { S::pack(src, n_rows, k, dst) }
}

/// `N` tokens times panels that come from memory, `P` at a time.
///
/// # Safety
/// `panels` are those of the tile's columns, `x` has `N` rows of `k`; the CPU has the features.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn stream<S: Stored, const N: usize, const P: usize>(panels: &[u8], x: &[f32], k: usize, out: &mut TileMut<'_>) {
    let (mut row, end, panel_bytes) = (out.cols().start, out.cols().end, ROWS * k * S::BYTES);
    let mut panel = panels.as_ptr();
    while row < end {
        // SAFETY: the caller's; there are as many panels as rows are left.
        unsafe {
            if end - row > (P - 1) * ROWS {
                let acc = tile::<S, N, P, true>(panel, panel_bytes, x.as_ptr(), k, k, [[[_mm256_setzero_ps(); 2]; N]; P]);
                for (i, acc) in acc.iter().enumerate() {
                    PanelOut::new(out, row + i * ROWS).store(0, acc);
                }
                (row, panel) = (row + P * ROWS, panel.wrapping_add(P * panel_bytes));
            } else {
                let [acc] = tile::<S, N, 1, true>(panel, panel_bytes, x.as_ptr(), k, k, [[[_mm256_setzero_ps(); 2]; N]]);
                PanelOut::new(out, row).store(0, &acc);
                (row, panel) = (row + ROWS, panel.wrapping_add(panel_bytes));
            }
        }
    }
}

/// Many tokens: columns of a panel are widened, then multiplied with all of them.
///
/// # Safety
/// As for [`stream`], with as many rows of `x` as the tile has.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn batch<S: Stored>(panels: &[u8], x: &[f32], k: usize, out: &mut TileMut<'_>) {
    let (m, cols) = (out.m(), out.cols());
    let mut stage = [[MaybeUninit::<__m256>::uninit(); 2]; STAGED_COLUMNS];
    for (i, row) in cols.step_by(ROWS).enumerate() {
        let panel = panels[i * ROWS * k * S::BYTES..].as_ptr();
        let mut out = PanelOut::new(out, row);
        let mut first = 0;
        // Without any columns there is one empty stretch, which stores zeros.
        while first < k || first == 0 {
            let count = STAGED_COLUMNS.min(k - first);
            for (j, stage) in stage[..count].iter_mut().enumerate() {
                // SAFETY: the panel has column `first + j`.
                let w = unsafe { S::load(panel.add((first + j) * ROWS * S::BYTES)) };
                *stage = [MaybeUninit::new(w[0]), MaybeUninit::new(w[1])];
            }
            let mut t = 0;
            while t < m {
                let n = (m - t).div_ceil((m - t).div_ceil(MAX_TOKENS)); // tiles of like size
                // SAFETY: `count` columns are staged, and the tokens are the caller's.
                unsafe {
                    let x = x.as_ptr().add(t * k + first);
                    let staged = stage.as_ptr().cast();
                    match n {
                        1 => part::<1>(staged, x, k, count, t, first == 0, &mut out),
                        2 => part::<2>(staged, x, k, count, t, first == 0, &mut out),
                        3 => part::<3>(staged, x, k, count, t, first == 0, &mut out),
                        4 => part::<4>(staged, x, k, count, t, first == 0, &mut out),
                        5 => part::<5>(staged, x, k, count, t, first == 0, &mut out),
                        _ => part::<6>(staged, x, k, count, t, first == 0, &mut out),
                    }
                }
                t += n;
            }
            first += STAGED_COLUMNS;
        }
    }
}

/// Adds `count` staged columns to the results of tokens `t ..`.
///
/// # Safety
/// As for [`tile`]; `out` has the tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn part<const N: usize>(staged: *const u8, x: *const f32, k: usize, count: usize, t: usize, first: bool, out: &mut PanelOut<'_>) {
    // SAFETY: the caller's; results were stored if columns came before.
    unsafe {
        let acc = if first { [[_mm256_setzero_ps(); 2]; N] } else { out.load::<N>(t) };
        let [acc] = tile::<f32, N, 1, false>(staged, 0, x, k, count, [acc]);
        out.store(t, &acc);
    }
}

/// Adds `count` columns of `P` panels times `N` tokens. With `STREAM` the panels are on their way from memory.
///
/// # Safety
/// `P` panels stand `panel_bytes` apart from `panel` on, `N` tokens `k` apart from `x` on; each has `count` columns; the CPU
/// has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<S: Stored, const N: usize, const P: usize, const STREAM: bool>(
    panel: *const u8,
    panel_bytes: usize,
    x: *const f32,
    k: usize,
    count: usize,
    mut acc: [Acc<N>; P],
) -> [Acc<N>; P] {
    for j in 0..count {
        for i in 0..P {
            let at = panel.wrapping_add(i * panel_bytes + j * ROWS * S::BYTES);
            if STREAM {
                ask_for_floats_ahead::<_MM_HINT_T0>(at, P);
            }
            // SAFETY: the caller's.
            let w = unsafe { S::load(at) };
            for t in 0..N {
                // SAFETY: the caller's.
                let x = _mm256_broadcast_ss(unsafe { &*x.add(t * k + j) });
                for half in 0..2 {
                    acc[i][t][half] = _mm256_fmadd_ps(w[half], x, acc[i][t][half]);
                }
            }
        }
    }
    acc
}
