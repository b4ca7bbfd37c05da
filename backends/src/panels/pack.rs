//! Packing in plain Rust, from the blocks as the reference reads them.

use rml_kernels_ref::blocks::Block;
use rml_kernels_ref::format::Format;

use super::{BLOCK, FOUR_BITS, HALVES, ROWS, SIXES, TWO_BITS, VECTOR, far_groups, near_groups, store_bytes, store_halves};

/// Packs a panel: `src` holds `n_rows` rows of `k` weights, `dst` is all of the panel, whose missing rows become zeros.
pub(crate) fn pack_panel(format: Format, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
    const ZEROS: [u8; 256] = [0; 256]; // scale 0 in every format
    let row_bytes = format.row_bytes(k).expect("a shape that layout accepted");
    assert!(n_rows <= ROWS && src.len() == n_rows * row_bytes && dst.len() == ROWS * row_bytes, "a panel of {n_rows} rows");
    let block_bytes = format.block_bytes();
    for (i, unit) in dst.chunks_exact_mut(ROWS * block_bytes).enumerate() {
        let mut rows = [&ZEROS[..block_bytes]; ROWS];
        for (r, row) in rows[..n_rows].iter_mut().enumerate() {
            *row = &src[r * row_bytes + i * block_bytes..][..block_bytes];
        }
        pack_unit(format, &rows, unit);
    }
}

/// Packs one block of each row into a unit.
fn pack_unit(format: Format, rows: &[&[u8]; ROWS], unit: &mut [u8]) {
    let (bits, offset) = super::quants(format);
    let groups = if matches!(format, Format::Q6_K) { near_groups } else { far_groups };
    let (quants, scales) = unit.split_at_mut(format.block_len() / BLOCK * bits * VECTOR);
    quants.fill(0);
    let mut block = Block::default();
    for (r, row) in rows.iter().enumerate() {
        block.read(format, row);
        for (q, quants) in block.q.as_chunks::<BLOCK>().0.iter().zip(quants.chunks_exact_mut(bits * VECTOR)) {
            let q = q.map(|q| (q + offset) as u8);
            match bits {
                2 | 3 => store_two_bits(&q, 0, r, quants),
                8 => store_group_bytes(&q, r, quants),
                _ => store_nibbles(&q, groups, r, quants),
            }
            match bits {
                3 => store_one_bit(&q, 2, r, &mut quants[TWO_BITS..]),
                5 => store_one_bit(&q, 4, r, &mut quants[FOUR_BITS..]),
                6 => store_two_bits(&q, 4, r, &mut quants[FOUR_BITS..]),
                _ => {}
            }
        }
    }
    match format {
        Format::Q4_1 | Format::Q5_1 => {
            store_halves(rows, 0, scales);
            store_halves(rows, 2, &mut scales[HALVES..]);
        }
        Format::Q4_K | Format::Q5_K => {
            let (sixes, supers) = scales.split_at_mut(SIXES * ROWS);
            store_bytes::<SIXES>(rows, 4, sixes);
            store_halves(rows, 0, supers);
            store_halves(rows, 2, &mut supers[HALVES..]);
        }
        Format::Q2_K => {
            let (groups, supers) = scales.split_at_mut(16 * ROWS);
            store_bytes::<16>(rows, 0, groups);
            store_halves(rows, 80, supers);
            store_halves(rows, 82, &mut supers[HALVES..]);
        }
        Format::Q3_K => {
            let (sixes, supers) = scales.split_at_mut(SIXES * ROWS);
            store_bytes::<SIXES>(rows, 96, sixes);
            store_halves(rows, 108, supers);
        }
        Format::Q6_K => {
            let (groups, supers) = scales.split_at_mut(16 * ROWS);
            store_bytes::<16>(rows, 192, groups);
            store_halves(rows, 208, supers);
        }
        _ => store_halves(rows, 0, scales),
    }
}

/// The 4 columns of `group` in a block of row `r`, and where they stand in a vector.
fn columns(group: usize, r: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..4).map(move |i| (4 * group + i, 4 * r + i))
}

fn store_group_bytes(q: &[u8; BLOCK], r: usize, vectors: &mut [u8]) {
    for (group, q) in q.as_chunks::<4>().0.iter().enumerate() {
        vectors[VECTOR * group + 4 * r..][..4].copy_from_slice(q);
    }
}

fn store_nibbles(q: &[u8; BLOCK], groups: fn(usize) -> [usize; 2], r: usize, vectors: &mut [u8]) {
    for p in 0..4 {
        let [low, high] = groups(p);
        for ((a, at), (b, _)) in columns(low, r).zip(columns(high, r)) {
            vectors[VECTOR * p + at] = q[a] & 15 | (q[b] & 15) << 4;
        }
    }
}

/// Bits `from` and `from + 1`.
fn store_two_bits(q: &[u8; BLOCK], from: usize, r: usize, vectors: &mut [u8]) {
    for group in 0..8 {
        for (i, at) in columns(group, r) {
            vectors[VECTOR * (group / 4) + at] |= (q[i] >> from & 3) << (2 * (group % 4));
        }
    }
}

/// Bit `from`.
fn store_one_bit(q: &[u8; BLOCK], from: usize, r: usize, vector: &mut [u8]) {
    for group in 0..8 {
        for (i, at) in columns(group, r) {
            vector[at] |= (q[i] >> from & 1) << group;
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::io::Write;

    use rml_kernels_ref::exam::fills::{Random, WeightFill};

    use super::*;
    use crate::{CpuFeatures, Registry};

    #[test]
    fn panels_are_the_bytes_that_avx2_makes_with_vectors() {
        let table = match Registry::new(CpuFeatures::detect("").expect("features")).table_of("avx2") {
            Ok(table) => table,
            Err(refusal) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {refusal}");
                return;
            }
        };
        for format in Format::ALL.into_iter().filter(|format| !format.is_float()) {
            let (owner, kernel) = table.matmul(format).last().expect("a product");
            assert_eq!(*owner, "avx2", "{format}");
            if kernel.unpack().is_none() {
                continue; // decoded when it is packed
            }
            let k = 3 * format.block_len();
            for n_rows in [1, 7, 16] {
                let rows = WeightFill::Bytes.rows(format, n_rows, k, &mut Random::new(n_rows as u64));
                let panel_bytes = kernel.layout(n_rows, k).expect("a layout").panel_bytes;
                let (mut expected, mut got) = (vec![1; panel_bytes], vec![2; panel_bytes]);
                kernel.pack_panel(&rows, n_rows, k, &mut expected);
                pack_panel(format, &rows, n_rows, k, &mut got);
                assert_eq!(got, expected, "{n_rows} rows of {format}");
            }
        }
    }
}
