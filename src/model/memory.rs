//! What a model takes of the memory, told from its file without loading it.

use std::collections::BTreeMap;

use rml_kernels_ref::kv::KvType;
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
    /// One byte a number, and two for each 32 of a head.
    pub i8: u64,
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
    /// Keys and values of `n_layers * n_kv_heads` heads a position.
    fn new(config: &Config) -> Self {
        let heads = [2, config.n_layers, config.n_kv_heads].iter().fold(1_u64, |n, &size| n.saturating_mul(size as u64));
        let context_length = config.context_length as u64;
        let bytes = |kind: KvType, positions: u64| heads.saturating_mul(kind.row_bytes(config.d_head) as u64).saturating_mul(positions);
        let by_type = |n| BytesByType { f16: bytes(KvType::F16, n), f32: bytes(KvType::F32, n), i8: bytes(KvType::I8, n) };
        KvPlan { context_length, bytes_per_token: by_type(1), bytes_at_context: by_type(context_length) }
    }
}

impl BytesByType {
    /// The size for one type.
    pub fn of(&self, kind: KvType) -> u64 {
        match kind {
            KvType::F16 => self.f16,
            KvType::F32 => self.f32,
            KvType::I8 => self.i8,
        }
    }
}
