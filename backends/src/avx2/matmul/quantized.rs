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
use crate::panels::order::{Panels, Visit, tiles};
use crate::panels::stream::PREFETCHED;
use crate::panels::{self, BLOCK, ROWS, Tokens};

/// Tokens up to which it is quicker to unpack panels for each tile than to write them down unpacked.
const STREAMED: usize = 32;
/// Most tokens of a tile of packed panels.
const MAX_STREAMED: usize = 8;
/// Bytes of packed panels that stay in the second-level cache, the smallest there is.
const CACHED: usize = 128 << 10;
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
        let panels = Panels::new(w.bytes, panel_bytes, cols);
        // SAFETY: installed; panels have their length, and the tokens and the tile have the shape asserted.
        unsafe {
            match m {
                0 => {}
                1..=STREAMED => stream_groups::<C>(&panels, k / BLOCK, tokens, out),
                _ => batch::<C>(&panels, k / BLOCK, tokens, out),
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

/// Panels for a few tokens, unpacked in registers once for each tile of tokens.
///
/// # Safety
/// A panel holds `n_blocks` blocks of 32 columns, `x` has as many tokens as `out`; the CPU has the features.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn stream_groups<C: Codec>(panels: &Panels<'_>, n_blocks: usize, x: Tokens, out: &mut TileMut<'_>) {
    for Visit { panels: group, t, n } in panels.visits(out.m(), MAX_STREAMED, CACHED) {
        let (x, n_units) = (x.at(t, 0), n_blocks / C::UNIT);
        for i in group {
            let part = Part { units: panels.get(i).as_ptr(), n_units, x, t, first: true };
            let row = out.cols().start + i * ROWS;
            let out = &mut PanelOut::new(out, row);
            // SAFETY: these tokens and this panel are among the caller's.
            unsafe {
                match n {
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
    }
}

/// Panels for many tokens: a stretch of one is unpacked, then multiplied with all of them.
///
/// # Safety
/// As for [`stream_groups`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn batch<C: Codec>(panels: &Panels<'_>, n_blocks: usize, x: Tokens, out: &mut TileMut<'_>) {
    let mut stage: MaybeUninit<[StagedBlock<C::Head>; STAGED_BLOCKS]> = MaybeUninit::uninit();
    let stage = stage.as_mut_ptr().cast::<StagedBlock<C::Head>>();
    let (m, first_row) = (out.m(), out.cols().start);
    // Stretches of equal length, so that none is too short to be worth its start.
    let n_stretches = n_blocks.div_ceil(STAGED_BLOCKS).max(1); // without any columns there is one, empty, which stores zeros
    let stretch = n_blocks.div_ceil(n_stretches).next_multiple_of(C::UNIT);
    for i in 0..panels.count() {
        let (panel, out) = (panels.get(i), &mut PanelOut::new(out, first_row + i * ROWS));
        for b in (0..n_stretches).map(|i| i * stretch) {
            let count = stretch.min(n_blocks.saturating_sub(b));
            for j in (0..count).step_by(C::UNIT) {
                let unit = &panel[(b + j) / C::UNIT * C::UNIT_BYTES..][..C::UNIT_BYTES];
                // SAFETY: a unit; the stage has room for a stretch.
                unsafe { staged::unpack::<C>(unit.as_ptr(), stage.add(j)) };
            }
            for (t, n) in tiles(m, MAX_TOKENS) {
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
            }
        }
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
