//! A tiny random model of every family against the logits of `transformers`, on every backend and at several chunk sizes.
//!
//! What each is for and how to remake it: `fixtures/README.md`.

#[allow(dead_code, reason = "each test takes a part")]
mod compare;

use std::path::{Path, PathBuf};

use compare::{first_difference, ids, kl, load, mean, nmse, read_f32, read_json, rows, run, runnable};
use rml::decode::KvType;
use serde_json::Value;

/// Mean squared error over mean squared logit. Both programs compute in f32 and sum in other orders, which is the case of
/// `F32_NMSE` in `tests/golden.rs`; `transformers` takes angles in f32 as well, which are off by up to 80 2^-24 = 5e-6. Squared, 1e-10.
const NMSE: f64 = 1e-10;

/// Bound of a model with matrices in Q8_0 or MXFP4, whose activations are rounded to 8 bits as well: `QUANTIZED_KL` of `tests/golden.rs`,
/// where there is one layer; here are two.
const QUANTIZED_KL: f64 = 6e-3;

/// Tokens at a time: one, few with an end of their own, and more than a window.
const CHUNKS: [usize; 3] = [1, 7, 64];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/families")
}

struct Sequence {
    tokens: Vec<u32>,
    positions: Vec<usize>,
}

fn sequences(expected: &Value) -> Vec<Sequence> {
    let of = |s: &Value| Sequence { tokens: ids(&s["tokens"]), positions: ids(&s["positions"]).iter().map(|&p| p as usize).collect() };
    expected["sequences"].as_array().expect("sequences").iter().map(of).collect()
}

/// Logits at the positions that were recorded, all sequences one after the other.
fn logits(path: &Path, backend: &str, threads: usize, kv: KvType, chunk: usize, sequences: &[Sequence]) -> Vec<f32> {
    let model = load(path, backend, threads);
    let n_vocab = model.config().n_vocab;
    sequences.iter().flat_map(|s| rows(&run(&model, kv, &[chunk], &s.tokens), n_vocab, &s.positions)).collect()
}

#[test]
fn logits_are_those_of_transformers() {
    let expected = read_json(&folder().join("expected.json"));
    let sequences = sequences(&expected);
    let n_vocab = expected["vocab"].as_u64().expect("a number") as usize;
    let mut wrong = Vec::new();
    for name in expected["models"].as_array().expect("models").iter().map(|m| m.as_str().expect("a name")) {
        let path = folder().join(format!("{name}.gguf"));
        let want = read_f32(&folder().join(format!("{name}.f32")));
        let reference = logits(&path, "ref", 2, KvType::F32, 64, &sequences);
        let off = nmse(&want, &reference);
        let pairs = want.chunks(n_vocab).zip(reference.chunks(n_vocab));
        let mean_kl = mean(&pairs.map(|(a, b)| kl(a, b)).collect::<Vec<_>>());
        let line = format!("{name}: nmse {off:.1e}, mean KL {mean_kl:.1e}");
        eprintln!("{line}");
        let close = if name.ends_with("-q8_0") || name.ends_with("-mxfp4") { mean_kl <= QUANTIZED_KL } else { off <= NMSE };
        if !close {
            wrong.push(line);
        }
        for kv in KvType::ALL {
            let reference = logits(&path, "ref", 1, kv, 64, &sequences);
            for (backend, chunk) in runnable().into_iter().flat_map(|backend| CHUNKS.map(|chunk| (backend, chunk))) {
                if let Some(difference) = first_difference(&reference, &logits(&path, backend, 3, kv, chunk, &sequences), n_vocab) {
                    wrong.push(format!("{name} on {backend}, chunks of {chunk}, kv {kv:?}: {difference}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
