//! The contract of a matrix product: how one weight format is laid out and multiplied.

use std::fmt;
use std::ops::Range;

use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::format::Format;

use crate::backend::Refusal;
use crate::tile::TileMut;

/// Where the packed weights of a matrix stand: panels of `panel_rows` rows, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedLayout {
    /// Rows in a panel; the last panel is padded to it. Threads share out whole panels.
    pub panel_rows: usize,
    /// Bytes of a panel.
    pub panel_bytes: usize,
    /// The panel is the file's own bytes: nothing is packed.
    pub in_place: bool,
}

/// A matrix of `n` rows and `k` columns as [`MatmulKernel::multiply`] takes it.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Rows (outputs).
    pub n: usize,
    /// Columns (inputs).
    pub k: usize,
    /// What the kernel's own `layout(n, k)` said.
    pub layout: PackedLayout,
    /// Panels, aligned to 64 bytes unless in place. (n.div_ceil(panel_rows) * panel_bytes; in place: n rows)
    pub bytes: &'a [u8],
}

/// Widens columns `cols` (whole blocks) of a panel: weight `j` of row `r` goes to `out[(j - cols.start) * stride + r]`.
pub type Unpack = fn(format: Format, panel: &[u8], cols: Range<usize>, out: &mut [f32], stride: usize);

/// A kernel for one weight format. One layout serves decode and prefill.
///
/// A kernel is single-threaded, allocates nothing and logs nothing.
pub trait MatmulKernel: Sync + fmt::Debug {
    /// Name and specification: `backend:weights·activations:tile`, such as `avx2:q4_0·q8:16x4`.
    fn id(&self) -> &'static str;

    /// The format it multiplies.
    fn format(&self) -> Format;

    /// What `multiply` wants as `x`.
    fn activation(&self) -> ActivationKind;

    /// Whether the results equal the reference kernel's bit for bit. A kernel that adds in another order says no, and is held to
    /// the bound of a sum in f32.
    fn exact(&self) -> bool {
        true
    }

    /// How it wants `n` rows of `k` weights packed, or why it cannot multiply that shape.
    fn layout(&self, n: usize, k: usize) -> Result<PackedLayout, Refusal>;

    /// Packs one panel: `src` holds `n_rows <= panel_rows` rows of `k` weights as GGUF stores them; `dst` is all of the
    /// panel, whose missing rows must come out as zero weights. Never called for an in-place layout.
    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]);

    /// `out[i][r] = sum over k of w[r][k] * x[i][k]` for all `x.m` tokens and the rows `r` in `out.cols()`.
    ///
    /// Requires: `out.cols()` starts at a multiple of `panel_rows` and ends at one or at `n`; `x` is of the kind asked for.
    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>);

    /// The kernel that multiplies `m` tokens in place of this one, from the same panels, if it leaves them to another.
    fn instead(&self, m: usize) -> Option<&'static dyn MatmulKernel> {
        let _ = m;
        None
    }

    /// How others can read its panels, if they may: for kernels that keep this one's packing but multiply in another way.
    fn unpack(&self) -> Option<Unpack> {
        None
    }
}
