//! Products of many tokens: weights and activations widened to f32, a block at a time, and multiplied by `cblas_sgemm`.
//!
//! The scratch is two arrays on the stack whatever the shape. Columns go in stretches of [`COLUMNS`], so an output is a sum of
//! sums: the same for any split into rows, but not for any number of tokens.

use std::sync::{Mutex, PoisonError};

use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations, Q8, Q8_BLOCK};
use rml_kernels_ref::format::Format;

use super::{NAME, cblas};
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Unpack, Weights};
use crate::tile::TileMut;

/// Fewer tokens than this are left to the kernel that packed: widening the weights would take longer than the product.
const MIN_TOKENS: usize = 16;
/// Columns that are widened at a time: a multiple of every format's block.
const COLUMNS: usize = 256;
/// Rows of weights that are widened at a time. Activations are widened once for them all.
const ROWS: usize = 128;
/// Tokens whose activations are widened at a time.
const TOKENS: usize = 128;

/// A product over what another kernel packed.
#[derive(Debug)]
struct Sgemm {
    id: &'static str,
    packed: &'static dyn MatmulKernel,
    unpack: Unpack,
}

/// The product over the packing of `packed`; made once for each.
pub(super) fn over(packed: &'static dyn MatmulKernel, unpack: Unpack) -> &'static dyn MatmulKernel {
    static MADE: Mutex<Vec<&'static Sgemm>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kernel) = made.iter().find(|kernel| kernel.packed.id() == packed.id()) {
        return *kernel;
    }
    let (format, activation) = (packed.format().name(), packed.activation().name());
    let id = format!("{NAME}:{format}·{activation}:{ROWS}x{TOKENS}").leak();
    let kernel = Box::leak(Box::new(Sgemm { id, packed, unpack }));
    made.push(kernel);
    kernel
}

impl MatmulKernel for Sgemm {
    fn id(&self) -> &'static str {
        self.id
    }

    fn format(&self) -> Format {
        self.packed.format()
    }

    fn activation(&self) -> ActivationKind {
        self.packed.activation()
    }

    fn exact(&self) -> bool {
        false
    }

    fn layout(&self, n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        let layout = self.packed.layout(n, k)?;
        match ROWS.is_multiple_of(layout.panel_rows) {
            true => Ok(layout),
            false => Err(Refusal::new(format!("panels of {} rows do not make {ROWS}", layout.panel_rows))),
        }
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        self.packed.pack_panel(src, n_rows, k, dst);
    }

    fn instead(&self, m: usize) -> Option<&'static dyn MatmulKernel> {
        (m < MIN_TOKENS).then_some(self.packed)
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        if let Some(kernel) = self.instead(x.m) {
            return kernel.multiply(w, x, out);
        }
        let (m, k, cols) = (x.m, x.k, out.cols());
        assert!(k == w.k && m == out.m() && cols.end <= w.n, "{}: shapes do not fit", self.id);
        if k == 0 {
            return (0..m).for_each(|i| out.row(i).fill(0.0));
        }
        let mut weights = [0.0_f32; COLUMNS * ROWS]; // (columns, rows)
        let mut tokens = [0.0_f32; TOKENS * COLUMNS]; // (tokens, columns)
        let (c, c_stride) = (out.as_mut_ptr(), out.stride());
        for row in cols.clone().step_by(ROWS) {
            let n = ROWS.min(cols.end - row);
            for first in (0..k).step_by(COLUMNS) {
                let count = COLUMNS.min(k - first);
                self.unpack_rows(w, row, n, first..first + count, &mut weights);
                for t in (0..m).step_by(TOKENS) {
                    let m = TOKENS.min(m - t);
                    let a = match x.data {
                        ActivationData::F32(x) => cblas::Rows { numbers: &x[t * k + first..], stride: k },
                        ActivationData::Q8(q8) => {
                            widen(&q8, k, t..t + m, first..first + count, &mut tokens);
                            cblas::Rows { numbers: &tokens, stride: COLUMNS }
                        }
                    };
                    let b = cblas::Rows { numbers: &weights, stride: ROWS };
                    // SAFETY: tokens `t .. t + m` and columns `row .. row + n` are within the tile, as asserted; where there
                    // were columns before, they were written.
                    unsafe {
                        let c = c.add(t * c_stride + (row - cols.start));
                        cblas::multiply((m, n, count), a, b, c, c_stride, first > 0);
                    }
                }
            }
        }
    }
}

impl Sgemm {
    /// Widens columns `columns` of `n` rows from `row` on. `out` is (columns, [`ROWS`]).
    fn unpack_rows(&self, w: &Weights<'_>, row: usize, n: usize, columns: std::ops::Range<usize>, out: &mut [f32]) {
        let PackedLayout { panel_rows, panel_bytes, .. } = w.layout;
        for r in (0..n).step_by(panel_rows) {
            let panel = &w.bytes[(row + r) / panel_rows * panel_bytes..][..panel_bytes];
            (self.unpack)(self.format(), panel, columns.clone(), &mut out[r..], ROWS);
        }
    }
}

/// Quantized activations as numbers. `out` is (tokens, [`COLUMNS`]).
fn widen(x: &Q8<'_>, k: usize, tokens: std::ops::Range<usize>, columns: std::ops::Range<usize>, out: &mut [f32]) {
    for (t, out) in tokens.zip(out.chunks_exact_mut(COLUMNS)) {
        let row = x.row(t, k);
        let (q, scale) = (&row.q[columns.clone()], &row.scale[columns.start / Q8_BLOCK..]);
        for ((q, out), scale) in q.chunks_exact(Q8_BLOCK).zip(out.chunks_exact_mut(Q8_BLOCK)).zip(scale) {
            for (out, &q) in out.iter_mut().zip(q) {
                *out = f32::from(q) * scale;
            }
        }
    }
}
