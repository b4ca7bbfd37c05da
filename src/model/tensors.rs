//! The tensors of a model by their role, each checked for its shape.

use super::config::Config;
use super::gguf::{Gguf, TensorInfo};
use crate::{Error, Result};

/// Tensors outside the layers, and the layers.
#[derive(Debug)]
pub struct Tensors<'a> {
    /// (n_vocab, d_model)
    pub token_embd: &'a TensorInfo,
    /// (d_model)
    pub output_norm: &'a TensorInfo,
    /// (n_vocab, d_model); absent where the embedding serves as head.
    pub output: Option<&'a TensorInfo>,
    /// Divisors of the rotary frequencies (n_rot / 2), where the file has them.
    pub rope_freqs: Option<&'a TensorInfo>,
    /// Each layer.
    pub layers: Vec<LayerTensors<'a>>,
}

/// Tensors of one layer.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are GGUF's, the shapes stand beside them")]
pub struct LayerTensors<'a> {
    pub attn_norm: &'a TensorInfo,   // (d_model)
    pub attn_q: &'a TensorInfo,      // (heads * d, d_model)
    pub attn_k: &'a TensorInfo,      // (kv_heads * d, d_model)
    pub attn_v: &'a TensorInfo,      // (kv_heads * d, d_model)
    pub attn_output: &'a TensorInfo, // (d_model, heads * d)
    pub ffn_norm: &'a TensorInfo,    // (d_model)
    pub ffn_gate: &'a TensorInfo,    // (d_ff, d_model)
    pub ffn_up: &'a TensorInfo,      // (d_ff, d_model)
    pub ffn_down: &'a TensorInfo,    // (d_model, d_ff)
}

impl<'a> Tensors<'a> {
    /// Finds every tensor that the configuration needs.
    ///
    /// # Errors
    /// [`Error::Malformed`] naming a tensor that is missing, of another shape than the metadata says, or not used by the
    /// architecture although the file has it (which would silently compute something else).
    pub fn new(file: &'a Gguf, config: &Config) -> Result<Self> {
        let by_name: std::collections::HashMap<&str, &TensorInfo> = file.tensors().iter().map(|t| (t.name.as_str(), t)).collect();
        let malformed = |reason: String| Error::Malformed { path: file.path().to_owned(), reason };
        let mut used = std::collections::HashSet::new();
        let mut find = |name: &str, shape: &[usize]| -> Result<Option<&'a TensorInfo>> {
            let Some(&t) = by_name.get(name) else { return Ok(None) };
            used.insert(t.name.as_str());
            // A trailing dimension of 1 says nothing.
            let stored = t
                .shape
                .iter()
                .rposition(|&d| d != 1)
                .map_or(&t.shape[..1], |last| &t.shape[..=last.max(shape.len() - 1).min(t.shape.len() - 1)]);
            if stored != shape {
                return Err(malformed(format!(
                    "tensor {name} has the shape {:?}, but the metadata asks for {shape:?}; the file is damaged or was converted wrongly",
                    t.shape
                )));
            }
            file.format(t)?;
            Ok(Some(t))
        };
        let missing = |name: &str| malformed(format!("tensor {name} is missing; the file is damaged or was converted wrongly"));
        let mut need = |name: &str, shape: &[usize]| find(name, shape)?.ok_or_else(|| missing(name));
        let Config { d_model, d_ff, n_vocab, .. } = *config;
        let (q, kv) = (config.n_heads * config.d_head, config.n_kv_heads * config.d_head);
        let token_embd = need("token_embd.weight", &[d_model, n_vocab])?;
        let output_norm = need("output_norm.weight", &[d_model])?;
        // The count of layers is the file's word: each must be met with its tensors before the next is asked for.
        let mut layers = Vec::new();
        for i in 0..config.n_layers {
            let mut need = |role: &str, shape: &[usize]| need(&format!("blk.{i}.{role}.weight"), shape);
            layers.push(LayerTensors {
                attn_norm: need("attn_norm", &[d_model])?,
                attn_q: need("attn_q", &[d_model, q])?,
                attn_k: need("attn_k", &[d_model, kv])?,
                attn_v: need("attn_v", &[d_model, kv])?,
                attn_output: need("attn_output", &[q, d_model])?,
                ffn_norm: need("ffn_norm", &[d_model])?,
                ffn_gate: need("ffn_gate", &[d_model, d_ff])?,
                ffn_up: need("ffn_up", &[d_model, d_ff])?,
                ffn_down: need("ffn_down", &[d_ff, d_model])?,
            });
        }
        let output = find("output.weight", &[d_model, n_vocab])?;
        let rope_freqs = find("rope_freqs.weight", &[config.rope.n_rot / 2])?;
        if let Some(t) = file.tensors().iter().find(|t| !used.contains(t.name.as_str())) {
            return Err(Error::Unsupported {
                path: file.path().to_owned(),
                reason: format!("tensor {} has no place in architecture {:?} as rml runs it", t.name, config.architecture),
            });
        }
        Ok(Tensors { token_embd, output_norm, output, rope_freqs, layers })
    }
}
