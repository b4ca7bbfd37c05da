//! The product of quantized weights and quantized activations, for every format.

use std::arch::x86_64::*;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use super::results::PanelOut;
use super::scales::Scales;
use super::source::Source;
use super::stage::{STRETCH, Stage};
use super::staged::{Staged, StagedBlock, unpack};
use super::tile::tile;
use crate::TileMut;
use crate::avx2::matmul::codec::{Codec, MAX_UNIT};
use crate::avx2::matmul::quantized;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Unpack, Weights};
use crate::panels::order::{Panels, Visit, tiles};
use crate::panels::stream::PREFETCHED;
use crate::panels::{self, BLOCK, ROWS, Tokens};

/// Most tokens of a tile.
const MAX_TOKENS: usize = 8;
/// Tokens up to which it is quicker to unpack panels for each tile than to write them down unpacked.
const STREAMED: usize = 32;
/// Bytes of packed panels that stay in the second-level cache.
const CACHED: usize = 256 << 10;
/// Panels that are unpacked at a time for more tokens: they stay in the second-level cache.
const GROUP: usize = 8;
const _: () = assert!(STRETCH.is_multiple_of(MAX_UNIT));

/// The kernel for one format.
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

impl<C: Codec + Source> MatmulKernel for Quantized<C> {
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
        // SAFETY: installed, as is `avx2`.
        unsafe { quantized::pack_panel::<C>(src, n_rows, k, dst) }
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

/// A panel from block `b` on, which starts a unit.
fn units<C: Source>(panel: &[u8], b: usize) -> *const u8 {
    panel[b / C::BLOCKS * C::BYTES..].as_ptr()
}

/// Panels for a few tokens, unpacked in registers once for each tile of tokens.
///
/// # Safety
/// A panel holds `n_blocks` blocks of 32 columns, `x` has as many tokens as `out`; the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn stream_groups<C: Source>(panels: &Panels<'_>, n_blocks: usize, x: Tokens, out: &mut TileMut<'_>) {
    for Visit { panels: group, t, n } in panels.visits(out.m(), MAX_TOKENS, CACHED) {
        let x = x.at(t, 0);
        // SAFETY: these tokens and panels are among the caller's.
        unsafe {
            match n {
                1 => stream::<C, 1>(panels, group, n_blocks, x, t, out),
                2 => stream::<C, 2>(panels, group, n_blocks, x, t, out),
                3 => stream::<C, 3>(panels, group, n_blocks, x, t, out),
                4 => stream::<C, 4>(panels, group, n_blocks, x, t, out),
                5 => stream::<C, 5>(panels, group, n_blocks, x, t, out),
                6 => stream::<C, 6>(panels, group, n_blocks, x, t, out),
                7 => stream::<C, 7>(panels, group, n_blocks, x, t, out),
                _ => stream::<C, 8>(panels, group, n_blocks, x, t, out),
            }
        }
    }
}

/// A group of panels for the `N` tokens from `t` of `out` on, with which `x` starts.
///
/// # Safety
/// As for [`stream_groups`]; there are these panels and tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn stream<C: Source, const N: usize>(
    panels: &Panels<'_>,
    group: Range<usize>,
    n_blocks: usize,
    x: Tokens,
    t: usize,
    out: &mut TileMut<'_>,
) {
    let mut stage = MaybeUninit::uninit();
    for panel in group.clone() {
        let mut acc = [_mm512_setzero_ps(); N];
        for b in (0..n_blocks).step_by(STRETCH) {
            let count = STRETCH.min(n_blocks - b);
            // SAFETY: `count` blocks from `b` on are among the caller's; a stretch is whole units.
            unsafe {
                // A row that is one stretch is staged for the first panel and stays.
                if panel == group.start || n_blocks > STRETCH {
                    Stage::fill::<C::Scales>(&mut stage, x.at(0, b), count);
                }
                acc = tile::<C, N>(
                    units::<C>(panels.get(panel), b),
                    count / C::BLOCKS,
                    x.at(0, b),
                    &stage,
                    n_blocks <= PREFETCHED || C::BLOCKS > 1,
                    acc,
                );
            }
        }
        let row = out.cols().start + panel * ROWS;
        // SAFETY: the caller's tokens.
        unsafe { PanelOut::new(out, row).store(t, &acc) };
    }
}

/// A stretch of up to [`GROUP`] panels, unpacked.
type Group<S> = [[StagedBlock<S>; STRETCH]; GROUP];

/// Panels for many tokens: a stretch of a group of them is unpacked, then multiplied with all tokens.
///
/// # Safety
/// As for [`stream_groups`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn batch<C: Source>(panels: &Panels<'_>, n_blocks: usize, x: Tokens, out: &mut TileMut<'_>) {
    let mut group: MaybeUninit<Group<C::Scales>> = MaybeUninit::uninit();
    let staged = group.as_mut_ptr().cast::<StagedBlock<C::Scales>>();
    let (m, n_panels) = (out.m(), panels.count());
    let n_stretches = n_blocks.div_ceil(STRETCH).max(1); // without any columns there is one, empty, which stores zeros
    let stretch = n_blocks.div_ceil(n_stretches).next_multiple_of(C::BLOCKS); // of like length, none too short to be worth its start
    let mut panel = 0;
    while panel < n_panels {
        let left = n_panels - panel;
        let n = left.div_ceil(left.div_ceil(GROUP)); // groups of like size
        for b in (0..n_stretches).map(|i| i * stretch) {
            let count = stretch.min(n_blocks.saturating_sub(b));
            for p in 0..n {
                for i in (0..count).step_by(C::BLOCKS) {
                    // SAFETY: a unit of the panel; there is room for a stretch of each panel of a group.
                    unsafe { unpack::<C>(units::<C>(panels.get(panel + p), b + i), staged.add(p * STRETCH + i)) };
                }
            }
            let part = Part { staged, n_panels: n, count, row: out.cols().start + panel * ROWS, first: b == 0 };
            for (t, n) in tiles(m, MAX_TOKENS) {
                // SAFETY: `count` blocks of each panel are staged, and these tokens and blocks are among the caller's.
                unsafe {
                    match n {
                        1 => part.multiply::<1>(x.at(t, b), t, out),
                        2 => part.multiply::<2>(x.at(t, b), t, out),
                        3 => part.multiply::<3>(x.at(t, b), t, out),
                        4 => part.multiply::<4>(x.at(t, b), t, out),
                        5 => part.multiply::<5>(x.at(t, b), t, out),
                        6 => part.multiply::<6>(x.at(t, b), t, out),
                        7 => part.multiply::<7>(x.at(t, b), t, out),
                        _ => part.multiply::<8>(x.at(t, b), t, out),
                    }
                }
            }
        }
        panel += n;
    }
}

/// A staged stretch of a group of panels.
struct Part<S> {
    staged: *const StagedBlock<S>,
    n_panels: usize,
    count: usize, // blocks
    row: usize,   // first row of the first panel
    first: bool,  // whether these are the panels' first blocks
}

impl<S: Scales + 'static> Part<S> {
    /// Adds these blocks to the results of `N` tokens, from token `t` of `out` on. `x` starts with their first block.
    ///
    /// # Safety
    /// The blocks are staged, each panel's a stretch behind the other's; `x` and `out` have the tokens; the CPU has the features.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn multiply<const N: usize>(&self, x: Tokens, t: usize, out: &mut TileMut<'_>) {
        let mut stage = MaybeUninit::uninit();
        // SAFETY: the caller's; results were stored if blocks came before.
        unsafe {
            Stage::fill::<S>(&mut stage, x, self.count);
            for p in 0..self.n_panels {
                let mut out = PanelOut::new(out, self.row + p * ROWS);
                let acc = if self.first { [_mm512_setzero_ps(); N] } else { out.load::<N>(t) };
                let units = self.staged.add(p * STRETCH).cast::<u8>();
                let acc = tile::<Staged<S>, N>(units, self.count, x, &stage, false, acc);
                out.store(t, &acc);
            }
        }
    }
}
