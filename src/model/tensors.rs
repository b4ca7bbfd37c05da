//! The tensors of a model by their role, each checked for its shape and format.

use std::collections::HashSet;

use super::config::Config;
use super::gguf::{Gguf, TensorInfo};
use crate::{Error, Result};

pub(super) const TOKEN_EMBD: &str = "token_embd.weight";
pub(super) const ROPE_FREQS: &str = "rope_freqs.weight";

/// Tensors that old converters wrote and that hold nothing which is not known from the metadata.
const IGNORED: &str = ".attn_rot_embd";

/// Tensors outside the layers, and the layers. Every one has a format that rml multiplies.
#[derive(Debug)]
pub struct Tensors<'a> {
    /// (n_vocab, d_model)
    pub token_embd: &'a TensorInfo,
    /// (d_model)
    pub output_norm: &'a TensorInfo,
    /// (n_vocab, d_model); absent where the embedding serves as head.
    pub output: Option<&'a TensorInfo>,
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
    /// [`Error::Malformed`] naming a tensor that is missing or has another shape than the metadata says;
    /// [`Error::Unsupported`] naming one that is stored in a type rml does not multiply, or that the architecture has no use
    /// for, since to leave it out would silently compute something else.
    pub fn new(file: &'a Gguf, config: &Config) -> Result<Self> {
        if file.tensors().is_empty() {
            return Err(Error::Malformed {
                path: file.path().to_owned(),
                reason: "this file or directory holds only a vocabulary, no weights; give the whole model".into(),
            });
        }
        let Config { d_model, d_ff, n_vocab, .. } = *config;
        let (q, kv) = (config.n_heads * config.d_head, config.n_kv_heads * config.d_head);
        let mut roles = Roles { file, taken: HashSet::new() };
        let token_embd = roles.need(TOKEN_EMBD, &[d_model, n_vocab])?;
        let output_norm = roles.need("output_norm.weight", &[d_model])?;
        let output = roles.find("output.weight", &[d_model, n_vocab])?;
        roles.find(ROPE_FREQS, &[config.rope.n_rot / 2])?;
        // How many layers there are is the file's word, so memory grows only with the layers found.
        let mut layers = Vec::new();
        for i in 0..config.n_layers {
            let mut need = |role: &str, shape: &[usize]| roles.need(&format!("blk.{i}.{role}.weight"), shape);
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
        roles.refuse_rest(config)?;
        Ok(Tensors { token_embd, output_norm, output, layers })
    }

    /// The output head.
    pub fn head(&self) -> &'a TensorInfo {
        self.output.unwrap_or(self.token_embd)
    }

    /// What activations are multiplied with, in the order of a pass.
    pub fn matrices(&self) -> impl Iterator<Item = &'a TensorInfo> {
        let of = |t: &LayerTensors<'a>| [t.attn_q, t.attn_k, t.attn_v, t.attn_output, t.ffn_gate, t.ffn_up, t.ffn_down];
        self.layers.iter().flat_map(of).chain([self.head()])
    }
}

/// Hands out the tensors of a file and remembers which were taken.
struct Roles<'a> {
    file: &'a Gguf,
    taken: HashSet<&'a str>,
}

impl<'a> Roles<'a> {
    fn find(&mut self, name: &str, shape: &[usize]) -> Result<Option<&'a TensorInfo>> {
        let Some(tensor) = self.file.tensor(name) else { return Ok(None) };
        if tensor.shape != shape {
            return Err(Error::Malformed {
                path: self.file.path().to_owned(),
                reason: format!(
                    "tensor {name} has the shape {:?}, but the metadata asks for {shape:?}; \
                     the file is damaged or was converted wrongly, convert or fetch it again",
                    tensor.shape
                ),
            });
        }
        self.file.format(tensor)?;
        self.taken.insert(&tensor.name);
        Ok(Some(tensor))
    }

    fn need(&mut self, name: &str, shape: &[usize]) -> Result<&'a TensorInfo> {
        self.find(name, shape)?.ok_or_else(|| Error::Malformed {
            path: self.file.path().to_owned(),
            reason: format!("tensor {name} is missing; the file is damaged or was converted wrongly, convert or fetch it again"),
        })
    }

    fn refuse_rest(&self, config: &Config) -> Result<()> {
        let used = |t: &&TensorInfo| self.taken.contains(t.name.as_str()) || t.name.contains(IGNORED);
        match self.file.tensors().iter().find(|t| !used(t)) {
            None => Ok(()),
            Some(t) => Err(Error::Unsupported {
                path: self.file.path().to_owned(),
                reason: format!(
                    "tensor {} has no place in architecture {} with {} layers as rml runs it; take another model",
                    t.name, config.architecture, config.n_layers
                ),
            }),
        }
    }
}
