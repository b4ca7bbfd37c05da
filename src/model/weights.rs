//! Weights as the kernels take them: packed at load by the kernel that was chosen, or in place in the mapped file.

use std::ops::Range;

use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_kernels_ref::format::Format;

use super::gguf::{Gguf, TensorInfo};
use crate::exec::choice::Choice;
use crate::exec::{Block, Chunks, Pages, Pass, zeroed};
use crate::{Error, Result};

/// A matrix of `n` outputs and `k` inputs, with the kernel that packed it.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) bias: Option<Vec<f32>>, // (n)
    pub(crate) kernel: &'static dyn MatmulKernel,
    layout: PackedLayout,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Bytes of the block that holds all packed matrices.
    Packed(Range<usize>),
    /// A tensor of the file.
    InPlace(TensorInfo),
}

/// Where the bytes of a model's matrices are.
///
/// All that is packed is one block, as only a large one gets huge pages: a matrix of a small model would not fill one.
#[derive(Debug)]
pub(crate) struct Storage {
    file: Gguf,
    packed: Block,
}

impl Storage {
    pub(crate) fn new(file: Gguf, packed: Block) -> Self {
        Storage { file, packed }
    }

    /// The file that the model came from.
    pub(crate) fn file(&self) -> &Gguf {
        &self.file
    }
}

/// Packs matrices one behind the other.
pub(crate) struct Packer<'a, 'p> {
    file: &'a Gguf,
    choice: &'a Choice,
    pass: &'a mut Pass<'p>,
    block: Block,
    used: usize,
}

impl<'a, 'p> Packer<'a, 'p> {
    /// With room for all `tensors`, which are then to be [`pack`](Self::pack)ed.
    ///
    /// # Errors
    /// If a tensor's format is not supported or its shape refused, or memory is short.
    pub(crate) fn new<'t>(
        file: &'a Gguf,
        choice: &'a Choice,
        pass: &'a mut Pass<'p>,
        tensors: impl Iterator<Item = &'t TensorInfo>,
    ) -> Result<Self> {
        let mut bytes = 0_usize;
        for tensor in tensors {
            bytes = bytes.next_multiple_of(ALIGNMENT) + packed_bytes(tensor, kernel_for(file, tensor, choice)?.1);
        }
        Ok(Packer { file, choice, pass, block: zeroed(bytes, "weights", Pages::Huge)?, used: 0 })
    }

    /// Packs a tensor of shape (k, n) on the team's threads, and gives the file's pages back behind it.
    ///
    /// # Errors
    /// If the tensor's format is not supported, or the chosen kernel refuses the shape.
    pub(crate) fn pack(&mut self, tensor: &TensorInfo) -> Result<Matrix> {
        let (kernel, layout) = kernel_for(self.file, tensor, self.choice)?;
        let (k, n) = (tensor.shape[0], tensor.shape[1]);
        if layout.in_place {
            return Ok(Matrix { n, k, bias: None, kernel, layout, place: Place::InPlace(tensor.clone()) });
        }
        let source = self.file.bytes(tensor);
        let row_bytes = row_bytes(self.file.format(tensor)?, k);
        let start = self.used.next_multiple_of(ALIGNMENT);
        let place = start..start + packed_bytes(tensor, layout);
        self.used = place.end;
        let panels = Chunks::new(&mut self.block[place.clone()], layout.panel_bytes);
        self.pass.each(panels, |_, panel, dst| {
            let first = panel * layout.panel_rows;
            let n_rows = layout.panel_rows.min(n - first);
            kernel.pack_panel(&source[first * row_bytes..][..n_rows * row_bytes], n_rows, k, dst);
        });
        self.file.release(tensor);
        Ok(Matrix { n, k, bias: None, kernel, layout, place: Place::Packed(place) })
    }

    /// The block that holds all that was packed.
    pub(crate) fn finish(self) -> Block {
        self.block
    }
}

/// The chosen kernel and its layout; a shape that it refuses falls to the next, and at last to the reference, which does all.
fn kernel_for(file: &Gguf, tensor: &TensorInfo, choice: &Choice) -> Result<(&'static dyn MatmulKernel, PackedLayout)> {
    let format = file.format(tensor)?;
    let (k, n) = (tensor.shape[0], tensor.shape[1]);
    let mut refusals = Vec::new();
    for kernel in choice.kernels(format) {
        match kernel.layout(n, k) {
            Ok(layout) => return Ok((kernel, layout)),
            Err(refusal) => refusals.push(format!("{}: {refusal}", kernel.id())),
        }
    }
    let reason = format!("tensor {}: nothing multiplies {n} x {k} in {format}: {}", tensor.name, refusals.join("; "));
    Err(Error::Unsupported { path: file.path().to_owned(), reason })
}

/// What kernels ask of their first panel.
const ALIGNMENT: usize = 64;

/// Bytes of the block that a matrix takes.
fn packed_bytes(tensor: &TensorInfo, layout: PackedLayout) -> usize {
    if layout.in_place { 0 } else { tensor.shape[1].div_ceil(layout.panel_rows) * layout.panel_bytes }
}

impl Matrix {
    /// The matrix as its kernel takes it.
    pub(crate) fn weights<'a>(&'a self, storage: &'a Storage) -> Weights<'a> {
        let bytes = match &self.place {
            Place::Packed(place) => &storage.packed[place.clone()],
            Place::InPlace(tensor) => storage.file.bytes(tensor),
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
