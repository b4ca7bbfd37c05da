//! Every format that is written, against the blocks of ggml and of the Python package `gguf`; `fixtures/make_quantize.py`
//! makes them anew.

use std::path::Path;

use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::encode::{WRITTEN, encode_row};
use rml_kernels_ref::format::Format;

const ROW: usize = 256;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/quantize").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn weights() -> Vec<f32> {
    fixture("weights.f32").as_chunks().0.iter().map(|&w| f32::from_le_bytes(w)).collect()
}

#[test]
fn blocks_equal_those_of_ggml_byte_for_byte() {
    let weights = weights();
    for format in WRITTEN.into_iter().filter(|&format| format != Format::F32) {
        let want = fixture(&format!("{format}.bin"));
        let mut got = vec![0x5a; format.row_bytes(weights.len()).expect("whole blocks")];
        encode_row(format, &weights, &mut got).expect("all are finite");
        assert_eq!(got.len(), want.len(), "{format}");
        let size = format.block_bytes();
        let differ: Vec<_> = (0..got.len() / size).filter(|i| got[i * size..][..size] != want[i * size..][..size]).collect();
        let first = differ.first().map(|&i| (i * format.block_len() / ROW, &got[i * size..][..size], &want[i * size..][..size]));
        assert!(
            differ.is_empty(),
            "{format}: blocks {differ:?} of {}; of the first its row, what came, what should: {first:?}",
            got.len() / size
        );
    }
}

/// f32 is written as it is.
#[test]
fn f32_keeps_its_bits() {
    let weights = weights();
    let mut got = vec![0; 4 * weights.len()];
    encode_row(Format::F32, &weights, &mut got).expect("all are finite");
    assert_eq!(got, fixture("weights.f32"));
}

/// What is written is read back within half a step of 1 / 2^bits of the block's range, doubled for the steps' own rounding.
#[test]
fn what_is_written_can_be_read() {
    let weights: Vec<f32> = weights()[..24 * ROW].to_vec();
    for (format, bits) in [
        (Format::Q4_0, 4),
        (Format::Q4_1, 4),
        (Format::Q5_0, 5),
        (Format::Q5_1, 5),
        (Format::Q8_0, 8),
        (Format::Q4_K, 4),
        (Format::Q5_K, 5),
        (Format::Q6_K, 6),
    ] {
        let mut bytes = vec![0; format.row_bytes(weights.len()).expect("whole blocks")];
        encode_row(format, &weights, &mut bytes).expect("all are finite");
        let mut again = vec![0.0; weights.len()];
        dequantize_row(format, &bytes, &mut again);
        let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>();
        let error = squares(&mut weights.iter().zip(&again).map(|(a, b)| a - b)) / squares(&mut weights.iter().copied());
        // A block of 32 normal numbers spans about four deviations to either side; uniform error within a step.
        let bound = (8.0 / f64::from(1 << bits)).powi(2) / 12.0;
        assert!(error < bound, "{format}: {error:e} of the squares, more than {bound:e}");
    }
}
