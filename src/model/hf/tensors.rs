//! Tensors by the names of `transformers` as tensors of GGUF.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use rml_kernels_ref::format::Format;
use safetensors::Dtype;

use super::checkpoint::{Checkpoint, Stored};
use super::config::{Sizes, Translated};
use super::fields::malformed;
use super::layout::{Given, Joined, PlusOne, View};
use super::packed::{Half, Pair, Rows};
use crate::model::gguf::shard::{Make, Shard};
use crate::model::gguf::{TensorInfo, TensorType};
use crate::{Error, Result};

/// Names within a layer that are the same for every architecture.
const LAYER: &[(&str, &str)] = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.sinks", "attn_sinks"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.router", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
];

/// Matrices of an expert, each a tensor of its own.
const EXPERT: &[(&str, &str)] = &[
    ("gate_proj", "ffn_gate_exps"),
    ("up_proj", "ffn_up_exps"),
    ("down_proj", "ffn_down_exps"),
    ("w1", "ffn_gate_exps"),
    ("w3", "ffn_up_exps"),
    ("w2", "ffn_down_exps"),
];

/// The gates of all experts.
const GATES: &str = "ffn_gate_exps.weight";

/// What GGUF files are made of, behind the files themselves.
pub(super) struct Tensors {
    pub(super) infos: Vec<TensorInfo>,
    pub(super) shards: Vec<Shard>,
    paths: Vec<std::path::PathBuf>,
}

/// Tensors of all files as GGUF has them.
pub(super) fn translate(checkpoint: Checkpoint, model: &Translated, config: &Path) -> Result<Tensors> {
    let Checkpoint { paths, files, tensors } = checkpoint;
    let mut out = Tensors { infos: Vec::new(), shards: files, paths };
    let has_weights = !tensors.is_empty();
    let mut experts: BTreeMap<String, BTreeMap<usize, Stored>> = BTreeMap::new();
    let mut packed: BTreeMap<String, Pair> = BTreeMap::new();
    for tensor in tensors {
        match target(&tensor.name, model) {
            Target::Unknown => {
                return Err(Error::Unsupported {
                    path: out.paths[tensor.file].clone(),
                    reason: format!("tensor {} has no place in a {} as rml runs it; take another model", tensor.name, model.arch.class),
                });
            }
            Target::Unused => {}
            Target::Expert { name, expert } => {
                experts.entry(name).or_default().insert(expert, tensor);
            }
            Target::Packed { name, half } => {
                let pair = packed.entry(name).or_default();
                *if half == Half::Blocks { &mut pair.blocks } else { &mut pair.scales } = Some(tensor);
            }
            Target::One { name, change } => out.put(name, &tensor, change, model)?,
        }
    }
    for (name, pair) in packed {
        out.unpack(name, pair, model.sizes.n_experts)?;
    }
    for (name, parts) in experts {
        out.stack(name, parts, model.sizes.n_experts)?;
    }
    for (name, numbers) in model.vectors.iter().filter(|_| has_weights) {
        let made = Given(numbers.clone());
        out.made(name.clone(), TensorType::from(Format::F32), vec![numbers.len()], config, Box::new(made));
    }
    let mut names = HashSet::new();
    if let Some(twice) = out.infos.iter().find(|t| !names.insert(t.name.as_str())) {
        return Err(malformed(config, format!("two tensors of the files are {} in GGUF; fetch the files again", twice.name)));
    }
    // A head that the file does not tie and does not have would silently be the embedding.
    if has_weights && !model.sizes.tied && !out.infos.iter().any(|t| t.name == "output.weight") {
        return Err(malformed(
            config,
            "tensor lm_head.weight is missing, and tie_word_embeddings does not say that the embedding serves; fetch the files again",
        ));
    }
    Ok(out)
}

enum Target {
    /// It becomes this one, changed so.
    One {
        name: String,
        change: Change,
    },
    /// It is a part of one that holds all experts.
    Expert {
        name: String,
        expert: usize,
    },
    /// It is a half of one that holds all experts, of gates if of gates and ups in turns.
    Packed {
        name: String,
        half: Half,
    },
    /// It holds nothing that is computed with.
    Unused,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// Rows of each of so many heads, from halves to pairs.
    Pairs {
        heads: usize,
    },
    PlusOne,
    /// All experts' gates and ups one behind the other, (experts, 2 * d_ff, d_model).
    Halves,
    /// All experts' gates and ups in turns, (experts, d_model, 2 * d_ff); a bias is (experts, 2 * d_ff).
    Turns,
    /// All experts, (experts, k, n) where GGUF has (experts, n, k).
    Transposed,
}

fn target(name: &str, model: &Translated) -> Target {
    let one = |name: &str, change| Target::One { name: name.to_owned(), change };
    // The text model of one that sees images.
    let name = ["language_model.", "model.language_model."].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name);
    let name = name.strip_prefix("model.").unwrap_or(name);
    if ["vision_tower.", "multi_modal_projector."].iter().any(|p| name.starts_with(p)) || name.ends_with("rotary_emb.inv_freq") {
        return Target::Unused;
    }
    match name {
        "embed_tokens.weight" => return one("token_embd.weight", Change::None),
        "norm.weight" => return one("output_norm.weight", if model.arch.norms_add_one { Change::PlusOne } else { Change::None }),
        "lm_head.weight" if model.sizes.tied => return Target::Unused,
        "lm_head.weight" => return one("output.weight", Change::None),
        _ => {}
    }
    let Some((layer, rest)) = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) else { return Target::Unknown };
    // Written as GGUF writes it, so that no two names become one.
    let Some(layer) = layer.parse::<usize>().ok().filter(|i| i.to_string() == layer && *i < model.sizes.n_layers) else {
        return Target::Unknown;
    };
    within_layer(rest, model).map_or(Target::Unknown, |found| found.within(layer))
}

impl Target {
    fn within(self, layer: usize) -> Target {
        match self {
            Target::One { name, change } => Target::One { name: format!("blk.{layer}.{name}"), change },
            Target::Expert { name, expert } => Target::Expert { name: format!("blk.{layer}.{name}"), expert },
            Target::Packed { name, half } => Target::Packed { name: format!("blk.{layer}.{name}"), half },
            other => other,
        }
    }
}

fn within_layer(rest: &str, model: &Translated) -> Option<Target> {
    let Sizes { n_heads, n_kv_heads, .. } = model.sizes;
    let one = |name: String, change| Some(Target::One { name, change });
    let known = |names: &[(&str, &'static str)], name: &str| names.iter().find(|(n, _)| *n == name).map(|(_, to)| *to);
    match rest {
        "block_sparse_moe.input_linear.weight" => return one("ffn_gate_exps.weight".into(), Change::Halves),
        "block_sparse_moe.output_linear.weight" => return one("ffn_down_exps.weight".into(), Change::None),
        "mlp.experts.gate_up_proj" => return one(GATES.into(), Change::Turns),
        "mlp.experts.gate_up_proj_bias" => return one("ffn_gate_exps.bias".into(), Change::Turns),
        "mlp.experts.down_proj" => return one("ffn_down_exps.weight".into(), Change::Transposed),
        "mlp.experts.down_proj_bias" => return one("ffn_down_exps.bias".into(), Change::None),
        "self_attn.sinks" => return one("attn_sinks.weight".into(), Change::None),
        _ => {}
    }
    if let Some((matrix, half)) = Half::of(rest) {
        let name = match matrix {
            "mlp.experts.gate_up_proj" => GATES,
            "mlp.experts.down_proj" => "ffn_down_exps.weight",
            _ => return None,
        };
        return Some(Target::Packed { name: name.to_owned(), half });
    }
    let (part, kind) = rest.rsplit_once('.').filter(|(_, kind)| ["weight", "bias"].contains(kind))?;
    let expert = part.strip_prefix("mlp.experts.").or_else(|| part.strip_prefix("block_sparse_moe.experts."));
    if let Some((number, matrix)) = expert.and_then(|e| e.split_once('.')) {
        let expert = number.parse().ok()?;
        return Some(Target::Expert { name: format!("{}.{kind}", known(EXPERT, matrix)?), expert });
    }
    let to = known(model.arch.norms, part).or_else(|| known(LAYER, part))?;
    let change = match to {
        "attn_q" if model.arch.in_pairs => Change::Pairs { heads: n_heads },
        "attn_k" if model.arch.in_pairs => Change::Pairs { heads: n_kv_heads },
        _ if to.ends_with("_norm") && model.arch.norms_add_one => Change::PlusOne,
        _ => Change::None,
    };
    one(format!("{to}.{kind}"), change)
}

impl Tensors {
    fn put(&mut self, name: String, tensor: &Stored, change: Change, model: &Translated) -> Result<()> {
        let kind = self.kind(tensor)?;
        let mut shape = tensor.shape.clone();
        shape.reverse();
        if change == Change::None {
            let Stored { offset, bytes, file, .. } = *tensor;
            self.infos.push(TensorInfo { name, kind, shape, offset, bytes, shard: file });
            return Ok(());
        }
        let wrong = || self.misshapen(tensor);
        let view = View::whole(tensor);
        let made: Box<dyn Make> = match change {
            Change::None => unreachable!("it stands as it is"),
            Change::PlusOne => {
                let made = PlusOne { tensor: view, dtype: tensor.dtype };
                self.made_from(name, TensorType::from(Format::F32), shape, tensor, Box::new(made));
                return Ok(());
            }
            Change::Pairs { heads } => {
                let n = *tensor.shape.first().ok_or_else(wrong)?;
                if tensor.shape.len() > 2 || !n.is_multiple_of(2 * heads) {
                    return Err(wrong());
                }
                let (half, k) = (n / heads / 2, tensor.shape[1..].iter().product::<usize>());
                let dims = vec![(heads, 2 * half * k), (half, k), (2, half * k), (k, 1)];
                Box::new(Joined(vec![View { dims, ..view }]))
            }
            Change::Transposed => {
                let [experts, k, n] = tensor.shape[..] else { return Err(wrong()) };
                shape = vec![k, n, experts];
                Box::new(Joined(vec![View { dims: vec![(experts, k * n), (n, 1), (k, n)], ..view }]))
            }
            Change::Halves | Change::Turns => {
                let up = name.replace("gate", "up");
                let (experts, n, dims, shape, apart) = match (change, &tensor.shape[..]) {
                    (Change::Halves, &[e, n, k]) => (e, n, vec![(e, n * k), (n / 2, k), (k, 1)], vec![k, n / 2, e], n / 2 * k),
                    (Change::Turns, &[e, k, n]) => (e, n, vec![(e, n * k), (n / 2, 2), (k, n)], vec![k, n / 2, e], 1),
                    (Change::Turns, &[e, n]) => (e, n, vec![(e, n), (n / 2, 2)], vec![n / 2, e], 1),
                    _ => return Err(wrong()),
                };
                if experts != model.sizes.n_experts || n % 2 == 1 {
                    return Err(wrong());
                }
                let second = View { start: apart, dims: dims.clone(), ..view.clone() };
                self.made_from(up, kind, shape.clone(), tensor, Box::new(Joined(vec![second])));
                self.made_from(name, kind, shape, tensor, Box::new(Joined(vec![View { dims, ..view }])));
                return Ok(());
            }
        };
        self.made_from(name, kind, shape, tensor, made);
        Ok(())
    }

    /// One tensor of all experts.
    fn stack(&mut self, name: String, parts: BTreeMap<usize, Stored>, n_experts: usize) -> Result<()> {
        let (_, first) = parts.first_key_value().expect("at least one part");
        if let Some(missing) = (0..n_experts).find(|e| !parts.contains_key(e)) {
            return Err(malformed(&self.paths[first.file], format!("expert {missing} of {name} is missing; fetch the files again")));
        }
        let kind = self.kind(first)?;
        if let Some(other) = parts.values().find(|t| t.shape != first.shape || t.dtype != first.dtype || parts.len() != n_experts) {
            return Err(self.misshapen(other));
        }
        let mut shape = first.shape.clone();
        shape.reverse();
        shape.push(n_experts);
        if shape.len() > 4 {
            return Err(self.misshapen(first));
        }
        let views = parts.values().map(View::whole).collect();
        let first = first.clone();
        self.made_from(name, kind, shape, &first, Box::new(Joined(views)));
        Ok(())
    }

    /// Experts in MXFP4; their gates and ups stand in turns.
    fn unpack(&mut self, name: String, pair: Pair, n_experts: usize) -> Result<()> {
        let (blocks, scales) = match (pair.blocks, pair.scales) {
            (Some(blocks), Some(scales)) => (blocks, scales),
            (one, other) => {
                let one = one.or(other).expect("at least one half");
                let reason = format!("tensor {} stands alone: blocks and scales belong together; fetch the files again", one.name);
                return Err(malformed(&self.paths[one.file], reason));
            }
        };
        let mut put = |name: String, first, step| {
            let rows = Rows::new(blocks.clone(), scales.clone(), n_experts, first, step).map_err(|tensor| self.misshapen(&tensor))?;
            self.made_from(name, Format::MXFP4.into(), rows.shape(), &blocks, Box::new(rows));
            Ok(())
        };
        if name.ends_with(GATES) {
            put(name.replace("gate", "up"), 1, 2)?;
            return put(name, 0, 2);
        }
        put(name, 0, 1)
    }

    fn made_from(&mut self, name: String, kind: TensorType, shape: Vec<usize>, tensor: &Stored, make: Box<dyn Make>) {
        let path = self.paths[tensor.file].clone();
        self.made(name, kind, shape, &path, make);
    }

    fn made(&mut self, name: String, kind: TensorType, shape: Vec<usize>, path: &Path, make: Box<dyn Make>) {
        let (bytes, shard) = (make.n_bytes(), self.shards.len());
        self.shards.push(Shard::made(path, make));
        self.infos.push(TensorInfo { name, kind, shape, offset: 0, bytes, shard });
    }

    /// The type of a tensor that rml multiplies.
    fn kind(&self, tensor: &Stored) -> Result<TensorType> {
        if tensor.shape.is_empty() || tensor.shape.len() > 4 || tensor.shape.contains(&0) {
            return Err(self.misshapen(tensor));
        }
        match tensor.dtype {
            Dtype::F32 => Ok(Format::F32.into()),
            Dtype::F16 => Ok(Format::F16.into()),
            Dtype::BF16 => Ok(Format::BF16.into()),
            other => Err(Error::Unsupported {
                path: self.paths[tensor.file].clone(),
                reason: format!(
                    "tensor {} is stored as {other:?}; of directories rml reads F32, F16 and BF16, and the MXFP4 of gpt-oss, so take the model in one of these",
                    tensor.name
                ),
            }),
        }
    }

    fn misshapen(&self, tensor: &Stored) -> Error {
        malformed(
            &self.paths[tensor.file],
            format!("tensor {} has the shape {:?}, which config.json leaves no room for; fetch the files again", tensor.name, tensor.shape),
        )
    }
}
