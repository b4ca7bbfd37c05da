//! The shapes of models, from `shapes.json`: what is written, and what the benches measure.

use serde::Deserialize;

/// Sizes of a model of the `llama` architecture.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// What the command line calls it.
    pub name: String,
    /// Layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key-value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Width of the feed-forward part.
    pub d_ff: usize,
    /// Tokens of the vocabulary.
    pub n_vocab: usize,
    /// Whether the embedding serves as head.
    pub tied: bool,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Positions that the metadata promise.
    pub context_length: u32,
}

/// A matrix of a model: a name of GGUF's, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    /// Within a layer, such as `attn_q`.
    pub role: &'static str,
    /// Outputs.
    pub n: usize,
    /// Inputs.
    pub k: usize,
}

impl Shape {
    /// Every shape, in the file's order.
    pub fn all() -> Vec<Shape> {
        serde_json::from_str(include_str!("shapes.json")).expect("shapes.json holds shapes, as a test makes sure")
    }

    /// The shape called `name`.
    ///
    /// # Errors
    /// A text that lists the names there are.
    pub fn named(name: &str) -> Result<Shape, String> {
        let all = Shape::all();
        let names = all.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
        all.iter().find(|s| s.name == name).cloned().ok_or_else(|| format!("there is no shape of this name; there are {names}"))
    }

    /// The matrices of a layer, in the order of the file.
    pub fn layer(&self) -> [MatrixShape; 7] {
        let (d, q, kv, ff) = (self.d_model, self.n_heads * self.d_head, self.n_kv_heads * self.d_head, self.d_ff);
        [
            ("attn_q", q, d),
            ("attn_k", kv, d),
            ("attn_v", kv, d),
            ("attn_output", d, q),
            ("ffn_gate", ff, d),
            ("ffn_up", ff, d),
            ("ffn_down", d, ff),
        ]
        .map(|(role, n, k)| MatrixShape { role, n, k })
    }

    /// The matrix of the head, which has the size of the embedding.
    pub fn head(&self) -> MatrixShape {
        MatrixShape { role: if self.tied { "token_embd" } else { "output" }, n: self.n_vocab, k: self.d_model }
    }

    /// Weights in all, without the norms.
    pub fn n_weights(&self) -> usize {
        let layer: usize = self.layer().iter().map(|m| m.n * m.k).sum();
        self.n_layers * layer + self.n_vocab * self.d_model * if self.tied { 1 } else { 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published counts: 134.5 million, 1.24 and 8.03 billion, norms included.
    #[test]
    fn shapes_have_the_published_number_of_weights() {
        let norms = |s: &Shape| (2 * s.n_layers + 1) * s.d_model;
        let weights = |name| Shape::named(name).map(|s| s.n_weights() + norms(&s));
        assert_eq!(weights("smollm2-135m"), Ok(134_515_008));
        assert_eq!(weights("llama-1b"), Ok(1_235_814_400));
        assert_eq!(weights("llama-8b"), Ok(8_030_261_248));
    }

    #[test]
    fn an_unknown_name_lists_the_known() {
        let said = Shape::named("llama-70b").expect_err("there is none");
        assert!(Shape::all().iter().all(|s| said.contains(&s.name)), "{said}");
    }
}
