//! The architecture of a model as numbers, read from metadata and checked.

use super::families::{FAMILIES, RopeStyle, family};
use super::gguf::{Array, Gguf, Value};
use crate::{Error, Result};

/// Sizes and constants of a decoder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the family, such as `llama`.
    pub architecture: String,
    /// Layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key-value heads; each serves `n_heads / n_kv_heads` query heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Width of the feed-forward part.
    pub d_ff: usize,
    /// Tokens of the vocabulary: rows of the embedding.
    pub n_vocab: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Added to the mean square in each norm.
    pub rms_eps: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// What scores are multiplied with.
    pub attention_scale: f32,
    /// Positions a token sees, itself included, where that is limited.
    pub window: Option<usize>,
}

/// Rotary embedding.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Which components form a pair.
    pub style: RopeStyle,
    /// Base of the frequencies.
    pub base: f32,
    /// Components of a head that are rotated.
    pub n_rot: usize,
    /// Positions are divided by this (linear scaling).
    pub linear: f32,
}

/// Larger sizes are damage, not models; the bound keeps every product of two sizes within 64 bits.
const LARGEST: u32 = 1 << 24;

impl Config {
    /// Reads the metadata of a file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture that rml does not run, [`Error::Malformed`] naming the key for anything missing or impossible.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let meta = file.metadata();
        let arch = meta.required("general.architecture", meta.str("general.architecture")?)?;
        let unsupported = |reason: String| Error::Unsupported { path: file.path().to_owned(), reason };
        let family = family(arch).ok_or_else(|| {
            unsupported(format!("architecture {arch:?} is not supported; rml runs {}", FAMILIES.map(|f| f.name).join(", ")))
        })?;
        let key = |suffix: &str| format!("{arch}.{suffix}");
        let optional = |suffix: &str| -> Result<Option<usize>> {
            let key = key(suffix);
            match meta.u32(&key)? {
                Some(n) if n == 0 || n > LARGEST => Err(meta.malformed(&key, &format!("is {n}; from 1 to {LARGEST} are possible"))),
                n => Ok(n.map(|n| n as usize)),
            }
        };
        let required = |suffix: &str| -> Result<usize> { meta.required(&key(suffix), optional(suffix)?) };
        for (suffix, what) in [("expert_count", "experts"), ("attention.sliding_window", "a sliding window")] {
            if meta.u32(&key(suffix))?.is_some_and(|n| n > 0) {
                return Err(unsupported(format!("{} says that this model has {what}, which rml does not run yet", key(suffix))));
            }
        }
        for suffix in ["attention.head_count_kv", "feed_forward_length", "attention.head_count"] {
            if let Some(Value::Array(Array::I64(list))) = meta.get(&key(suffix)) {
                return Err(unsupported(format!("{} differs by layer ({list:?}), which rml does not run yet", key(suffix))));
            }
        }

        let (n_layers, d_model, d_ff) = (required("block_count")?, required("embedding_length")?, required("feed_forward_length")?);
        let n_heads = required("attention.head_count")?;
        let n_kv_heads = optional("attention.head_count_kv")?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(
                meta.malformed(&key("attention.head_count_kv"), &format!("is {n_kv_heads}, which does not divide the {n_heads} heads"))
            );
        }
        let d_head = match optional("attention.key_length")? {
            Some(d) => d,
            None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
            None => {
                return Err(
                    meta.malformed(&key("attention.head_count"), &format!("is {n_heads}, which does not divide the width {d_model}"))
                );
            }
        };
        if optional("attention.value_length")?.is_some_and(|d| d != d_head) {
            return Err(unsupported(format!(
                "{} differs from the {d_head} of keys, which rml does not run yet",
                key("attention.value_length")
            )));
        }
        let n_rot = optional("rope.dimension_count")?.unwrap_or(d_head);
        if n_rot > d_head || n_rot % 2 == 1 {
            return Err(
                meta.malformed(&key("rope.dimension_count"), &format!("is {n_rot}; it must be even and at most the {d_head} of a head"))
            );
        }
        let rms_eps_key = key("attention.layer_norm_rms_epsilon");
        let rms_eps = meta.required(&rms_eps_key, meta.f32(&rms_eps_key)?)?;
        if rms_eps < 0.0 {
            return Err(meta.malformed(&rms_eps_key, &format!("is {rms_eps}; it must not be negative")));
        }
        let base = meta.f32(&key("rope.freq_base"))?.unwrap_or(10_000.0);
        if base <= 0.0 {
            return Err(meta.malformed(&key("rope.freq_base"), &format!("is {base}; it must be positive")));
        }
        let linear = match meta.str(&key("rope.scaling.type"))? {
            None if meta.get(&key("rope.scaling.factor")).is_none() => meta.f32(&key("rope.scale_linear"))?.unwrap_or(1.0),
            None | Some("linear") => meta.f32(&key("rope.scaling.factor"))?.unwrap_or(1.0),
            Some("none") => 1.0,
            Some(other) => return Err(unsupported(format!("{} is {other:?}, which rml does not run yet", key("rope.scaling.type")))),
        };
        if linear <= 0.0 {
            return Err(meta.malformed(&key("rope.scaling.factor"), &format!("is {linear}; it must be positive")));
        }
        let embedding = file.tensor("token_embd.weight").ok_or_else(|| Error::Malformed {
            path: file.path().to_owned(),
            reason: "tensor token_embd.weight is missing; this file holds no model (perhaps only a vocabulary)".into(),
        })?;
        Ok(Config {
            architecture: arch.to_owned(),
            n_layers,
            d_model,
            n_heads,
            n_kv_heads,
            d_head,
            d_ff,
            n_vocab: embedding.shape.get(1).copied().unwrap_or(1),
            context_length: required("context_length")?,
            rms_eps,
            rope: Rope { style: family.rope, base, n_rot, linear },
            attention_scale: 1.0 / (d_head as f32).sqrt(),
            window: None,
        })
    }

    /// Query heads that share a key-value head.
    pub fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }
}
