//! The architecture of a model as numbers, read from metadata and checked.
//!
//! Keys are those of the GGUF specification; each error names its key.

mod keys;
mod rope;

use keys::Keys;

pub use rope::{LongFactors, Rope, Yarn};

use super::families::{Family, Layers};
use super::gguf::Gguf;
use crate::Result;

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
    /// What the name of the family says.
    pub family: Family,
    /// Rotary embedding.
    pub rope: Rope,
    /// What scores are multiplied with.
    pub attention_scale: f32,
    /// Scores are kept within this by `cap * tanh(score / cap)`, if at all.
    pub score_cap: Option<f32>,
    /// The window that limits some layers, if there is one.
    pub window: Option<Window>,
    /// What embeddings are multiplied with.
    pub embedding_scale: f32,
    /// What is multiplied with this before it is added to the residual stream.
    pub residual_scale: f32,
    /// What logits are divided by.
    pub logit_divisor: f32,
    /// Logits are kept within this as scores are.
    pub logit_cap: Option<f32>,
    /// The experts, where the feed-forward part consists of some.
    pub experts: Option<Experts>,
}

/// A limit to what a token sees, in some layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Positions seen, the token's own included.
    pub size: usize,
    /// The layers.
    pub layers: Layers,
    /// How these rotate, where it is not as the others do.
    pub rope: Option<Rope>,
}

/// Experts, of which a router chooses some for each token; `d_ff` is the width of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many a token uses.
    pub used: usize,
}

/// Larger sizes are damage, not models; the bound keeps every product of two sizes within 64 bits.
const LARGEST: u32 = 1 << 24;

impl Config {
    /// Reads the metadata of a file, and what only the tensors tell: the size of the vocabulary, the factors of the rotation.
    /// A file that holds only a vocabulary has a configuration too.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for an architecture or a feature that rml does not run, [`Error::Malformed`](crate::Error::Malformed) for anything missing
    /// or impossible.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let keys = Keys::new(file)?;
        keys.refuse_unsupported()?;
        let family = *keys.family;
        let d_model = keys.size("embedding_length")?;
        let n_layers = keys.size("block_count")?;
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
        let context_length = keys.size("context_length")?;
        let experts = keys.experts()?;
        let d_ff = match experts {
            Some(_) => keys.optional_size("expert_feed_forward_length")?,
            None => None,
        };
        let scaled = if family.scaled_by_width == Some(n_layers) { d_model / n_heads } else { d_head };
        Ok(Config {
            architecture: family.name.to_owned(),
            n_layers,
            d_model,
            n_heads,
            n_kv_heads,
            d_head,
            d_ff: d_ff.map_or_else(|| keys.size("feed_forward_length"), Ok)?,
            n_vocab: keys.vocabulary()?,
            context_length,
            rms_eps: keys.rms_eps()?,
            rope: keys.rope(d_head, context_length)?,
            attention_scale: keys.positive("attention.scale")?.unwrap_or(1.0 / (scaled as f32).sqrt()),
            score_cap: keys.positive("attn_logit_softcapping")?,
            window: keys.window(n_layers, d_head)?,
            embedding_scale: keys.positive("embedding_scale")?.unwrap_or(if family.scaled_embedding {
                (d_model as f32).sqrt()
            } else {
                1.0
            }),
            residual_scale: keys.positive("residual_scale")?.unwrap_or(1.0),
            logit_divisor: keys.positive("logit_scale")?.unwrap_or(1.0),
            logit_cap: keys.positive("final_logit_softcapping")?,
            experts,
            family,
        })
    }

    /// Query heads that share a key-value head.
    pub fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// The window of a layer, if it has one.
    pub fn window_of(&self, layer: usize) -> Option<&Window> {
        self.window.as_ref().filter(|window| window.layers.has(layer))
    }

    /// Every way that layers rotate: [`rope_of`](Self::rope_of) numbers them.
    pub fn ropes(&self) -> impl Iterator<Item = &Rope> {
        [Some(&self.rope), self.window.as_ref().and_then(|window| window.rope.as_ref())].into_iter().flatten()
    }

    /// Which of the [`ropes`](Self::ropes) a layer has, if it rotates.
    pub fn rope_of(&self, layer: usize) -> Option<usize> {
        let local = self.window_of(layer).is_some_and(|window| window.rope.is_some());
        (!self.family.unrotated.has(layer)).then_some(usize::from(local))
    }
}
