//! The product of quantized weights and quantized activations, for every format.

use std::arch::x86_64::*;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use super::results::PanelOut;
use super::source::Source;
use super::stage::{STRETCH, Stage};
use super::staged::{Staged, StagedBlock, unpack};
use super::tile::tile;
use crate::TileMut;
use crate::avx2::matmul::codec::{BLOCK, Codec, MAX_UNIT, ROWS};
use crate::avx2::matmul::quantized;
use crate::avx2::matmul::tokens::Tokens;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Weights};

/// Most tokens of a tile.
const MAX_TOKENS: usize = 8;
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
        quantized::layout::<C>(k)
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        // SAFETY: installed, as is `avx2`.
        unsafe { quantized::pack_panel::<C>(src, n_rows, k, dst) }
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        let ActivationData::Q8(q8) = x.data else { panic!("{} takes activations in q8", self.id) };
        let (m, k, cols) = (x.m, x.k, out.cols());
        let panel_bytes = ROWS * C::FORMAT.row_bytes(k).expect("a shape that layout accepted");
        assert!(k == w.k && m == out.m() && cols.start.is_multiple_of(ROWS) && cols.end <= w.n, "{}: shapes do not fit", self.id);
        let tokens = Tokens::new(&q8, m, k);
        for row in cols.step_by(ROWS) {
            let panel = &w.bytes[row / ROWS * panel_bytes..][..panel_bytes];
            let mut out = PanelOut::new(out, row);
            // SAFETY: installed; the panel has its length, and the tokens and the tile have the shape asserted.
            unsafe {
                match m {
                    0 => {}
                    1 => stream::<C, 1>(panel, k / BLOCK, tokens, &mut out),
                    2 => stream::<C, 2>(panel, k / BLOCK, tokens, &mut out),
                    3 => stream::<C, 3>(panel, k / BLOCK, tokens, &mut out),
                    4 => stream::<C, 4>(panel, k / BLOCK, tokens, &mut out),
                    5 => stream::<C, 5>(panel, k / BLOCK, tokens, &mut out),
                    6 => stream::<C, 6>(panel, k / BLOCK, tokens, &mut out),
                    7 => stream::<C, 7>(panel, k / BLOCK, tokens, &mut out),
                    8 => stream::<C, 8>(panel, k / BLOCK, tokens, &mut out),
                    _ => batch::<C>(panel, k / BLOCK, tokens, m, &mut out),
                }
            }
        }
    }
}

/// One panel for `N` tokens, unpacked in registers on its only way through the caches.
///
/// # Safety
/// The panel holds `n_blocks` blocks of 32 columns, `x` and `out` have `N` tokens; the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn stream<C: Source, const N: usize>(panel: &[u8], n_blocks: usize, x: Tokens, out: &mut PanelOut<'_>) {
    let mut stage = MaybeUninit::uninit();
    let mut acc = [_mm512_setzero_ps(); N];
    for b in (0..n_blocks).step_by(STRETCH) {
        let (units, count) = (panel[b / C::BLOCKS * C::BYTES..].as_ptr(), STRETCH.min(n_blocks - b));
        // SAFETY: `count` blocks from `b` on are among the caller's; a stretch is whole units.
        unsafe {
            Stage::fill::<C::Scales>(&mut stage, x.at(0, b), count);
            acc = tile::<C, N, true>(units, count / C::BLOCKS, x.at(0, b), &stage, acc);
        }
    }
    // SAFETY: the caller's tokens.
    unsafe { out.store(0, &acc) };
}

/// One panel for many tokens: a stretch of it is unpacked, then multiplied with all of them.
///
/// # Safety
/// As for [`stream`], with `m` tokens.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn batch<C: Source>(panel: &[u8], n_blocks: usize, x: Tokens, m: usize, out: &mut PanelOut<'_>) {
    let mut staged: MaybeUninit<[StagedBlock<C::Scales>; STRETCH]> = MaybeUninit::uninit();
    let staged = staged.as_mut_ptr().cast::<StagedBlock<C::Scales>>();
    // Stretches of equal length, so that none is too short to be worth its start.
    let n_stretches = n_blocks.div_ceil(STRETCH);
    let stretch = n_blocks.div_ceil(n_stretches.max(1)).next_multiple_of(C::BLOCKS);
    let mut b = 0;
    // Without any columns there is one empty stretch, which stores zeros.
    while b < n_blocks || b == 0 {
        let count = stretch.min(n_blocks - b);
        for i in (0..count).step_by(C::BLOCKS) {
            let unit = &panel[(b + i) / C::BLOCKS * C::BYTES..][..C::BYTES];
            // SAFETY: a unit; there is room for a stretch.
            unsafe { unpack::<C>(unit.as_ptr(), staged.add(i)) };
        }
        let mut t = 0;
        while t < m {
            let n = (m - t).div_ceil((m - t).div_ceil(MAX_TOKENS)); // tiles of like size
            let part = Part { staged: staged.cast::<u8>(), count, x: x.at(t, b), t, first: b == 0 };
            // SAFETY: `count` blocks are staged, and these tokens and blocks are among the caller's.
            unsafe {
                match n {
                    1 => part.run::<C::Scales, 1>(out),
                    2 => part.run::<C::Scales, 2>(out),
                    3 => part.run::<C::Scales, 3>(out),
                    4 => part.run::<C::Scales, 4>(out),
                    5 => part.run::<C::Scales, 5>(out),
                    6 => part.run::<C::Scales, 6>(out),
                    7 => part.run::<C::Scales, 7>(out),
                    _ => part.run::<C::Scales, 8>(out),
                }
            }
            t += n;
        }
        b += stretch.max(1);
    }
}

/// Some staged blocks and some tokens.
struct Part {
    staged: *const u8,
    count: usize,
    x: Tokens,   // from the first token and block on
    t: usize,    // first token
    first: bool, // whether these are the panel's first blocks
}

impl Part {
    /// Adds these blocks to the results of `N` tokens.
    ///
    /// # Safety
    /// As for [`tile`]; `out` has the tokens.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn run<S: super::scales::Scales + 'static, const N: usize>(&self, out: &mut PanelOut<'_>) {
        let mut stage = MaybeUninit::uninit();
        // SAFETY: the caller's; results were stored if blocks came before.
        unsafe {
            Stage::fill::<S>(&mut stage, self.x, self.count);
            let acc = if self.first { [_mm512_setzero_ps(); N] } else { out.load::<N>(self.t) };
            let acc = tile::<Staged<S>, N, false>(self.staged, self.count, self.x, &stage, acc);
            out.store(self.t, &acc);
        }
    }
}
