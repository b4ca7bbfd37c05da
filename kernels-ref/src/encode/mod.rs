//! Rows of f32 written as blocks: the other way round of [`crate::dequantize`].
//!
//! Blocks equal those of llama.cpp without an importance matrix, and those of the package `gguf` where that writes the
//! format. So no multiplication and addition is fused here, and every sum runs in order.
//!
//! Source: the `quantize_row_*_ref` functions of `ggml-quants.c` in llama.cpp.

mod pack;
mod search;
mod super_blocks;
mod words;

use std::fmt;

use half::{bf16, f16};

use crate::format::Format;

/// A weight that a format cannot hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unencodable {
    /// Its place in the row.
    pub at: usize,
    /// What it is: not finite, or too large.
    pub weight: f32,
}

impl fmt::Display for Unencodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unencodable { at, weight } = self;
        if weight.is_finite() { write!(f, "weight {at} is {weight:e}, which is too large") } else { write!(f, "weight {at} is {weight}") }
    }
}

impl std::error::Error for Unencodable {}

/// The formats that [`encode_row`] writes.
pub const WRITTEN: [Format; 13] = [
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2_K,
    Format::Q3_K,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
];

/// Weights of this magnitude and beyond fit into no block, and their powers would overflow in the search for a scale.
const TOO_LARGE: f32 = (1 << 30) as f32;

/// Writes a row of weights in `format`.
///
/// - Shapes: `weights` (k), `out` is `format.row_bytes(k)` bytes.
/// - Requires: `k` a multiple of the block, `format` one of [`WRITTEN`].
/// - Numerics: floats round to even; blocks as llama.cpp and `gguf` write them.
/// - Cost: one pass over the row; for the K formats a search of about 20 steps a group.
///
/// # Errors
/// If a weight is not finite, or so large that its float or its block's scale would not be. `out` then holds nothing of use.
///
/// # Panics
/// If shapes do not fit or the format is not written.
pub fn encode_row(format: Format, weights: &[f32], out: &mut [u8]) -> Result<(), Unencodable> {
    assert_eq!(format.row_bytes(weights.len()), Some(out.len()), "a row of {} in {format}", weights.len());
    let limit = if format.is_float() { f32::INFINITY } else { TOO_LARGE };
    if let Some(at) = weights.iter().position(|w| w.is_nan() || w.abs() >= limit) {
        return Err(Unencodable { at, weight: weights[at] });
    }
    match format {
        Format::F32 => numbers(weights, out, f32::to_le_bytes),
        Format::F16 => numbers(weights, out, |w| f16::from_f32(w).to_le_bytes()),
        Format::BF16 => numbers(weights, out, |w| bf16::from_f32(w).to_le_bytes()),
        _ => {
            let encode = encoder(format);
            let (len, bytes) = (format.block_len(), format.block_bytes());
            weights.chunks_exact(len).zip(out.chunks_exact_mut(bytes)).for_each(|(weights, block)| encode(weights, block));
        }
    }
    match first_overflow(format, out) {
        None => Ok(()),
        Some(block) => {
            let len = format.block_len();
            let of_block = &weights[block * len..][..len];
            let (i, &weight) = of_block.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).expect("blocks are not empty");
            Err(Unencodable { at: block * len + i, weight })
        }
    }
}

/// Writes one block of `format`.
fn encoder(format: Format) -> fn(&[f32], &mut [u8]) {
    match format {
        Format::Q4_0 => words::q4_0,
        Format::Q4_1 => words::q4_1,
        Format::Q5_0 => words::q5_0,
        Format::Q5_1 => words::q5_1,
        Format::Q8_0 => words::q8_0,
        Format::Q2_K => super_blocks::q2_k,
        Format::Q3_K => super_blocks::q3_k,
        Format::Q4_K => super_blocks::q4_k,
        Format::Q5_K => super_blocks::q5_k,
        Format::Q6_K => super_blocks::q6_k,
        _ => panic!("{format} is not written"),
    }
}

fn numbers<const N: usize>(weights: &[f32], out: &mut [u8], number: impl Fn(f32) -> [u8; N]) {
    for (&w, out) in weights.iter().zip(out.as_chunks_mut::<N>().0) {
        *out = number(w);
    }
}

/// The first block whose number or scale came out infinite.
fn first_overflow(format: Format, out: &[u8]) -> Option<usize> {
    let finite = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).is_finite();
    match format {
        Format::F32 => None,
        Format::F16 => out.chunks_exact(2).position(|w| !finite(w)),
        Format::BF16 => out.as_chunks().0.iter().position(|&w| !bf16::from_le_bytes(w).is_finite()),
        _ => out.chunks_exact(format.block_bytes()).position(|block| format.scale_offsets().iter().any(|&at| !finite(&block[at..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_held_is_named_with_its_place() {
        for format in WRITTEN {
            let mut weights = vec![0.5; 512];
            let mut out = vec![0; format.row_bytes(512).expect("whole blocks")];
            assert_eq!(encode_row(format, &weights, &mut out), Ok(()), "{format}");
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                weights[300] = bad;
                let error = encode_row(format, &weights, &mut out).expect_err("it is not finite");
                assert!(error.at == 300 && error.weight.to_bits() == bad.to_bits(), "{format}: {error}");
            }
            weights[300] = f32::MAX;
            let error = encode_row(format, &weights, &mut out);
            let want = if format == Format::F32 { Ok(()) } else { Err(Unencodable { at: 300, weight: f32::MAX }) };
            assert_eq!(error, want, "{format}");
        }
    }
}
