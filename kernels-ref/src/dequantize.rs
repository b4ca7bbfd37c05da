//! Rows of weights as stored, widened to f32.

use half::{bf16, f16};

use crate::blocks::Block;
use crate::format::Format;

/// Widens a row: an embedding, or weights for a kernel that takes floats.
///
/// - Formula: that of the format, see [`crate::blocks`].
/// - Shapes: `row` is `format.row_bytes(k)` bytes, `out` (k).
/// - Requires: `k` a multiple of the block.
/// - Numerics: floats widen exactly; blocks as the package `gguf` computes them.
/// - Cost: one pass over the row.
pub fn dequantize_row(format: Format, row: &[u8], out: &mut [f32]) {
    assert_eq!(format.row_bytes(out.len()), Some(row.len()), "a row of {} in {format}", out.len());
    match format {
        Format::F32 => widen(row, out, |b: [u8; 4]| f32::from_le_bytes(b)),
        Format::F16 => widen(row, out, |b: [u8; 2]| f16::from_le_bytes(b).to_f32()),
        Format::BF16 => widen(row, out, |b: [u8; 2]| bf16::from_le_bytes(b).to_f32()),
        _ => {
            let mut block = Block::default();
            for (bytes, out) in row.chunks_exact(format.block_bytes()).zip(out.chunks_exact_mut(format.block_len())) {
                let shape = block.read(format, bytes);
                for (i, out) in out.iter_mut().enumerate() {
                    *out = block.weight(shape, i);
                }
            }
        }
    }
}

/// Widens numbers of `N` bytes.
pub(crate) fn widen<const N: usize>(row: &[u8], out: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    let (numbers, _) = row.as_chunks::<N>();
    for (out, &bytes) in out.iter_mut().zip(numbers) {
        *out = number(bytes);
    }
}
