//! Formats without a packing of their own: blocks are decoded when they are packed, to a byte a weight and scales in f32.
//!
//! A panel takes 9 bits a weight where 32 weights share a scale, and 8.6 where 16 share a whole one. That is two to six
//! times the file's, but products run as those of `Q8_0` do, and one kernel serves all formats of a kind.

use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::blocks::Block;
use rml_kernels_ref::format::Format;

use super::{BLOCK, BLOCKS_OF_256, EIGHT_BITS, ROWS, VECTOR};
use crate::TileMut;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Weights};

/// Bytes of 16 f32.
pub(crate) const FLOATS: usize = 4 * ROWS;

/// A format whose blocks are decoded into the units of `kernel`, which multiplies them.
#[derive(Debug)]
pub(crate) struct Decoded<K> {
    id: &'static str,
    format: Format,
    units: Units,
    kernel: K,
}

/// What stands in a unit: the blocks of 16 rows, and how many blocks of 32 columns these are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Units {
    /// Blocks with a scale for 32 columns: bytes (8 vectors, one a group), for each block; then scales (16 f32), for each.
    Scaled(usize),
    /// 8 blocks with a whole scale for 16 columns: bytes (8 vectors, one a group), for each block; then whole scales (16, 16 rows);
    /// then scales of scales (16 f32).
    Grouped,
}

impl<K> Decoded<K> {
    /// The kernel that prints as `id`; `kernel` takes such units.
    pub(crate) const fn new(id: &'static str, format: Format, units: Units, kernel: K) -> Self {
        Decoded { id, format, units, kernel }
    }
}

impl<K: MatmulKernel> MatmulKernel for Decoded<K> {
    fn id(&self) -> &'static str {
        self.id
    }

    fn format(&self) -> Format {
        self.format
    }

    fn activation(&self) -> ActivationKind {
        self.kernel.activation()
    }

    fn layout(&self, n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        self.kernel.layout(n, k)
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        let row_bytes = self.format.row_bytes(k).expect("a shape that layout accepted");
        assert!(n_rows <= ROWS && src.len() == n_rows * row_bytes, "a panel of {n_rows} rows");
        dst.fill(0); // the missing rows
        let (n_units, block_bytes) = (k / self.format.block_len(), self.format.block_bytes());
        let mut block = Block::default();
        for (i, unit) in dst.chunks_exact_mut((dst.len() / n_units.max(1)).max(1)).enumerate() {
            for r in 0..n_rows {
                block.read(self.format, &src[r * row_bytes + i * block_bytes..][..block_bytes]);
                self.units.put(&block, r, unit);
            }
        }
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        self.kernel.multiply(w, x, out);
    }
}

impl Units {
    /// Bytes of a unit.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Units::Scaled(n) => n * (EIGHT_BITS + FLOATS),
            Units::Grouped => BLOCKS_OF_256 * EIGHT_BITS + 16 * ROWS + FLOATS,
        }
    }

    /// Puts a block into row `r` of a unit.
    fn put(self, block: &Block, r: usize, unit: &mut [u8]) {
        let n = match self {
            Units::Scaled(n) => n,
            Units::Grouped => BLOCKS_OF_256,
        };
        let (quants, scales) = unit.split_at_mut(n * EIGHT_BITS);
        for (quants, q) in quants.chunks_exact_mut(EIGHT_BITS).zip(block.q.as_chunks::<BLOCK>().0) {
            for (vector, q) in quants.chunks_exact_mut(VECTOR).zip(q.as_chunks::<4>().0) {
                vector[4 * r..][..4].copy_from_slice(&q.map(|q| q as u8));
            }
        }
        let put = |floats: &mut [u8], scale: f32| floats[4 * r..][..4].copy_from_slice(&scale.to_le_bytes());
        match self {
            Units::Scaled(_) => scales.chunks_exact_mut(FLOATS).zip(block.scale).for_each(|(floats, scale)| put(floats, scale)),
            Units::Grouped => {
                let (groups, supers) = scales.split_at_mut(16 * ROWS);
                groups.chunks_exact_mut(ROWS).zip(block.group).for_each(|(groups, group)| groups[r] = group as u8);
                put(supers, block.scale[0]);
            }
        }
    }
}
