//! `rml inspect`, for people and as JSON.

use rml::model::gguf::{Array, Value};
use rml::model::{Config, MemoryPlan};
use rml::toolbox::inspect;
use serde_json::json;

use crate::config::{Change, tiny};
use crate::{EVERY_TYPE, directory, read};

fn inspected(name: &str, bytes: &[u8], json: bool) -> String {
    let path = directory(name).join("test.gguf");
    std::fs::write(&path, bytes).unwrap();
    let mut out = Vec::new();
    inspect(&path, json, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn json_is_complete() {
    let tokens = Value::Array(Array::Strings((0..16).map(|i| i.to_string()).collect()));
    let bytes = tiny(&[Change::Set("tokenizer.ggml.tokens", tokens)]);
    let document: serde_json::Value = serde_json::from_str(&inspected("json", &bytes, true)).unwrap();
    assert_eq!(document["architecture"], "llama");
    assert_eq!(document["metadata"]["llama.attention.layer_norm_rms_epsilon"], 1e-5);
    assert_eq!(document["metadata"]["tokenizer.ggml.tokens"].as_array().unwrap().len(), 16);
    assert_eq!(document["tensors"].as_array().unwrap().len(), 20);
    assert_eq!(document["tensors"][0]["name"], "token_embd.weight");
    assert_eq!(document["tensors"][0]["type"], "f32");
    assert_eq!(document["tensors"][0]["shape"], json!([8, 16]));
    // 2 layers x 2 heads x 6 numbers, keys and values; 64 positions. By hand: 48 numbers, in 8 groups that have a scale each.
    assert_eq!(
        document["memory"]["kv"],
        json!({
            "context_length": 64,
            "bytes_per_token": {"f16": 96, "f32": 192, "i8": 64},
            "bytes_at_context": {"f16": 6144, "f32": 12288, "i8": 4096},
        })
    );
    // 128 + 8 outside; 8 + 192 + 96 + 96 + 192 + 8 + 96 + 96 + 96 a layer.
    let n_weights = 136 + 2 * 880;
    assert_eq!(document["memory"]["weights"], json!([{"type": "f32", "tensors": 20, "weights": n_weights, "bytes": 4 * n_weights}]));
    assert_eq!(document["memory"]["file_bytes"], bytes.len());
    assert_eq!(document["notes"], json!([]));
}

#[test]
fn a_file_that_cannot_be_run_is_shown_with_the_reason() {
    let text = inspected("every-type", EVERY_TYPE, false);
    for said in [
        "test.gguf: GGUF version 3, 1.0 KiB\n",
        "  test.f32              0.1\n",
        "  test.string           \"größer ≥ 🦀\"\n",
        "  test.nested           [2 i32, 1 i32]\n",
        "  foreign  iq4_nl    32 x 1                  18 B\n",
        "Note: ",
        "llama.embedding_length is missing",
    ] {
        assert!(text.contains(said), "{said:?} in:\n{text}");
    }
}

/// A format with a packing of its own keeps its size; one without is decoded to a byte a weight and a scale of 4 bytes for 32,
/// unless the reference multiplies it in place.
#[test]
fn each_type_is_shown_with_what_multiplies_it() {
    let q4_0 = Change::Tensor("output.weight", 2, &[32, 16]);
    let mut document: serde_json::Value = serde_json::from_str(&inspected("kernels", &tiny(&[q4_0]), true)).unwrap();
    assert_eq!((document["kernels"][1]["type"].take(), document["kernels"][1]["bits"].take()), (json!("q4_0"), json!(4.5)));
    assert_eq!(document["kernels"][1]["loaded_bits"], 4.5);
    let iq4_nl = || tiny(&[Change::Tensor("output.weight", 20, &[32, 16])]);
    let document: serde_json::Value = serde_json::from_str(&inspected("decoded", &iq4_nl(), true)).unwrap();
    let row = &document["kernels"][1];
    let decoded = row["backend"] != "ref";
    assert_eq!((&row["type"], &row["loaded_bits"]), (&json!("iq4_nl"), &json!(if decoded { 9.0 } else { 4.5 })));
    let text = inspected("decoded-text", &iq4_nl(), false);
    assert_eq!(text.contains("decoded to 9.0 bits each when loaded"), decoded, "{text}");
}

#[test]
fn long_values_are_cut_short_and_none_reaches_the_terminal_raw() {
    let tokens = Value::Array(Array::Strings((0..16).map(|i| format!("\u{1b}[{i}m")).collect()));
    let template = Value::String("x\n".repeat(1000));
    let text =
        inspected("long", &tiny(&[Change::Set("tokenizer.ggml.tokens", tokens), Change::Set("tokenizer.chat_template", template)]), false);
    assert!(!text.contains('\u{1b}'));
    assert!(text.contains("… (2000 bytes)") && text.contains("… (16 texts)]"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 300), "{text}");
}

#[test]
fn sums_do_not_overflow() {
    let file = read(&tiny(&[])).unwrap();
    let mut config = Config::from_gguf(&file).unwrap();
    (config.n_layers, config.n_kv_heads, config.d_head, config.context_length) = (1 << 24, 1 << 24, 1 << 24, 1 << 24);
    assert_eq!(MemoryPlan::new(&file, Some(&config)).kv.unwrap().bytes_at_context.f32, u64::MAX);
}
