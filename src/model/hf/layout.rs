//! Tensors that GGUF lays out otherwise than PyTorch: which numbers of a file go where.

use half::{bf16, f16};
use safetensors::Dtype;

use super::checkpoint::Stored;
use crate::model::gguf::shard::Make;

/// Numbers of a file in another order: `start` and, for each dimension from the slowest, how many there are and how far apart.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) file: usize,
    pub(super) offset: usize,  // bytes
    pub(super) element: usize, // bytes
    pub(super) start: usize,   // elements
    pub(super) dims: Vec<(usize, usize)>,
}

impl View {
    /// All numbers of a tensor as they stand.
    pub(super) fn whole(tensor: &Stored) -> Self {
        let element = tensor.dtype.bitsize() / 8;
        View { file: tensor.file, offset: tensor.offset, element, start: 0, dims: vec![(tensor.bytes / element, 1)] }
    }

    fn n_bytes(&self) -> usize {
        self.dims.iter().map(|d| d.0).product::<usize>() * self.element
    }

    /// Writes the numbers; returns what of `out` is left.
    fn copy<'a>(&self, files: &[&[u8]], out: &'a mut [u8]) -> &'a mut [u8] {
        let (mine, rest) = out.split_at_mut(self.n_bytes());
        copy(&files[self.file][self.offset..], self.element, self.start, &self.dims, mine);
        rest
    }
}

fn copy(source: &[u8], element: usize, start: usize, dims: &[(usize, usize)], out: &mut [u8]) {
    match dims {
        [] => out.copy_from_slice(&source[start * element..][..element]),
        [(n, 1)] => out.copy_from_slice(&source[start * element..][..n * element]),
        [(n, apart), inner @ ..] => {
            let each = out.len() / n;
            for (i, part) in out.chunks_exact_mut(each).enumerate() {
                copy(source, element, start + i * apart, inner, part);
            }
        }
    }
}

/// A tensor that is put together from views.
#[derive(Debug)]
pub(super) struct Joined(pub(super) Vec<View>);

impl Make for Joined {
    fn n_bytes(&self) -> usize {
        self.0.iter().map(View::n_bytes).sum()
    }

    fn make(&self, files: &[&[u8]], out: &mut [u8]) {
        self.0.iter().fold(out, |out, view| view.copy(files, out));
    }
}

/// A tensor as f32 with 1 added to each number.
#[derive(Debug)]
pub(super) struct PlusOne {
    pub(super) tensor: View,
    pub(super) dtype: Dtype,
}

impl Make for PlusOne {
    fn n_bytes(&self) -> usize {
        self.tensor.n_bytes() / self.tensor.element * size_of::<f32>()
    }

    fn make(&self, files: &[&[u8]], out: &mut [u8]) {
        let bytes = &files[self.tensor.file][self.tensor.offset..][..self.tensor.n_bytes()];
        for (number, out) in bytes.chunks_exact(self.tensor.element).zip(out.as_chunks_mut().0) {
            let x = match (self.dtype, number) {
                (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
                (Dtype::BF16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
                (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
                _ => unreachable!("a number has 2 or 4 bytes"),
            };
            *out = (x + 1.0).to_le_bytes();
        }
    }
}

/// Numbers that were computed from the configuration.
#[derive(Debug)]
pub(super) struct Given(pub(super) Vec<f32>);

impl Make for Given {
    fn n_bytes(&self) -> usize {
        self.0.len() * size_of::<f32>()
    }

    fn make(&self, _: &[&[u8]], out: &mut [u8]) {
        out.as_chunks_mut().0.iter_mut().zip(&self.0).for_each(|(out, x)| *out = x.to_le_bytes());
    }
}
