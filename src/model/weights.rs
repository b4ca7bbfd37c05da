//! Weights as the kernels take them: packed at load by the kernel that was chosen, or in place in the mapped file.

use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_kernels_ref::format::Format;

use super::gguf::{Gguf, TensorInfo};
use crate::exec::choice::Choice;
use crate::exec::{Block, Chunks, Pass, zeroed};
use crate::{Error, Result};

/// A matrix of `n` outputs and `k` inputs, with the kernel that packed it.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) kernel: &'static dyn MatmulKernel,
    layout: PackedLayout,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Packed(Block),
    InPlace(TensorInfo),
}

impl Matrix {
    /// Packs a tensor of shape (k, n) on the team's threads, and gives the file's pages back behind it.
    ///
    /// # Errors
    /// If the tensor's format is not supported, the chosen kernel refuses the shape, or memory is short.
    pub(crate) fn load(file: &Gguf, tensor: &TensorInfo, choice: &Choice, pass: &mut Pass<'_>) -> Result<Self> {
        let format = file.format(tensor)?;
        let (k, n) = (tensor.shape[0], tensor.shape[1]);
        let kernel = choice.kernel(format);
        let (kernel, layout) = match kernel.layout(n, k) {
            Ok(layout) => (kernel, layout),
            // A shape that the fast kernel does not do falls to the reference, which does all.
            Err(_) => {
                let kernel = choice.reference(format);
                let layout = kernel.layout(n, k).map_err(|refusal| Error::Unsupported {
                    path: file.path().to_owned(),
                    reason: format!("tensor {}: {} cannot multiply {n} x {k}: {refusal}", tensor.name, kernel.id()),
                })?;
                (kernel, layout)
            }
        };
        let bytes = if layout.in_place {
            Bytes::InPlace(tensor.clone())
        } else {
            let source = file.bytes(tensor);
            let row_bytes = row_bytes(format, k);
            let mut block = zeroed(n.div_ceil(layout.panel_rows) * layout.panel_bytes, "weights")?;
            pass.each(Chunks::new(&mut block[..], layout.panel_bytes), |_, panel, dst| {
                let first = panel * layout.panel_rows;
                let n_rows = layout.panel_rows.min(n - first);
                kernel.pack_panel(&source[first * row_bytes..][..n_rows * row_bytes], n_rows, k, dst);
            });
            file.release(tensor);
            Bytes::Packed(block)
        };
        Ok(Matrix { n, k, kernel, layout, bytes })
    }

    /// The matrix as its kernel takes it.
    pub(crate) fn weights<'a>(&'a self, file: &'a Gguf) -> Weights<'a> {
        let bytes = match &self.bytes {
            Bytes::Packed(block) => block,
            Bytes::InPlace(tensor) => file.bytes(tensor),
        };
        Weights { n: self.n, k: self.k, layout: self.layout, bytes }
    }

    /// Rows that are packed together.
    pub(crate) fn panel_rows(&self) -> usize {
        self.layout.panel_rows
    }

    /// Bytes read to multiply one token.
    pub(crate) fn bytes(&self) -> usize {
        self.n.div_ceil(self.layout.panel_rows) * self.layout.panel_bytes
    }
}

/// Bytes of a row, for a tensor whose shape the reader has checked.
fn row_bytes(format: Format, k: usize) -> usize {
    format.row_bytes(k).expect("the reader checked that rows are whole blocks")
}
