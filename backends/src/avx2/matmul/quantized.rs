//! The product of quantized weights and quantized activations, for every codec.

use std::arch::x86_64::*;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use super::codec::{BLOCK, Codec, Heads, MAX_UNIT, ROWS};
use super::staged::{self, Staged, StagedBlock};
use super::tile::{Acc, Tokens, tile};
use crate::TileMut;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Weights};

/// Tokens up to which weights are unpacked in the inner loop, on their only way through the caches.
const MAX_STREAMED: usize = 8;
/// Blocks of a panel that are unpacked at a time for more tokens: they stay in the first-level cache.
const STEP: usize = 4;
const STAGED_BLOCKS: usize = 32;

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
        match C::FORMAT.row_bytes(k).and_then(|bytes| bytes.checked_mul(ROWS)) {
            Some(panel_bytes) => Ok(PackedLayout { panel_rows: ROWS, panel_bytes, in_place: false }),
            None => Err(Refusal::new(format!("{k} columns are not whole blocks of {}", C::FORMAT.block_len()))),
        }
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        let row_bytes = C::FORMAT.row_bytes(k).expect("a shape that layout accepted");
        assert!(n_rows <= ROWS && src.len() == n_rows * row_bytes && dst.len() == ROWS * row_bytes, "a panel of {n_rows} rows");
        // SAFETY: this kernel is handed out by `install` alone, which has seen the CPU's features.
        unsafe { pack_panel::<C>(src, n_rows, row_bytes, dst) }
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        let ActivationData::Q8(q8) = x.data else { panic!("{} takes activations in q8", self.id) };
        let (m, k, cols) = (x.m, x.k, out.cols());
        let panel_bytes = ROWS * C::FORMAT.row_bytes(k).expect("a shape that layout accepted");
        assert!(k == w.k && m == out.m() && cols.start.is_multiple_of(ROWS) && cols.end <= w.n, "{}: shapes do not fit", self.id);
        assert!(w.bytes.len() >= w.n.div_ceil(ROWS) * panel_bytes, "{}: weights are cut short", self.id);
        assert!(q8.q.len() >= m * k && q8.scale.len() >= m * k / BLOCK, "{}: activations are cut short", self.id);
        assert!(q8.scaled_sum.len() >= m * k / BLOCK && q8.sum.len() >= m * k / 16, "{}: activations are cut short", self.id);
        let tokens = Tokens::new(&q8, k);
        // SAFETY: this kernel is handed out by `install` alone, which has seen the CPU's features; shapes are checked above.
        unsafe {
            for row in cols.clone().step_by(ROWS) {
                let panel = w.bytes.as_ptr().add(row / ROWS * panel_bytes);
                let mut out = PanelOut { at: out.as_mut_ptr().add(row - cols.start), stride: out.stride(), rows: ROWS.min(cols.end - row) };
                if m <= MAX_STREAMED { stream::<C>(panel, k, tokens, m, &mut out) } else { batch::<C>(panel, k, tokens, m, &mut out) }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack_panel<C: Codec>(src: &[u8], n_rows: usize, row_bytes: usize, dst: &mut [u8]) {
    const ZERO: [u8; 256] = [0; 256]; // a block of zeros has scale 0 in every format
    let block_bytes = C::FORMAT.block_bytes();
    for (i, unit) in dst.chunks_exact_mut(C::UNIT_BYTES).enumerate() {
        let mut rows = [&ZERO[..block_bytes]; ROWS];
        for (r, row) in rows[..n_rows].iter_mut().enumerate() {
            *row = &src[r * row_bytes + i * block_bytes..][..block_bytes];
        }
        // SAFETY: the caller's.
        unsafe { C::pack(&rows, unit) }
    }
}

/// Where the results of a panel go: `rows` cells of each token.
struct PanelOut {
    at: *mut f32,
    stride: usize,
    rows: usize,
}

impl PanelOut {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load<const N: usize>(&self, token: usize) -> Acc<N> {
        let mut acc = [[_mm256_setzero_ps(); 2]; N];
        for (t, acc) in acc.iter_mut().enumerate() {
            unsafe {
                let cells = self.at.add((token + t) * self.stride);
                if self.rows == ROWS {
                    *acc = [_mm256_loadu_ps(cells), _mm256_loadu_ps(cells.add(8))];
                } else {
                    std::ptr::copy_nonoverlapping(cells, (&raw mut *acc).cast::<f32>(), self.rows);
                }
            }
        }
        acc
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn store<const N: usize>(&mut self, token: usize, acc: &Acc<N>) {
        for (t, acc) in acc.iter().enumerate() {
            unsafe {
                let cells = self.at.add((token + t) * self.stride);
                if self.rows == ROWS {
                    _mm256_storeu_ps(cells, acc[0]);
                    _mm256_storeu_ps(cells.add(8), acc[1]);
                } else {
                    std::ptr::copy_nonoverlapping((&raw const *acc).cast::<f32>(), cells, self.rows);
                }
            }
        }
    }
}

/// One panel for at most [`MAX_STREAMED`] tokens.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn stream<C: Codec>(panel: *const u8, k: usize, x: Tokens, m: usize, out: &mut PanelOut) {
    let n_units = k / (BLOCK * C::UNIT);
    unsafe {
        match m {
            0 => {}
            1 => run::<C, 1, 0, 1, true>(panel, n_units, x, 0, true, out),
            2 => run::<C, 2, 0, 2, true>(panel, n_units, x, 0, true, out),
            3 => run::<C, 3, 0, 3, true>(panel, n_units, x, 0, true, out),
            4 => run::<C, 4, 0, 4, true>(panel, n_units, x, 0, true, out),
            5 => run::<C, 3, 2, 5, true>(panel, n_units, x, 0, true, out),
            6 => run::<C, 3, 3, 6, true>(panel, n_units, x, 0, true, out),
            7 => run::<C, 4, 3, 7, true>(panel, n_units, x, 0, true, out),
            _ => run::<C, 4, 4, 8, true>(panel, n_units, x, 0, true, out),
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run<C: Codec, const A: usize, const B: usize, const T: usize, const STREAM: bool>(
    units: *const u8,
    n_units: usize,
    x: Tokens,
    token: usize,
    first: bool,
    out: &mut PanelOut,
) {
    unsafe {
        let mut acc = if first { [[_mm256_setzero_ps(); 2]; T] } else { out.load::<T>(token) };
        tile::<C, A, B, T, STREAM>(units, n_units, x, &mut acc);
        out.store(token, &acc);
    }
}

/// One panel for many tokens.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn batch<C: Codec>(panel: *const u8, k: usize, x: Tokens, m: usize, out: &mut PanelOut) {
    let mut stage: MaybeUninit<[StagedBlock<C::Head>; STAGED_BLOCKS]> = MaybeUninit::uninit();
    let stage = stage.as_mut_ptr().cast::<StagedBlock<C::Head>>();
    let mut room: Heads<C::Head> = [const { MaybeUninit::uninit() }; MAX_UNIT];
    let n_blocks = k / BLOCK;
    let step = STEP;
    unsafe {
        for b in (0..n_blocks).step_by(STAGED_BLOCKS) {
            let count = STAGED_BLOCKS.min(n_blocks - b);
            for i in (0..count).step_by(C::UNIT) {
                staged::unpack::<C>(panel.add((b + i) / C::UNIT * C::UNIT_BYTES), stage.add(i), &mut room);
            }
            let mut t = 0;
            while t < m {
                let (units, x, first) = (stage.cast::<u8>(), x.at(t, b), b == 0);
                let n = (m - t).min(step);
                match n {
                    1 => run::<Staged<C>, 1, 0, 1, false>(units, count, x, t, first, out),
                    2 => run::<Staged<C>, 2, 0, 2, false>(units, count, x, t, first, out),
                    3 => run::<Staged<C>, 3, 0, 3, false>(units, count, x, t, first, out),
                    4 => run::<Staged<C>, 4, 0, 4, false>(units, count, x, t, first, out),
                    5 => run::<Staged<C>, 5, 0, 5, false>(units, count, x, t, first, out),
                    _ => run::<Staged<C>, 6, 0, 6, false>(units, count, x, t, first, out),
                }
                t += n;
            }
        }
    }
}
