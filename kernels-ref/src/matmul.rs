//! Matrix products: weights as stored times activations.
//!
//! An output is accumulated over `k` in ascending order by one accumulator, so it does not depend on which rows or tokens
//! are computed together.

use std::ops::Range;

use crate::activation::{ActivationData, Activations, Q8, Q8_BLOCK};
use crate::blocks::{Block, Shape};
use crate::dequantize::dequantize_row;
use crate::format::Format;

/// Where a product goes: rows of numbers, one for each token.
pub trait Output {
    /// Row `i`, for token `i`.
    fn row(&mut self, i: usize) -> &mut [f32];
}

impl Output for [Vec<f32>] {
    fn row(&mut self, i: usize) -> &mut [f32] {
        &mut self[i]
    }
}

/// Tokens that are multiplied with a block once it is decoded.
const TOKENS: usize = 16;

/// `out[i][r - rows.start] = sum over k of w[r][k] * x[i][k]` for `r` in `rows`.
///
/// - Formula: floats: `acc = fma(w[k], x[k], acc)`. Quantized, a block of 32 at a time: `s` the exact sum of products of
///   whole numbers (each half times its whole scale, for grouped shapes), `acc = fma(scale * x_scale, s, acc)`, then with a
///   minimum `acc = fma(min, x_scaled_sum, acc)`, or `acc = fma(-(dmin * x_scale), whole minima times x_sum, acc)`.
/// - Shapes: `weights` holds rows of `x.k` weights in `format`; `out` has `x.m` rows of `rows.len()`.
/// - Requires: f32 activations for float formats, [`Q8`] for quantized ones.
/// - Numerics: `k` ascending, one accumulator an output, integer sums exact.
/// - Cost: `2 m n k` operations; weights are decoded once for 16 tokens.
pub fn matmul(format: Format, weights: &[u8], rows: Range<usize>, x: &Activations<'_>, out: &mut (impl Output + ?Sized)) {
    let row_bytes = format.row_bytes(x.k).expect("k is a multiple of the block");
    for (c, r) in rows.enumerate() {
        let row = &weights[r * row_bytes..][..row_bytes];
        let mut first = 0;
        while first < x.m {
            let m = TOKENS.min(x.m - first);
            let mut acc = [0.0_f32; TOKENS];
            match x.data {
                ActivationData::F32(x_rows) => float_row(format, row, &x_rows[first * x.k..][..m * x.k], x.k, &mut acc[..m]),
                ActivationData::Q8(q8) => quantized_row(format, row, &q8, first, x.k, &mut acc[..m]),
            }
            for (i, acc) in acc[..m].iter().enumerate() {
                out.row(first + i)[c] = *acc;
            }
            first += m;
        }
    }
}

fn float_row(format: Format, row: &[u8], x: &[f32], k: usize, acc: &mut [f32]) {
    assert!(format.is_float(), "{format} takes quantized activations");
    const PIECE: usize = 64;
    let mut w = [0.0_f32; PIECE];
    for (piece, bytes) in row.chunks(PIECE * format.block_bytes()).enumerate() {
        let w = &mut w[..bytes.len() / format.block_bytes()];
        dequantize_row(format, bytes, w);
        for (i, acc) in acc.iter_mut().enumerate() {
            let x = &x[i * k + piece * PIECE..][..w.len()];
            *acc = w.iter().zip(x).fold(*acc, |acc, (w, &x)| w.mul_add(x, acc));
        }
    }
}

fn quantized_row(format: Format, row: &[u8], x: &Q8<'_>, first: usize, k: usize, acc: &mut [f32]) {
    let mut block = Block::default();
    let per_block = format.block_len() / Q8_BLOCK;
    let (mut low, mut high) = ([0; TOKENS], [0; TOKENS]);
    let m = acc.len();
    for (b, bytes) in row.chunks_exact(format.block_bytes()).enumerate() {
        let shape = block.read(format, bytes);
        for (j, w) in block.q.as_chunks().0[..per_block].iter().enumerate() {
            let column = b * per_block + j; // block of activations in its row
            half_sums(w, &x.q[first * k + column * Q8_BLOCK..], k, &mut low[..m], &mut high[..m]);
            let group = [0, 1].map(|half| i32::from(block.group[2 * j + half]));
            let group_min = [0, 1].map(|half| i32::from(block.group_min[2 * j + half]));
            for (i, acc) in acc.iter_mut().enumerate() {
                let at = (first + i) * (k / Q8_BLOCK) + column;
                let scale = x.scale[at];
                let s = match shape {
                    Shape::Scaled | Shape::ScaledMin => low[i] + high[i],
                    Shape::Grouped | Shape::GroupedMin => group[0] * low[i] + group[1] * high[i],
                };
                *acc = (block.scale[j] * scale).mul_add(s as f32, *acc);
                match shape {
                    Shape::Scaled | Shape::Grouped => {}
                    Shape::ScaledMin => *acc = block.min[j].mul_add(x.scaled_sum[at], *acc),
                    Shape::GroupedMin => {
                        let s = group_min[0] * i32::from(x.sum[2 * at]) + group_min[1] * i32::from(x.sum[2 * at + 1]);
                        *acc = (-(block.dmin * scale)).mul_add(s as f32, *acc);
                    }
                }
            }
        }
    }
}

/// Sums of products of the two halves of a block, with the block of each of a few tokens, which are `k` numbers apart.
///
/// A function of its own with an output for each half, so that compilers find the vector instructions for it.
#[inline(never)]
fn half_sums(w: &[i8; Q8_BLOCK], x: &[i8], k: usize, low: &mut [i32], high: &mut [i32]) {
    for (i, (low, high)) in low.iter_mut().zip(high).enumerate() {
        let x: &[i8; Q8_BLOCK] = x[i * k..].first_chunk().expect("a block");
        let sum = |half: Range<usize>| half.map(|i| i32::from(w[i]) * i32::from(x[i])).sum();
        (*low, *high) = (sum(0..16), sum(16..32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_by_hand() {
        let weights: Vec<u8> = [1.0_f32, 2.0, 3.0, -1.0, 0.5, 4.0].iter().flat_map(|w| w.to_le_bytes()).collect();
        let x = Activations { m: 2, k: 3, data: ActivationData::F32(&[1.0, 10.0, 100.0, 2.0, 0.0, -1.0]) };
        let mut out = vec![vec![f32::NAN; 2]; 2];
        matmul(Format::F32, &weights, 0..2, &x, &mut out[..]);
        assert_eq!(out, [[321.0, 404.0], [-1.0, -6.0]]);
        let mut out = vec![vec![f32::NAN; 1]; 2];
        matmul(Format::F32, &weights, 1..2, &x, &mut out[..]);
        assert_eq!(out, [[404.0], [-6.0]]);
    }

    /// Q4_1: d = 0.5, m = -1, every weight 3 * 0.5 - 1 = 0.5 but the last, 15 * 0.5 - 1 = 6.5.
    #[test]
    fn a_block_by_hand() {
        let mut block = vec![0x00, 0x38, 0x00, 0xbc];
        block.extend([0x33; 15]);
        block.push(0xf3);
        let mut q = [2_i8; 32];
        q[31] = -4;
        // scale 0.25: 31 activations of 0.5 and one of -1; 31 * 0.5 * 0.5 - 6.5 = 1.25.
        let x = Q8 { q: &q, scale: &[0.25], scaled_sum: &[0.25 * 58.0], sum: &[32, 26] };
        let mut out = vec![vec![f32::NAN]];
        matmul(Format::Q4_1, &block, 0..1, &Activations { m: 1, k: 32, data: ActivationData::Q8(x) }, &mut out[..]);
        assert_eq!(out, [[1.25]]);
    }

    #[test]
    fn no_columns_give_zero() {
        let mut out = vec![vec![f32::NAN; 3]; 2];
        matmul(Format::F16, &[], 0..3, &Activations { m: 2, k: 0, data: ActivationData::F32(&[]) }, &mut out[..]);
        assert_eq!(out, [[0.0; 3]; 2]);
    }
}
