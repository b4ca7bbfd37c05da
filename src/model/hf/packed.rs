//! Experts as gpt-oss publishes them: blocks of 32 numbers in MXFP4, and the scales of all blocks in a tensor of their own.
//!
//! Source: the MXFP4 integration of `transformers`; for GGUF's blocks, the package `gguf`.

use rml_kernels_ref::format::Format;
use safetensors::Dtype;

use super::checkpoint::Stored;
use crate::model::gguf::shard::Make;

/// What a tensor of such a pair holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// Nibbles, (experts, n, blocks of a row, 16), two neighbours in a byte.
    Blocks,
    /// Exponents, (experts, n, blocks of a row).
    Scales,
}

impl Half {
    /// The matrix that a tensor is half of, and which.
    pub(super) fn of(name: &str) -> Option<(&str, Half)> {
        let of = |suffix, half| Some((name.strip_suffix(suffix)?, half));
        of("_blocks", Half::Blocks).or_else(|| of("_scales", Half::Scales))
    }
}

/// The halves that were found of a matrix.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) blocks: Option<Stored>,
    pub(super) scales: Option<Stored>,
}

/// Some rows of all experts' matrices, as blocks of GGUF.
#[derive(Debug)]
pub(super) struct Rows {
    blocks: Stored,
    scales: Stored,
    n_experts: usize,
    n: usize,
    k_blocks: usize,
    first: usize,
    step: usize,
}

impl Rows {
    /// Every `step`-th row from `first` on; the tensor of the wrong shape if these are none.
    pub(super) fn new(blocks: Stored, scales: Stored, n_experts: usize, first: usize, step: usize) -> Result<Self, Stored> {
        let (n, k_blocks) = match blocks.shape[..] {
            [e, n, k_blocks, 16] if e == n_experts && n > 0 && k_blocks > 0 && n.is_multiple_of(step) => (n, k_blocks),
            _ => return Err(blocks),
        };
        match (blocks.dtype, scales.dtype) {
            (Dtype::U8, Dtype::U8) if scales.shape == [n_experts, n, k_blocks] => {}
            (Dtype::U8, _) => return Err(scales),
            _ => return Err(blocks),
        }
        Ok(Rows { blocks, scales, n_experts, n, k_blocks, first, step })
    }

    /// The shape, the fastest first.
    pub(super) fn shape(&self) -> Vec<usize> {
        vec![self.k_blocks * Format::MXFP4.block_len(), self.n / self.step, self.n_experts]
    }
}

impl Make for Rows {
    fn n_bytes(&self) -> usize {
        self.n_experts * (self.n / self.step) * self.k_blocks * Format::MXFP4.block_bytes()
    }

    fn make(&self, files: &[&[u8]], out: &mut [u8]) {
        let [blocks, scales] = [&self.blocks, &self.scales].map(|t| &files[t.file][t.offset..][..t.bytes]);
        let rows = (0..self.n_experts).flat_map(|e| (self.first..self.n).step_by(self.step).map(move |i| e * self.n + i));
        let places = rows.flat_map(|row| row * self.k_blocks..(row + 1) * self.k_blocks);
        for (at, out) in places.zip(out.chunks_exact_mut(Format::MXFP4.block_bytes())) {
            let (scale, nibbles) = out.split_at_mut(1);
            scale[0] = scales[at];
            let pairs = &blocks[at * nibbles.len()..][..nibbles.len()];
            let nibble = |i: usize| pairs[i / 2] >> (4 * (i % 2)) & 15;
            for (i, out) in nibbles.iter_mut().enumerate() {
                // Numbers half a block apart share a byte in GGUF.
                *out = nibble(i) | nibble(i + pairs.len()) << 4;
            }
        }
    }
}
