//! The product of quantized weights and quantized activations, for every format.

use std::arch::aarch64::*;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use super::multiply::Multiply;
use super::results::PanelOut;
use super::source::{Packed, Source};
use super::staged::{Staged, StagedBlock, unpack};
use super::tile::tile;
use crate::TileMut;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Unpack, Weights};
use crate::panels::{self, BLOCK, ROWS, Tokens};

/// Tokens up to which weights are unpacked in the inner loop, on their only way through the caches.
const MAX_STREAMED: usize = 8;
/// Blocks of a panel that are unpacked at a time for more tokens: they stay in the first-level cache.
const STAGED_BLOCKS: usize = 32;
/// Most tokens of a tile. With more than two a tile has half the quads of a panel, so that its sums fit the registers.
const MAX_TOKENS: usize = 4;

/// The kernel for one format and one way to multiply.
pub(super) struct Quantized<C, M> {
    id: &'static str,
    kind: PhantomData<fn() -> (C, M)>,
}

impl<C, M> Quantized<C, M> {
    /// The kernel that prints as `id`.
    pub(super) const fn new(id: &'static str) -> Self {
        Quantized { id, kind: PhantomData }
    }
}

impl<C, M> fmt::Debug for Quantized<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl<C: Packed, M: Multiply> MatmulKernel for Quantized<C, M> {
    fn id(&self) -> &'static str {
        self.id
    }

    fn format(&self) -> Format {
        C::FORMAT
    }

    fn activation(&self) -> ActivationKind {
        ActivationKind::Q8
    }

    fn layout(&self, _n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        panels::layout_of(C::FORMAT, k, C::panel_bytes(k))
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        panels::pack::pack_panel(C::FORMAT, src, n_rows, k, dst);
    }

    fn unpack(&self) -> Option<Unpack> {
        Some(panels::unpack::unpack)
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        let ActivationData::Q8(q8) = x.data else { panic!("{} takes activations in q8", self.id) };
        let (m, k, cols) = (x.m, x.k, out.cols());
        let panel_bytes = C::panel_bytes(k).expect("a shape that layout accepted");
        assert!(k == w.k && m == out.m() && cols.start.is_multiple_of(ROWS) && cols.end <= w.n, "{}: shapes do not fit", self.id);
        let tokens = Tokens::new(&q8, m, k);
        for row in cols.step_by(ROWS) {
            let panel = &w.bytes[row / ROWS * panel_bytes..][..panel_bytes];
            let mut out = PanelOut::new(out, row);
            // SAFETY: installed; the panel has its length, and the tokens and the tile have the shape asserted.
            unsafe {
                if m <= MAX_STREAMED {
                    stream::<C, M>(panel, k / BLOCK, tokens, m, &mut out);
                } else {
                    batch::<C, M>(panel, k / BLOCK, tokens, m, &mut out);
                }
            }
        }
    }
}

/// One panel for at most [`MAX_STREAMED`] tokens.
///
/// # Safety
/// The panel holds `n_blocks` blocks of 32 columns, `x` and `out` have `m` tokens; the multiplication is installed.
unsafe fn stream<C: Packed, M: Multiply>(panel: &[u8], n_blocks: usize, x: Tokens, m: usize, out: &mut PanelOut<'_>) {
    let part = Part { units: panel.as_ptr(), n_units: n_blocks / C::BLOCKS, first: true };
    // SAFETY: the caller's.
    unsafe {
        match m {
            0 => {}
            1 => part.run::<C, M::Alone, false, 1, 4>(x, 0, 1, out),
            _ => part.multiply::<C, M, false>(x, m, out),
        }
    }
}

/// One panel for many tokens: a stretch of it is unpacked, then multiplied with all of them.
///
/// # Safety
/// As for [`stream`].
unsafe fn batch<C: Packed, M: Multiply>(panel: &[u8], n_blocks: usize, x: Tokens, m: usize, out: &mut PanelOut<'_>) {
    let mut stage: MaybeUninit<[StagedBlock<C::Scales>; STAGED_BLOCKS]> = MaybeUninit::uninit();
    let stage = stage.as_mut_ptr().cast::<StagedBlock<C::Scales>>();
    // Stretches of equal length, so that none is too short to be worth its start.
    let n_stretches = n_blocks.div_ceil(STAGED_BLOCKS);
    let stretch = n_blocks.div_ceil(n_stretches.max(1)).next_multiple_of(C::BLOCKS);
    let mut b = 0;
    // Without any columns there is one empty stretch, which stores zeros.
    while b < n_blocks || b == 0 {
        let count = stretch.min(n_blocks - b);
        for i in (0..count).step_by(C::BLOCKS) {
            let unit = &panel[(b + i) / C::BLOCKS * C::BYTES..][..C::BYTES];
            // SAFETY: a unit; the stage has room for a stretch.
            unsafe { unpack::<C, M>(unit.as_ptr(), stage.add(i)) };
        }
        let part = Part { units: stage.cast::<u8>(), n_units: count, first: b == 0 };
        // SAFETY: `count` blocks are staged, and these blocks of the tokens are among the caller's.
        unsafe { part.multiply::<Staged<C::Scales>, M, true>(x.at(0, b), m, out) };
        b += stretch.max(1);
    }
}

/// Some units of a panel.
struct Part {
    units: *const u8,
    n_units: usize,
    first: bool, // whether these are the panel's first units
}

impl Part {
    /// Adds these units to the results of `m` tokens; `x` starts with their first block.
    ///
    /// # Safety
    /// `units` holds the units, as the multiplication takes them if `ARRANGED`; `x` and `out` have the tokens.
    unsafe fn multiply<C: Source, M: Multiply, const ARRANGED: bool>(&self, x: Tokens, m: usize, out: &mut PanelOut<'_>) {
        let mut t = 0;
        while t < m {
            let n = (m - t).div_ceil((m - t).div_ceil(MAX_TOKENS)); // tiles of like size
            // SAFETY: the caller's.
            unsafe {
                match (n, M::PAIRED) {
                    (1, false) => self.run::<C, M::Alone, ARRANGED, 1, 4>(x, t, n, out),
                    (1, true) | (2, _) => self.run::<C, M, ARRANGED, 2, 4>(x, t, n, out),
                    (3, false) => self.run::<C, M, ARRANGED, 3, 2>(x, t, n, out),
                    _ => self.run::<C, M, ARRANGED, 4, 2>(x, t, n, out),
                }
            }
            t += n;
        }
    }

    /// Adds these units to the results of `n <= N` tokens from `t` on, `Q` quads at a time, see [`tile`]. The tokens that
    /// are missing are copies of the last, whose results go nowhere.
    ///
    /// # Safety
    /// As for [`multiply`](Self::multiply).
    #[inline(never)]
    #[target_feature(enable = "neon")]
    unsafe fn run<C: Source, M: Multiply, const ARRANGED: bool, const N: usize, const Q: usize>(
        &self,
        x: Tokens,
        t: usize,
        n: usize,
        out: &mut PanelOut<'_>,
    ) {
        let mut tokens = [x.at(t, 0); N];
        for (i, token) in tokens.iter_mut().enumerate() {
            *token = x.at(t + i.min(n - 1), 0);
        }
        for first in (0..4).step_by(Q) {
            // SAFETY: the caller's; results were stored if units came before.
            unsafe {
                let acc = if self.first { [[vdupq_n_f32(0.0); N]; Q] } else { out.load::<N, Q>(first, t, n) };
                let acc = tile::<C, M, ARRANGED, N, Q>(self.units, self.n_units, first, &tokens, acc);
                out.store(first, t, n, &acc);
            }
        }
    }
}
