//! Every weight format against the numbers of the Python package `gguf`; `fixtures/make_dequant.py` makes them anew.

use std::path::Path;

use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::format::Format;

/// The blocks of a fixture and the bits of their weights.
fn fixture(format: Format) -> (Vec<u8>, Vec<u32>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/dequant/{format}.bin"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (count, rest) = bytes.split_first_chunk().expect("a count");
    let count = u32::from_le_bytes(*count) as usize;
    let (blocks, weights) = rest.split_at(count * format.block_bytes());
    let (weights, left) = weights.as_chunks();
    assert!(left.is_empty() && weights.len() == count * format.block_len(), "{}", path.display());
    (blocks.to_vec(), weights.iter().map(|w| u32::from_le_bytes(*w)).collect())
}

/// Every step is the same IEEE operation in the same order as in `gguf`, so only the payload of a NaN may differ.
#[test]
fn weights_equal_those_of_gguf_bit_for_bit() {
    for format in Format::ALL {
        let (blocks, want) = fixture(format);
        let mut got = vec![f32::NAN; want.len()];
        dequantize_row(format, &blocks, &mut got);
        for (i, (got, &want)) in got.iter().zip(&want).enumerate() {
            let both_nan = got.is_nan() && f32::from_bits(want).is_nan();
            let (block, at) = (i / format.block_len(), i % format.block_len());
            assert!(both_nan || got.to_bits() == want, "{format} block {block} weight {at}: {got:e}, not {:e}", f32::from_bits(want));
        }
    }
}

/// A fixture that hides faults proves nothing: each has ordinary, zero and subnormal weights, and quantized ones NaN too.
#[test]
fn fixtures_hold_what_they_promise() {
    for format in Format::ALL {
        let weights: Vec<f32> = fixture(format).1.into_iter().map(f32::from_bits).collect();
        assert!(weights.iter().filter(|w| w.is_finite() && **w != 0.0).count() > weights.len() / 3, "{format}");
        // The scale of MXFP4 is a power of two, never more.
        if !format.is_float() && format != Format::MXFP4 {
            assert!(weights.iter().any(|w| w.is_nan()) && weights.contains(&0.0) && weights.iter().any(|w| w.is_infinite()), "{format}");
        }
    }
}
