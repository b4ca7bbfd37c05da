//! The product of quantized weights and quantized activations, for every codec.

use std::arch::x86_64::*;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use super::codec::{Codec, MAX_UNIT};
use super::results::PanelOut;
use super::staged::{self, Staged, StagedBlock};
use super::tile::tile;
use crate::TileMut;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Unpack, Weights};
use crate::panels::stream::PREFETCHED;
use crate::panels::{self, BLOCK, ROWS, Tokens};

/// Tokens up to which weights are unpacked in the inner loop, on their only way through the caches.
const MAX_STREAMED: usize = 8;
/// Blocks of a panel that are unpacked at a time for more tokens: they stay in the first-level cache.
const STAGED_BLOCKS: usize = 32;
const _: () = assert!(STAGED_BLOCKS.is_multiple_of(MAX_UNIT));
/// Most tokens of a tile: their sums fill the registers.
const MAX_TOKENS: usize = 4;

/// The kernel for one codec.
pub(super) struct Quantized<C> {
    id: &'static str,
    codec: PhantomData<fn() -> C>,
}

impl<C> Quantized<C> {
    /// The kernel that prints as `id`.
    pub(super) const fn new(id: &'static str) -> Self {
        Quantized { id, codec: PhantomData }
    }
}

impl<C> fmt::Debug for Quantized<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl<C: Codec> MatmulKernel for Quantized<C> {
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
        // SAFETY: installed.
        unsafe { pack_panel::<C>(src, n_rows, k, dst) }
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
                    stream::<C>(panel, k / BLOCK, tokens, m, &mut out);
                } else {
                    batch::<C>(panel, k / BLOCK, tokens, m, &mut out);
                }
            }
        }
    }
}

/// Packs a panel unit by unit; the rows that are missing become zeros.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn pack_panel<C: Codec>(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
    const ZEROS: [u8; 256] = [0; 256]; // scale 0 in every format
    let row_bytes = C::FORMAT.row_bytes(k).expect("a shape that layout accepted");
    assert!(n_rows <= ROWS && src.len() == n_rows * row_bytes && Some(dst.len()) == C::panel_bytes(k), "a panel of {n_rows} rows");
    let block_bytes = C::FORMAT.block_bytes();
    for (i, unit) in dst.chunks_exact_mut(C::UNIT_BYTES).enumerate() {
        let mut rows = [&ZEROS[..block_bytes]; ROWS];
        for (r, row) in rows[..n_rows].iter_mut().enumerate() {
            *row = &src[r * row_bytes + i * block_bytes..][..block_bytes];
        }
        // SAFETY: the CPU has the features, as for this function.
        unsafe { C::pack(&rows, unit) }
    }
}

/// One panel for at most [`MAX_STREAMED`] tokens.
///
/// # Safety
/// The panel holds `n_blocks` blocks of 32 columns, `x` and `out` have `m` tokens; the CPU has the features.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn stream<C: Codec>(panel: &[u8], n_blocks: usize, x: Tokens, m: usize, out: &mut PanelOut<'_>) {
    let part = Part { units: panel.as_ptr(), n_units: n_blocks / C::UNIT, x, t: 0, first: true };
    // SAFETY: the caller's.
    unsafe {
        match m {
            0 => {}
            1 => part.run::<C, 1, 0, 1, true>(out),
            2 => part.run::<C, 2, 0, 2, true>(out),
            3 => part.run::<C, 3, 0, 3, true>(out),
            4 => part.run::<C, 4, 0, 4, true>(out),
            5 => part.run::<C, 3, 2, 5, true>(out),
            6 => part.run::<C, 3, 3, 6, true>(out),
            7 => part.run::<C, 4, 3, 7, true>(out),
            _ => part.run::<C, 4, 4, 8, true>(out),
        }
    }
}

/// One panel for many tokens: a stretch of it is unpacked, then multiplied with all of them.
///
/// # Safety
/// As for [`stream`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn batch<C: Codec>(panel: &[u8], n_blocks: usize, x: Tokens, m: usize, out: &mut PanelOut<'_>) {
    let mut stage: MaybeUninit<[StagedBlock<C::Head>; STAGED_BLOCKS]> = MaybeUninit::uninit();
    let stage = stage.as_mut_ptr().cast::<StagedBlock<C::Head>>();
    // Stretches of equal length, so that none is too short to be worth its start.
    let n_stretches = n_blocks.div_ceil(STAGED_BLOCKS);
    let stretch = n_blocks.div_ceil(n_stretches.max(1)).next_multiple_of(C::UNIT);
    let mut b = 0;
    // Without any columns there is one empty stretch, which stores zeros.
    while b < n_blocks || b == 0 {
        let count = stretch.min(n_blocks - b);
        for i in (0..count).step_by(C::UNIT) {
            let unit = &panel[(b + i) / C::UNIT * C::UNIT_BYTES..][..C::UNIT_BYTES];
            // SAFETY: a unit; the stage has room for a stretch.
            unsafe { staged::unpack::<C>(unit.as_ptr(), stage.add(i)) };
        }
        let mut t = 0;
        while t < m {
            let n = (m - t).div_ceil((m - t).div_ceil(MAX_TOKENS)); // tiles of like size
            let part = Part { units: stage.cast::<u8>(), n_units: count, x: x.at(t, b), t, first: b == 0 };
            // SAFETY: `count` blocks are staged, and these tokens and blocks are among the caller's.
            unsafe {
                match n {
                    1 => part.run::<Staged<C>, 1, 0, 1, false>(out),
                    2 => part.run::<Staged<C>, 2, 0, 2, false>(out),
                    3 => part.run::<Staged<C>, 3, 0, 3, false>(out),
                    _ => part.run::<Staged<C>, 4, 0, 4, false>(out),
                }
            }
            t += n;
        }
        b += stretch.max(1);
    }
}

/// Some units of a panel and some tokens.
struct Part {
    units: *const u8,
    n_units: usize,
    x: Tokens,   // from the first token and block on
    t: usize,    // first token
    first: bool, // whether these are the panel's first units
}

impl Part {
    /// Adds these units to the results of `N` tokens, see [`tile`]. With `STREAM` they are rows on their way from memory.
    ///
    /// # Safety
    /// As for [`tile`]; `out` has the tokens.
    #[inline(never)]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run<C: Codec, const A: usize, const B: usize, const N: usize, const STREAM: bool>(&self, out: &mut PanelOut<'_>) {
        // SAFETY: the caller's; results were stored if units came before.
        unsafe {
            let acc = if self.first { [[_mm256_setzero_ps(); 2]; N] } else { out.load::<N>(self.t) };
            let prefetch = STREAM && self.n_units * C::UNIT <= PREFETCHED;
            let acc = tile::<C, A, B, N>(self.units, self.n_units, self.x, prefetch, acc);
            out.store(self.t, &acc);
        }
    }
}
