//! Panels widened to f32: for a kernel that multiplies what another one packed.

use std::ops::Range;

use half::{bf16, f16};
use rml_kernels_ref::blocks::{scale_min, scale_q3};
use rml_kernels_ref::format::Format;

use super::{BLOCK, FOUR_BITS, HALVES, ROWS, SIXES, TWO_BITS, VECTOR, far_groups, near_groups};

/// Columns that have one scale, at the least.
const HALF_BLOCK: usize = 16;
/// Half blocks of the longest block.
const MOST_HALVES: usize = 16;

/// A number for each row.
type Lanes = [f32; ROWS];

/// Widens columns `cols` of a panel, whole blocks: weight `j` of row `r` goes to `out[(j - cols.start) * stride + r]`.
pub(crate) fn unpack(format: Format, panel: &[u8], cols: Range<usize>, out: &mut [f32], stride: usize) {
    let len = format.block_len();
    let units = panel.chunks_exact(ROWS * format.block_bytes()).skip(cols.start / len).take(cols.len() / len);
    for (unit, out) in units.zip(out.chunks_mut(len * stride)) {
        match format {
            Format::F32 => floats(unit, out, |b: [u8; 4]| f32::from_le_bytes(b)),
            Format::F16 => floats(unit, out, |b: [u8; 2]| f16::from_le_bytes(b).to_f32()),
            Format::BF16 => floats(unit, out, |b: [u8; 2]| bf16::from_le_bytes(b).to_f32()),
            _ => quantized(format, unit, out, stride),
        }
    }
}

/// One column.
fn floats<const N: usize>(unit: &[u8], out: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    for (out, &bytes) in out.iter_mut().zip(unit.as_chunks::<N>().0) {
        *out = number(bytes);
    }
}

fn quantized(format: Format, unit: &[u8], out: &mut [f32], stride: usize) {
    let (bits, offset) = super::quants(format);
    let (blocks, heads) = unit.split_at(format.block_len() / BLOCK * bits * VECTOR);
    // The same steps as in the reference: times the scale, plus what a block without a minimum cannot feel.
    let (mut scale, mut min) = ([[0.0; ROWS]; MOST_HALVES], [[-0.0; ROWS]; MOST_HALVES]);
    read_scales(format, heads, &mut scale, &mut min);
    for (b, block) in blocks.chunks_exact(bits * VECTOR).enumerate() {
        let vectors = block.as_chunks::<VECTOR>().0;
        for group in 0..8 {
            let half = 2 * b + group / 4;
            let quants = group_of_four(format, bits, vectors, group);
            for i in 0..4 {
                let out = &mut out[(BLOCK * b + 4 * group + i) * stride..][..ROWS];
                for r in 0..ROWS {
                    let byte = (quants[r] >> (8 * i)) as u8;
                    let q = if bits == 8 { i32::from(byte as i8) } else { i32::from(byte) - i32::from(offset) };
                    out[r] = q as f32 * scale[half][r] + min[half][r];
                }
            }
        }
    }
}

/// The quants of 4 columns, a byte each, of every row.
fn group_of_four(format: Format, bits: usize, vectors: &[[u8; VECTOR]], group: usize) -> [u32; ROWS] {
    // The bits `mask << shift` of every byte, moved to bit `to`.
    let part = |vector: usize, shift: usize, mask: u8, to: usize| {
        let mut part = [0; ROWS];
        for (part, &bytes) in part.iter_mut().zip(vectors[vector].as_chunks::<4>().0) {
            *part = (u32::from_le_bytes(bytes) >> shift & u32::from_le_bytes([mask; 4])) << to;
        }
        part
    };
    let groups = if format == Format::Q6_K { near_groups } else { far_groups };
    let nibble = || {
        let (p, high) = (0..4).flat_map(|p| [(p, 0), (p, 1)]).find(|&(p, high)| groups(p)[high] == group).expect("each group has a nibble");
        part(p, 4 * high, 15, 0)
    };
    let two_bits = |first: usize, to| part(first + group / 4, 2 * (group % 4), 3, to);
    let (low, high) = match bits {
        2 => (two_bits(0, 0), None),
        3 => (two_bits(0, 0), Some(part(TWO_BITS / VECTOR, group, 1, 2))),
        4 => (nibble(), None),
        5 => (nibble(), Some(part(FOUR_BITS / VECTOR, group, 1, 4))),
        6 => (nibble(), Some(two_bits(FOUR_BITS / VECTOR, 4))),
        _ => (part(group, 0, 0xff, 0), None),
    };
    let mut quants = low;
    for (quant, high) in quants.iter_mut().zip(high.unwrap_or([0; ROWS])) {
        *quant |= high;
    }
    quants
}

/// Scale and minimum of each 16 columns.
fn read_scales(format: Format, heads: &[u8], scale: &mut [Lanes; MOST_HALVES], min: &mut [Lanes; MOST_HALVES]) {
    let halves = |at: usize, r: usize| f16::from_le_bytes([heads[at + 2 * r], heads[at + 2 * r + 1]]).to_f32();
    let n_halves = format.block_len() / HALF_BLOCK;
    for r in 0..ROWS {
        let row = |i: usize| heads[i * ROWS + r];
        let sixes: [u8; SIXES] = if n_halves == MOST_HALVES { std::array::from_fn(row) } else { [0; SIXES] };
        for h in 0..n_halves {
            let (d, m) = match format {
                Format::Q4_1 | Format::Q5_1 => (halves(0, r), halves(HALVES, r)),
                Format::Q4_K | Format::Q5_K => {
                    let (s, m) = scale_min(&sixes, h / 2);
                    (halves(SIXES * ROWS, r) * f32::from(s), -(halves(SIXES * ROWS + HALVES, r) * f32::from(m)))
                }
                Format::Q2_K => (halves(16 * ROWS, r) * f32::from(row(h) & 15), -(halves(16 * ROWS + HALVES, r) * f32::from(row(h) >> 4))),
                Format::Q3_K => (halves(SIXES * ROWS, r) * f32::from(scale_q3(&sixes, h)), -0.0),
                Format::Q6_K => (halves(16 * ROWS, r) * f32::from(row(h) as i8), -0.0),
                _ => (halves(0, r), -0.0),
            };
            (scale[h][r], min[h][r]) = (d, m);
        }
    }
}
