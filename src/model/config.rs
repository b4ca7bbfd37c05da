//! The architecture of a model as numbers, read from metadata and checked.
//!
//! Keys are those of the GGUF specification; each error names its key.

use super::families::{FAMILIES, Family, RopeStyle, family};
use super::gguf::{Gguf, Metadata, TensorInfo, TensorType, Value};
use super::tensors::{ROPE_FREQS, TOKEN_EMBD};
use crate::{Error, Result};

/// Sizes and constants of a decoder. No size is 0, and each is at most 2^24.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which components form a pair.
    pub style: RopeStyle,
    /// Base of the frequencies.
    pub base: f32,
    /// Components of a head that are rotated: even, at most `d_head`.
    pub n_rot: usize,
    /// All frequencies are divided by this: linear scaling of positions; 1 for none.
    pub linear: f32,
    /// Each frequency is divided by its own of these as well, as in Llama 3.1 and later. (n_rot / 2), or empty for none
    pub factors: Vec<f32>,
}

/// Larger sizes are damage, not models; the bound keeps every product of two sizes within 64 bits.
const LARGEST: u32 = 1 << 24;

impl Config {
    /// Reads the metadata of a file, and what only the tensors tell: the size of the vocabulary, the factors of the rotation.
    /// A file that holds only a vocabulary has a configuration too.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture or a feature that rml does not run, [`Error::Malformed`] for anything missing
    /// or impossible.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let keys = Keys::new(file)?;
        keys.refuse_unsupported()?;
        let d_model = keys.size("embedding_length")?;
        let n_heads = keys.size("attention.head_count")?;
        let n_kv_heads = keys.size_or("attention.head_count_kv", n_heads)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(keys.wrong("attention.head_count_kv", &format!("is {n_kv_heads}, which does not divide the {n_heads} heads")));
        }
        let d_head = match keys.optional_size("attention.key_length")? {
            Some(d) => d,
            None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
            None => return Err(keys.wrong("attention.head_count", &format!("is {n_heads}, which does not divide the width {d_model}"))),
        };
        if keys.size_or("attention.value_length", d_head)? != d_head {
            return Err(keys.unsupported("attention.value_length", &format!("differs from the width {d_head} of keys")));
        }
        Ok(Config {
            architecture: keys.family.name.to_owned(),
            n_layers: keys.size("block_count")?,
            d_model,
            n_heads,
            n_kv_heads,
            d_head,
            d_ff: keys.size("feed_forward_length")?,
            n_vocab: keys.vocabulary()?,
            context_length: keys.size("context_length")?,
            rms_eps: keys.rms_eps()?,
            rope: keys.rope(d_head)?,
            attention_scale: 1.0 / (d_head as f32).sqrt(),
            window: None,
        })
    }

    /// Query heads that share a key-value head.
    pub fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }
}

impl Rope {
    /// Applies the model's scaling to its plain frequencies, `base^(-2j / n_rot)`. (n_rot / 2)
    pub fn scale(&self, frequencies: &mut [f32]) {
        frequencies.iter_mut().for_each(|f| *f /= self.linear);
        for (f, factor) in frequencies.iter_mut().zip(&self.factors) {
            *f /= factor;
        }
    }
}

/// The metadata of one architecture: keys are given without its name.
struct Keys<'a> {
    file: &'a Gguf,
    meta: &'a Metadata,
    family: &'static Family,
}

impl<'a> Keys<'a> {
    fn new(file: &'a Gguf) -> Result<Self> {
        let meta = file.metadata();
        let name = meta.required("general.architecture", meta.str("general.architecture")?)?;
        match family(name) {
            Some(family) => Ok(Keys { file, meta, family }),
            None => Err(Error::Unsupported {
                path: file.path().to_owned(),
                reason: format!("architecture {name:?} is not supported; rml runs {}", FAMILIES.map(|f| f.name).join(", ")),
            }),
        }
    }

    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.family.name)
    }

    fn wrong(&self, suffix: &str, problem: &str) -> Error {
        self.meta.malformed(&self.key(suffix), problem)
    }

    fn unsupported(&self, suffix: &str, problem: &str) -> Error {
        Error::Unsupported {
            path: self.file.path().to_owned(),
            reason: format!("metadata {} {problem}, which rml does not run; take another model", self.key(suffix)),
        }
    }

    /// Refuses what would change the computation and is not computed.
    fn refuse_unsupported(&self) -> Result<()> {
        for (suffix, what) in [("expert_count", "experts"), ("attention.sliding_window", "positions of a sliding window")] {
            if let Some(n @ 1..) = self.meta.u32(&self.key(suffix))? {
                return Err(self.unsupported(suffix, &format!("asks for {n} {what}")));
            }
        }
        for suffix in ["attention.head_count", "attention.head_count_kv", "feed_forward_length"] {
            if let Some(Value::Array(_)) = self.meta.get(&self.key(suffix)) {
                return Err(self.unsupported(suffix, "differs from layer to layer"));
            }
        }
        Ok(())
    }

    fn optional_size(&self, suffix: &str) -> Result<Option<usize>> {
        match self.meta.u32(&self.key(suffix))? {
            None => Ok(None),
            Some(n) if (1..=LARGEST).contains(&n) => Ok(Some(n as usize)),
            Some(n) => Err(self.wrong(suffix, &format!("is {n}, where 1 to {LARGEST} are possible"))),
        }
    }

    fn size_or(&self, suffix: &str, default: usize) -> Result<usize> {
        Ok(self.optional_size(suffix)?.unwrap_or(default))
    }

    fn size(&self, suffix: &str) -> Result<usize> {
        self.meta.required(&self.key(suffix), self.optional_size(suffix)?)
    }

    fn positive(&self, suffix: &str) -> Result<Option<f32>> {
        match self.meta.f32(&self.key(suffix))? {
            Some(x) if x <= 0.0 => Err(self.wrong(suffix, &format!("is {x}; it must be positive"))),
            x => Ok(x),
        }
    }

    fn rms_eps(&self) -> Result<f32> {
        let suffix = "attention.layer_norm_rms_epsilon";
        self.meta.required(&self.key(suffix), self.positive(suffix)?)
    }

    /// Rows of the embedding; in a file without tensors, tokens of the vocabulary.
    fn vocabulary(&self) -> Result<usize> {
        let tokens = self.meta.strings("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
        let rows = match self.file.tensor(TOKEN_EMBD) {
            Some(TensorInfo { shape, .. }) if shape.len() != 2 => {
                return Err(self.malformed(format!("tensor {TOKEN_EMBD} has the shape {shape:?}, where two dimensions are needed")));
            }
            Some(tensor) => Some(tensor.shape[1]),
            None => None,
        };
        let n = match (rows, tokens) {
            (Some(rows), Some(tokens)) if tokens > rows => {
                return Err(self.malformed(format!("the vocabulary has {tokens} tokens, but {TOKEN_EMBD} has only {rows} rows")));
            }
            (Some(n), _) | (None, Some(n)) => n,
            (None, None) => return self.size("vocab_size"),
        };
        if (1..=LARGEST as usize).contains(&n) {
            return Ok(n);
        }
        Err(self.malformed(format!("the vocabulary has {n} tokens, where 1 to {LARGEST} are possible")))
    }

    fn rope(&self, d_head: usize) -> Result<Rope> {
        let n_rot = self.size_or("rope.dimension_count", d_head)?;
        if n_rot % 2 == 1 || n_rot > d_head {
            return Err(self.wrong("rope.dimension_count", &format!("is {n_rot}; it must be even and at most the {d_head} of a head")));
        }
        Ok(Rope {
            style: self.family.rope,
            base: self.positive("rope.freq_base")?.unwrap_or(10_000.0),
            n_rot,
            linear: self.linear_scaling()?,
            factors: self.rope_factors(n_rot)?,
        })
    }

    /// As llama.cpp reads it: the type is linear unless said otherwise, and a factor of 0 means none.
    fn linear_scaling(&self) -> Result<f32> {
        let kind = "rope.scaling.type";
        match self.meta.str(&self.key(kind))? {
            Some("none") => return Ok(1.0),
            None | Some("linear") => {}
            Some(other) => return Err(self.unsupported(kind, &format!("is {other:?}"))),
        }
        for suffix in ["rope.scaling.factor", "rope.scale_linear"] {
            match self.meta.f32(&self.key(suffix))? {
                None => {}
                Some(0.0) => return Ok(1.0),
                Some(x) if x > 0.0 => return Ok(x),
                Some(x) => return Err(self.wrong(suffix, &format!("is {x}; it must be positive"))),
            }
        }
        Ok(1.0)
    }

    /// The tensor with a factor a frequency, where the file has it.
    fn rope_factors(&self, n_rot: usize) -> Result<Vec<f32>> {
        let Some(tensor) = self.file.tensor(ROPE_FREQS) else { return Ok(Vec::new()) };
        if tensor.kind != TensorType(0) || tensor.shape != [n_rot / 2] {
            return Err(self.malformed(format!(
                "tensor {ROPE_FREQS} has the shape {:?} in {}, where [{}] in f32 is needed",
                tensor.shape,
                tensor.kind,
                n_rot / 2
            )));
        }
        let factors: Vec<f32> = self.file.bytes(tensor).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        match factors.iter().position(|f| !f.is_finite() || *f <= 0.0) {
            Some(i) => Err(self.malformed(format!("tensor {ROPE_FREQS} holds {} at {i}, where factors are positive", factors[i]))),
            None => Ok(factors),
        }
    }

    fn malformed(&self, problem: String) -> Error {
        Error::Malformed {
            path: self.file.path().to_owned(),
            reason: format!("{problem}; the file is damaged or was converted wrongly, convert or fetch it again"),
        }
    }
}
