//! The tensors of a model by their role, each checked for its shape and format.

use std::collections::HashSet;

use super::config::{Config, Experts};
use super::families::{HeadNorm, Norms};
use super::gguf::{Gguf, TensorInfo};
use crate::{Error, Result};

pub(super) const TOKEN_EMBD: &str = "token_embd.weight";
pub(super) const ROPE_FREQS: &str = "rope_freqs.weight";
pub(super) const ROPE_FACTORS: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

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

/// A matrix and what is added to its products.
#[derive(Clone, Debug)]
pub struct MatrixTensor {
    /// (n, k): a tensor of the file, or some of its rows.
    pub weight: TensorInfo,
    /// (n)
    pub bias: Option<TensorInfo>,
}

/// Tensors of one layer.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are GGUF's, the shapes stand beside them")]
pub struct LayerTensors<'a> {
    pub attn_norm: Option<&'a TensorInfo>,           // (d_model)
    pub attn_q: MatrixTensor,                        // (heads * d, d_model)
    pub attn_k: MatrixTensor,                        // (kv_heads * d, d_model)
    pub attn_v: MatrixTensor,                        // (kv_heads * d, d_model)
    pub attn_q_norm: Option<&'a TensorInfo>,         // (d) or (heads * d)
    pub attn_k_norm: Option<&'a TensorInfo>,         // (d) or (kv_heads * d)
    pub attn_sinks: Option<&'a TensorInfo>,          // (heads)
    pub attn_output: MatrixTensor,                   // (d_model, heads * d)
    pub post_attention_norm: Option<&'a TensorInfo>, // (d_model)
    pub ffn_norm: Option<&'a TensorInfo>,            // (d_model)
    pub ffn_gate_inp: Option<MatrixTensor>,          // (experts, d_model)
    pub ffn: Vec<FfnTensors>,                        // one, or one for each expert
    pub post_ffw_norm: Option<&'a TensorInfo>,       // (d_model)
}

impl LayerTensors<'_> {
    fn matrices(&self) -> impl Iterator<Item = &MatrixTensor> {
        let attention = [&self.attn_q, &self.attn_k, &self.attn_v, &self.attn_output];
        attention.into_iter().chain(&self.ffn_gate_inp).chain(self.ffn.iter().flat_map(|t| [&t.gate, &t.up, &t.down]))
    }
}

/// Tensors of a feed-forward part, or of an expert.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are GGUF's, the shapes stand beside them")]
pub struct FfnTensors {
    pub gate: MatrixTensor, // (d_ff, d_model)
    pub up: MatrixTensor,   // (d_ff, d_model)
    pub down: MatrixTensor, // (d_model, d_ff)
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
        let Config { d_model, n_vocab, .. } = *config;
        let mut roles = Roles { file, taken: HashSet::new() };
        let token_embd = roles.need(TOKEN_EMBD, &[d_model, n_vocab])?;
        let output_norm = roles.need("output_norm.weight", &[d_model])?;
        let output = roles.find("output.weight", &[d_model, n_vocab])?;
        for name in [ROPE_FREQS, ROPE_FACTORS[0], ROPE_FACTORS[1]] {
            roles.find(name, &[config.rope.n_rot / 2])?;
        }
        // How many layers there are is the file's word, so memory grows only with the layers found.
        let mut layers = Vec::new();
        for i in 0..config.n_layers {
            layers.push(Layer { roles: &mut roles, prefix: format!("blk.{i}") }.tensors(config)?);
        }
        roles.refuse_rest(config)?;
        Ok(Tensors { token_embd, output_norm, output, layers })
    }

    /// The output head.
    pub fn head(&self) -> &'a TensorInfo {
        self.output.unwrap_or(self.token_embd)
    }

    /// What activations are multiplied with, in the order of a pass.
    pub fn matrices(&self) -> impl Iterator<Item = &TensorInfo> {
        self.layers.iter().flat_map(LayerTensors::matrices).map(|m| &m.weight).chain([self.head()])
    }
}

/// The tensors of one layer.
struct Layer<'r, 'a> {
    roles: &'r mut Roles<'a>,
    prefix: String,
}

impl<'a> Layer<'_, 'a> {
    fn tensors(&mut self, config: &Config) -> Result<LayerTensors<'a>> {
        let Config { d_model, d_head, .. } = *config;
        let (q, kv) = (config.n_heads * d_head, config.n_kv_heads * d_head);
        let family = &config.family;
        let (before, behind) = (family.norms != Norms::Behind, family.norms != Norms::Before);
        let (q_norm, k_norm) = match family.head_norm {
            HeadNorm::None => (0, 0),
            HeadNorm::Head => (d_head, d_head),
            HeadNorm::Row => (q, kv),
        };
        let attn_norm = self.vector(before, "attn_norm", d_model)?;
        let [attn_q, attn_k, attn_v] = self.joined("attn_qkv", [("attn_q", q), ("attn_k", kv), ("attn_v", kv)], d_model)?;
        Ok(LayerTensors {
            attn_norm,
            attn_q,
            attn_k,
            attn_v,
            attn_q_norm: self.vector(q_norm > 0, "attn_q_norm", q_norm)?,
            attn_k_norm: self.vector(k_norm > 0, "attn_k_norm", k_norm)?,
            attn_sinks: self.vector(family.sinks, "attn_sinks", config.n_heads)?,
            attn_output: self.matrix("attn_output", q, d_model)?,
            post_attention_norm: self.vector(behind, "post_attention_norm", d_model)?,
            ffn_norm: self.vector(before, family.ffn_norm, d_model)?,
            ffn_gate_inp: config.experts.map(|experts| self.matrix("ffn_gate_inp", d_model, experts.count)).transpose()?,
            ffn: self.ffn(config)?,
            post_ffw_norm: self.vector(behind, "post_ffw_norm", d_model)?,
        })
    }

    fn ffn(&mut self, config: &Config) -> Result<Vec<FfnTensors>> {
        let Config { d_model, d_ff, .. } = *config;
        if let Some(Experts { count, .. }) = config.experts {
            let gate = self.experts("ffn_gate_exps", d_model, d_ff, count)?;
            let up = self.experts("ffn_up_exps", d_model, d_ff, count)?;
            let down = self.experts("ffn_down_exps", d_ff, d_model, count)?;
            return Ok(gate.into_iter().zip(up).zip(down).map(|((gate, up), down)| FfnTensors { gate, up, down }).collect());
        }
        // A tensor for both bears the name of the second.
        let is_joined = self.roles.file.tensor(&self.name("ffn_gate", "weight")).is_none();
        let joined = if is_joined { "ffn_up" } else { "" };
        let [gate, up] = self.joined(joined, [("ffn_gate", d_ff), ("ffn_up", d_ff)], d_model)?;
        Ok(vec![FfnTensors { gate, up, down: self.matrix("ffn_down", d_ff, d_model)? }])
    }

    fn name(&self, role: &str, part: &str) -> String {
        format!("{}.{role}.{part}", self.prefix)
    }

    fn vector(&mut self, needed: bool, role: &str, n: usize) -> Result<Option<&'a TensorInfo>> {
        needed.then(|| self.roles.need(&self.name(role, "weight"), &[n])).transpose()
    }

    fn matrix(&mut self, role: &str, k: usize, n: usize) -> Result<MatrixTensor> {
        let weight = self.roles.need(&self.name(role, "weight"), &[k, n])?.clone();
        Ok(MatrixTensor { weight, bias: self.bias(role, &[n])?.cloned() })
    }

    /// What is added to products, if anything: single numbers, so that any of them can be taken.
    fn bias(&mut self, role: &str, shape: &[usize]) -> Result<Option<&'a TensorInfo>> {
        let bias = self.roles.find(&self.name(role, "bias"), shape)?;
        match bias.filter(|bias| bias.kind.block().is_none_or(|(len, _)| len > 1)) {
            None => Ok(bias),
            Some(bias) => Err(Error::Unsupported {
                path: self.roles.file.path().to_owned(),
                reason: format!(
                    "tensor {} is stored as {}, where f32, f16 or bf16 is needed; convert the model again",
                    bias.name, bias.kind
                ),
            }),
        }
    }

    /// Matrices of `n` rows each: one below the other in a single tensor, where the file has it in that shape, else each in its own.
    fn joined<const N: usize>(&mut self, whole: &str, parts: [(&str, usize); N], k: usize) -> Result<[MatrixTensor; N]> {
        let n_rows = parts.iter().map(|(_, n)| n).sum();
        let shape_is = |t: &TensorInfo| t.shape == [k, n_rows];
        let mut out = Vec::with_capacity(N);
        if self.roles.file.tensor(&self.name(whole, "weight")).is_some_and(shape_is) {
            let MatrixTensor { weight, bias } = self.matrix(whole, k, n_rows)?;
            let mut first = 0;
            for (_, n) in parts {
                let bias = bias.as_ref().map(|b| part(b, first, vec![n]));
                out.push(MatrixTensor { weight: part(&weight, first * k, vec![k, n]), bias });
                first += n;
            }
        } else {
            for (role, n) in parts {
                out.push(self.matrix(role, k, n)?);
            }
        }
        Ok(out.try_into().expect("as many as parts"))
    }

    /// The matrices of all experts.
    fn experts(&mut self, role: &str, k: usize, n: usize, count: usize) -> Result<Vec<MatrixTensor>> {
        let weight = self.roles.need(&self.name(role, "weight"), &[k, n, count])?;
        let bias = self.bias(role, &[n, count])?;
        let expert = |i| MatrixTensor { weight: part(weight, i * k * n, vec![k, n]), bias: bias.map(|b| part(b, i * n, vec![n])) };
        Ok((0..count).map(expert).collect())
    }
}

/// As many weights of a tensor, from weight `first` on, as `shape` has: whole blocks, as rows are.
fn part(tensor: &TensorInfo, first: usize, shape: Vec<usize>) -> TensorInfo {
    let (block_len, block_bytes) = tensor.kind.block().expect("a format that rml multiplies");
    let bytes = |weights: usize| weights / block_len * block_bytes;
    TensorInfo { offset: tensor.offset + bytes(first), bytes: bytes(shape.iter().product()), shape, ..tensor.clone() }
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
