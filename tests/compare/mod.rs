//! How near two rows of logits are, and how a test loads and runs a model.

use std::path::Path;

use rml::decode::{KvType, Rows, State};
use rml::model::registry;
use rml::{LoadOptions, Model};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Natural logarithms of the probabilities.
pub(crate) fn log_softmax(x: &[f32]) -> Vec<f64> {
    let log_sum = log_sum_exp(x);
    x.iter().map(|x| f64::from(*x) - log_sum).collect()
}

/// The logarithm of the sum of exponentials.
pub(crate) fn log_sum_exp(x: &[f32]) -> f64 {
    let max = f64::from(x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + x.iter().map(|x| (f64::from(*x) - max).exp()).sum::<f64>().ln()
}

/// Kullback-Leibler divergence of what was got from what was expected, in nats.
pub(crate) fn kl(expected: &[f32], got: &[f32]) -> f64 {
    log_softmax(expected).iter().zip(log_softmax(got)).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// The best token, and how far the second best is behind it.
pub(crate) fn best(x: &[f32]) -> (usize, f32) {
    let (mut first, mut second) = ((0, f32::NEG_INFINITY), f32::NEG_INFINITY);
    for (i, &x) in x.iter().enumerate() {
        if x > first.1 {
            (first, second) = ((i, x), first.1);
        } else {
            second = second.max(x);
        }
    }
    (first.0, first.1 - second)
}

/// The mean of a list.
pub(crate) fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// A row a token out of little-endian f32.
pub(crate) fn read_f32(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// A JSON document.
pub(crate) fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A JSON list of token ids.
pub(crate) fn ids(v: &Value) -> Vec<u32> {
    v.as_array().expect("a list").iter().map(|x| x.as_u64().expect("an id") as u32).collect()
}

/// A model on a backend.
pub(crate) fn load(path: &Path, backend: &str, threads: usize) -> Model {
    let options = LoadOptions { backend: Some(backend.to_owned()), threads, ..LoadOptions::default() };
    Model::load(path, &options).unwrap_or_else(|e| panic!("{backend}: {e}"))
}

/// Names of the backends that run here and promise the bits of `ref`.
pub(crate) fn runnable() -> Vec<&'static str> {
    let registry = registry().expect("a registry");
    let exact = |name: &&str| registry.table_of(name).is_ok_and(|table| table.inexact().next().is_none());
    registry.backends().iter().map(|r| r.backend.name()).filter(exact).collect()
}

/// Logits of every token, run in pieces of these lengths, the last one repeated. (tokens, n_vocab)
pub(crate) fn run(model: &Model, kv: KvType, pieces: &[usize], tokens: &[u32]) -> Vec<f32> {
    let mut state = State::new(model, kv, tokens.len()).expect("a state");
    let mut lengths = pieces.iter().chain(std::iter::repeat(&pieces[pieces.len() - 1]));
    let (mut logits, mut rest) = (Vec::new(), tokens);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(*lengths.next().expect("endless")));
        logits.extend_from_slice(state.forward(model, piece, Rows::All).expect("a pass"));
        rest = after;
    }
    logits
}

/// The first logit whose bits differ, in words.
pub(crate) fn first_difference(expected: &[f32], got: &[f32], n_vocab: usize) -> Option<String> {
    assert_eq!(expected.len(), got.len(), "as many logits");
    let i = expected.iter().zip(got).position(|(a, b)| a.to_bits() != b.to_bits())?;
    Some(format!("position {} logit {} is {}, not {}", i / n_vocab, i % n_vocab, got[i], expected[i]))
}

/// The rows at these positions, one after the other.
pub(crate) fn rows(logits: &[f32], n_vocab: usize, positions: &[usize]) -> Vec<f32> {
    positions.iter().flat_map(|p| &logits[p * n_vocab..][..n_vocab]).copied().collect()
}

/// Mean squared error over mean squared value.
pub(crate) fn nmse(expected: &[f32], got: &[f32]) -> f64 {
    let error: f64 = expected.iter().zip(got).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / expected.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
}

/// SHA-256 of the bits of logits.
pub(crate) fn digest(logits: &[f32]) -> String {
    let mut hash = Sha256::new();
    logits.iter().for_each(|x| hash.update(x.to_bits().to_le_bytes()));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
