//! Products of float weights: panels of 16 rows, column by column, a row to a lane.
//!
//! Columns are walked in order by one accumulator a row, so what is computed together only decides how well the latency of
//! additions is hidden: up to four tokens take four panels at a time, more take two.

#![allow(clippy::needless_range_loop, reason = "panels and tokens index several arrays at once")]

use std::arch::x86_64::*;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use half::{bf16, f16};
use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use super::results::PanelOut;
use crate::TileMut;
use crate::avx2::matmul::float;
use crate::avx2::matmul::stored::Stored;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Unpack, Weights};
use crate::panels::order::tiles;
use crate::panels::stream::ask_for_floats_ahead;
use crate::panels::{self, ROWS};

/// Most tokens of a tile of two panels: their sums fill the registers.
const MAX_TOKENS: usize = 12;
/// Panels that are widened at a time for more tokens: so often are the tokens read anew.
const GROUP: usize = 8;
/// Columns of them, at most: with these they stay in the second-level cache.
const STRETCH: usize = 512;

/// A float that weights are stored as, 16 at a time.
pub(super) trait Wide: Stored {
    /// 16 weights, widened exactly.
    ///
    /// # Safety
    /// `at` holds them; the CPU has the features.
    unsafe fn widen(at: *const u8) -> __m512;
}

impl Wide for f32 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn widen(at: *const u8) -> __m512 {
        // SAFETY: 64 bytes, the caller's; no alignment is needed.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }
}

impl Wide for f16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn widen(at: *const u8) -> __m512 {
        // SAFETY: 32 bytes, the caller's; no alignment is needed.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
    }
}

impl Wide for bf16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn widen(at: *const u8) -> __m512 {
        // SAFETY: 32 bytes, the caller's; no alignment is needed.
        let shorts = _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(at.cast()) });
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(shorts))
    }
}

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

impl<S: Wide> MatmulKernel for Float<S> {
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
        // SAFETY: installed, as is `avx2`.
        unsafe { float::pack_panel::<S>(src, n_rows, k, dst) }
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
                2 => stream::<S, 2, 4>(panels, rows, k, out),
                3 => stream::<S, 3, 4>(panels, rows, k, out),
                4 => stream::<S, 4, 4>(panels, rows, k, out),
                5 => stream::<S, 5, 2>(panels, rows, k, out),
                6 => stream::<S, 6, 2>(panels, rows, k, out),
                7 => stream::<S, 7, 2>(panels, rows, k, out),
                8 => stream::<S, 8, 2>(panels, rows, k, out),
                _ => batch::<S>(panels, rows, k, out),
            }
        }
    }
}

/// `N` tokens times panels that come from memory, `P` at a time.
///
/// # Safety
/// `panels` are those of the tile's columns, `x` has `N` rows of `k`; the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn stream<S: Wide, const N: usize, const P: usize>(panels: &[u8], x: &[f32], k: usize, out: &mut TileMut<'_>) {
    let (mut row, end, panel_bytes) = (out.cols().start, out.cols().end, ROWS * k * S::BYTES);
    let mut panel = panels.as_ptr();
    while row < end {
        // SAFETY: the caller's; there are as many panels as rows are left.
        unsafe {
            if end - row > (P - 1) * ROWS {
                let acc = tile::<S, N, P, true>(panel, panel_bytes, x.as_ptr(), k, k, [[_mm512_setzero_ps(); N]; P]);
                for (i, acc) in acc.iter().enumerate() {
                    PanelOut::new(out, row + i * ROWS).store(0, acc);
                }
                (row, panel) = (row + P * ROWS, panel.wrapping_add(P * panel_bytes));
            } else {
                let [acc] = tile::<S, N, 1, true>(panel, panel_bytes, x.as_ptr(), k, k, [[_mm512_setzero_ps(); N]]);
                PanelOut::new(out, row).store(0, &acc);
                (row, panel) = (row + ROWS, panel.wrapping_add(panel_bytes));
            }
        }
    }
}

/// Columns of one panel, widened. (columns, 16 rows)
type Staged = [MaybeUninit<__m512>; STRETCH];

/// Many tokens: columns of a group of panels are widened, then multiplied with all of them.
///
/// # Safety
/// As for [`stream`], with as many rows of `x` as the tile has.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn batch<S: Wide>(panels: &[u8], x: &[f32], k: usize, out: &mut TileMut<'_>) {
    let (m, cols) = (out.m(), out.cols());
    let panel_bytes = ROWS * k * S::BYTES;
    let mut staged: [Staged; GROUP] = [[MaybeUninit::uninit(); STRETCH]; GROUP];
    let n_stretches = k.div_ceil(STRETCH).max(1); // without any columns there is one, empty, which stores zeros
    let stretch = k.div_ceil(n_stretches);
    for (i, row) in cols.clone().step_by(GROUP * ROWS).enumerate() {
        let n_panels = (cols.end - row).div_ceil(ROWS).min(GROUP);
        for first in (0..n_stretches).map(|i| i * stretch) {
            let count = stretch.min(k - first);
            for (p, staged) in staged[..n_panels].iter_mut().enumerate() {
                let panel = panels[(GROUP * i + p) * panel_bytes..].as_ptr();
                for (j, staged) in staged[..count].iter_mut().enumerate() {
                    // SAFETY: the panel has column `first + j`.
                    staged.write(unsafe { S::widen(panel.add((first + j) * ROWS * S::BYTES)) });
                }
            }
            for (t, n) in tiles(m, MAX_TOKENS) {
                for p in (0..n_panels).step_by(2) {
                    let x = x[t * k + first..].as_ptr();
                    let part = Part { staged: &staged[p..n_panels.min(p + 2)], count, x, k, t, first: first == 0, row: row + p * ROWS };
                    // SAFETY: `count` columns of these panels are staged, and the tokens are the caller's.
                    unsafe {
                        match part.staged.len() {
                            1 => part.run_tokens::<1>(n, out),
                            _ => part.run_tokens::<2>(n, out),
                        }
                    }
                }
            }
        }
    }
}

/// Some staged columns and some tokens.
#[derive(Clone, Copy)]
struct Part<'a> {
    staged: &'a [Staged], // of one panel or two
    count: usize,
    x: *const f32, // first token and column
    k: usize,
    t: usize,    // first token
    first: bool, // whether these are the first columns
    row: usize,  // first row
}

impl Part<'_> {
    /// Adds the columns to the results of `n` tokens for `P` panels.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn run_tokens<const P: usize>(&self, n: usize, out: &mut TileMut<'_>) {
        // SAFETY: the caller's.
        unsafe {
            match n {
                12 => self.run::<12, P>(out),
                11 => self.run::<11, P>(out),
                10 => self.run::<10, P>(out),
                9 => self.run::<9, P>(out),
                8 => self.run::<8, P>(out),
                7 => self.run::<7, P>(out),
                6 => self.run::<6, P>(out),
                5 => self.run::<5, P>(out),
                _ => (0..n).for_each(|i| self.token(i).run::<1, P>(out)),
            }
        }
    }

    /// The same for token `i` alone.
    fn token(self, i: usize) -> Self {
        Part { x: self.x.wrapping_add(i * self.k), t: self.t + i, ..self }
    }

    /// Adds the columns to the results of `N` tokens for `P` panels.
    ///
    /// # Safety
    /// `count` columns of `P` panels are staged; `x` and `out` have the tokens; the CPU has the features.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn run<const N: usize, const P: usize>(&self, out: &mut TileMut<'_>) {
        let mut acc = [[_mm512_setzero_ps(); N]; P];
        // SAFETY: the caller's; results were stored if columns came before.
        unsafe {
            if !self.first {
                for p in 0..P {
                    acc[p] = PanelOut::new(out, self.row + p * ROWS).load(self.t);
                }
            }
            let staged = self.staged.as_ptr().cast::<u8>();
            acc = tile::<f32, N, P, false>(staged, size_of::<Staged>(), self.x, self.k, self.count, acc);
            for p in 0..P {
                PanelOut::new(out, self.row + p * ROWS).store(self.t, &acc[p]);
            }
        }
    }
}

/// Adds `count` columns of `P` panels times `N` tokens. With `STREAM` the panels are on their way from memory.
///
/// # Safety
/// `P` panels stand `panel_bytes` apart from `panel` on, `N` tokens `k` apart from `x` on; each has `count` columns; the CPU
/// has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile<S: Wide, const N: usize, const P: usize, const STREAM: bool>(
    panel: *const u8,
    panel_bytes: usize,
    x: *const f32,
    k: usize,
    count: usize,
    mut acc: [[__m512; N]; P],
) -> [[__m512; N]; P] {
    for j in 0..count {
        let mut w = [_mm512_setzero_ps(); P];
        for i in 0..P {
            let at = panel.wrapping_add(i * panel_bytes + j * ROWS * S::BYTES);
            if STREAM {
                ask_for_floats_ahead::<_MM_HINT_T1>(at, P);
            }
            // SAFETY: the caller's.
            w[i] = unsafe { S::widen(at) };
        }
        for t in 0..N {
            // SAFETY: the caller's.
            let x = _mm512_set1_ps(unsafe { *x.add(t * k + j) });
            for i in 0..P {
                acc[i][t] = _mm512_fmadd_ps(w[i], x, acc[i][t]);
            }
        }
    }
    acc
}
