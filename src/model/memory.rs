//! What a model takes of the memory, told from its file without loading it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Config;
use super::gguf::{Gguf, TensorType};

/// Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// The file, or all files of a split set.
    pub file_bytes: u64,
    /// All tensors.
    pub weight_bytes: u64,
    /// Tensors by type, largest share first.
    pub weights: Vec<WeightShare>,
    /// The cache, if the architecture is one that rml runs.
    pub kv: Option<KvPlan>,
}

/// The tensors of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeightShare {
    /// Name of the type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number of tensors.
    pub tensors: u64,
    /// Number of weights.
    pub weights: u64,
    /// Their size; 0 if the type is unknown.
    pub bytes: u64,
}

/// The key-value cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KvPlan {
    /// Positions the model was trained for.
    pub context_length: u64,
    /// Keys and values of one position in all layers.
    pub bytes_per_token: BytesByType,
    /// The cache for the whole context.
    pub bytes_at_context: BytesByType,
}

/// A size for each type of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BytesByType {
    /// Two bytes a number.
    pub f16: u64,
    /// Four bytes a number.
    pub f32: u64,
}

impl MemoryPlan {
    /// The plan of a file whose configuration is known or not.
    pub fn new(file: &Gguf, config: Option<&Config>) -> Self {
        let mut shares: BTreeMap<TensorType, WeightShare> = BTreeMap::new();
        for tensor in file.tensors() {
            let share = shares.entry(tensor.kind).or_insert_with(|| WeightShare {
                kind: tensor.kind.to_string(),
                tensors: 0,
                weights: 0,
                bytes: 0,
            });
            share.tensors += 1;
            // Tensors may overlap and types may be unknown, so sums are not bounded by the file's size.
            share.weights = share.weights.saturating_add(tensor.n_weights() as u64);
            share.bytes = share.bytes.saturating_add(tensor.bytes as u64);
        }
        let mut weights: Vec<_> = shares.into_values().collect();
        weights.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        MemoryPlan {
            file_bytes: file.file_bytes() as u64,
            weight_bytes: weights.iter().fold(0, |sum, share| sum.saturating_add(share.bytes)),
            weights,
            kv: config.map(KvPlan::new),
        }
    }
}

impl KvPlan {
    /// Keys and values: `2 * n_layers * n_kv_heads * d_head` numbers a position.
    fn new(config: &Config) -> Self {
        let sizes = [config.n_layers, config.n_kv_heads, config.d_head];
        let numbers = sizes.iter().fold(2_u64, |n, &size| n.saturating_mul(size as u64));
        let context_length = config.context_length as u64;
        let times = |n: u64| BytesByType { f16: n.saturating_mul(2), f32: n.saturating_mul(4) };
        KvPlan { context_length, bytes_per_token: times(numbers), bytes_at_context: times(numbers.saturating_mul(context_length)) }
    }
}
