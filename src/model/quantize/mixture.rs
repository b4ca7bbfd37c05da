//! Which tensor of a file gets which format.
//!
//! Source: `llama_tensor_get_type_impl`, `tensor_allows_quantization` and `tensor_type_fallback` in `llama-quant.cpp` of
//! llama.cpp, for the types in [`FileType`].

use rml_kernels_ref::format::Format;

use super::file_type::{FileType, More};
use crate::Result;
use crate::model::gguf::{Gguf, TensorInfo};

/// Parts of the names of matrices that stay as they are: routers, small ones, and what is looked up rather than multiplied.
const KEPT: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd.weight",
    "token_types.weight",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
    "time_mix_",
    ".patch_embd",
    ".rel_pos",
];

/// What llama.cpp tells tensors apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Output,
    TokenEmbd,
    /// Values, alone or with queries and keys.
    Values,
    Qkv,
    Keys,
    AttnOutput,
    FfnDown,
    Other,
}

fn role(name: &str) -> Role {
    let has = |part: &str| name.contains(part);
    match name {
        "output.weight" => Role::Output,
        "token_embd.weight" | "per_layer_token_embd.weight" => Role::TokenEmbd,
        _ if has("attn_qkv.weight") => Role::Qkv,
        _ if has("attn_kv_b.weight") || has("attn_v.weight") => Role::Values,
        _ if has("attn_k.weight") => Role::Keys,
        _ if has("attn_output.weight") => Role::AttnOutput,
        _ if has("ffn_down") => Role::FfnDown,
        _ => Role::Other,
    }
}

/// The layer of a tensor, from its name; those outside the layers come first.
pub(super) fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The choice for a file, tensor by tensor in the order of layers.
pub(super) struct Mixture {
    format: Format,
    more: More,
    tied: bool,
    /// Query heads to a key-value head.
    group: usize,
    n_experts: usize,
    n_layers: usize,
    n_values: usize,
    values_seen: usize,
    down_seen: usize,
    is_falcon: bool,
    is_70b: bool,
}

impl Mixture {
    pub(super) fn new(file: &Gguf, file_type: FileType) -> Result<Self> {
        let meta = file.metadata();
        let architecture = meta.str("general.architecture")?.unwrap_or_default();
        // Arrays, of models whose layers differ, count as not given.
        let size = |suffix: &str| meta.u32(&format!("{architecture}.{suffix}")).ok().flatten().unwrap_or(0) as usize;
        let heads = size("attention.head_count");
        let count = |wanted: &[Role]| file.tensors().iter().filter(|t| wanted.contains(&role(&t.name))).count();
        let n_layers = size("block_count");
        Ok(Mixture {
            format: file_type.format(),
            more: file_type.more(),
            tied: file.tensor("output.weight").is_none(),
            group: heads.checked_div(size("attention.head_count_kv")).unwrap_or(1),
            n_experts: size("expert_count"),
            n_layers,
            n_values: count(&[Role::Values, Role::Qkv]),
            values_seen: 0,
            down_seen: 0,
            is_falcon: architecture == "falcon",
            is_70b: architecture == "llama" && n_layers == 80 && heads != size("attention.head_count_kv"),
        })
    }

    /// The format for the next tensor, and whether it is a fallback for rows that are not whole blocks; `None` for one that
    /// is not quantized.
    pub(super) fn format(&mut self, tensor: &TensorInfo) -> Option<(Format, bool)> {
        let matrix = tensor.shape.iter().skip(1).any(|&d| d > 1);
        let name = tensor.name.as_str();
        if !matrix || !name.ends_with("weight") || KEPT.iter().any(|part| name.contains(part)) {
            return None;
        }
        if self.format.is_float() {
            return Some((self.format, false));
        }
        let (k, role) = (tensor.shape[0], role(name));
        let meant = match role {
            Role::Output => self.head(k),
            Role::TokenEmbd if self.tied => self.head(k),
            _ => self.in_layer(role, name),
        };
        let format = fallback(meant, k);
        Some((format, format != meant))
    }

    /// The head, or the embedding that serves as head.
    fn head(&self, k: usize) -> Format {
        match self.format {
            _ if self.is_falcon || !k.is_multiple_of(self.format.block_len()) => Format::Q8_0,
            Format::Q8_0 => Format::Q8_0,
            _ => Format::Q6_K,
        }
    }

    fn in_layer(&mut self, role: Role, name: &str) -> Format {
        match role {
            Role::Values | Role::Qkv => self.values(),
            Role::FfnDown => self.ffn_down(name),
            Role::Keys if self.n_experts == 8 => Format::Q8_0,
            Role::AttnOutput if self.n_experts == 8 => match (self.format, self.more) {
                (Format::Q2_K, _) | (Format::Q3_K, More::Nothing | More::Medium) | (Format::Q4_K, _) => Format::Q5_K,
                _ => self.format,
            },
            Role::AttnOutput if self.is_falcon => match (self.format, self.more) {
                (Format::Q3_K, More::Large) => Format::Q4_K,
                _ => self.format,
            },
            Role::AttnOutput => match (self.format, self.more) {
                (Format::Q2_K, _) => Format::Q3_K,
                (Format::Q3_K, More::Medium) => Format::Q4_K,
                (Format::Q3_K, More::Large) => Format::Q5_K,
                _ => self.format,
            },
            _ => self.format,
        }
    }

    fn values(&mut self) -> Format {
        let seen = self.values_seen;
        self.values_seen += 1;
        let chosen = match (self.format, self.more) {
            (Format::Q2_K, _) => {
                if self.group >= 4 {
                    Format::Q4_K
                } else {
                    Format::Q3_K
                }
            }
            (Format::Q3_K, More::Medium) => {
                if seen < 2 {
                    Format::Q5_K
                } else {
                    Format::Q4_K
                }
            }
            (Format::Q3_K, More::Large) => Format::Q5_K,
            (Format::Q4_K | Format::Q5_K, More::Medium) if has_more_bits(seen, self.n_values) => Format::Q6_K,
            (Format::Q4_K, More::Small) if seen < 4 => Format::Q5_K,
            (format, _) => format,
        };
        match chosen {
            _ if self.n_experts == 8 => Format::Q8_0,
            Format::Q3_K | Format::Q4_K if self.is_70b => Format::Q5_K,
            chosen => chosen,
        }
    }

    fn ffn_down(&mut self, name: &str) -> Format {
        // Experts of a layer are several tensors, which the count would take for layers.
        let seen = if self.n_experts > 1 { layer(name).unwrap_or(self.down_seen) } else { self.down_seen };
        self.down_seen += 1;
        let n = self.n_layers;
        match (self.format, self.more) {
            (Format::Q2_K, _) => Format::Q3_K,
            (Format::Q3_K, More::Medium) if seen < n / 16 => Format::Q5_K,
            (Format::Q3_K, More::Medium) if !self.is_falcon || has_more_bits(seen, n) => Format::Q4_K,
            (Format::Q3_K, More::Large) => {
                if self.is_falcon {
                    Format::Q4_K
                } else {
                    Format::Q5_K
                }
            }
            (Format::Q4_K, More::Medium) if self.is_falcon && seen >= n / 16 => {
                if has_more_bits(seen, n) {
                    Format::Q5_K
                } else {
                    Format::Q4_K
                }
            }
            (Format::Q4_K, More::Medium) if self.is_falcon => Format::Q6_K,
            (Format::Q4_K | Format::Q5_K, More::Medium) if has_more_bits(seen, n) => Format::Q6_K,
            (Format::Q4_K, More::Small) if !self.is_falcon && seen < n / 8 => Format::Q5_K,
            (format, _) => format,
        }
    }
}

/// The first and the last eighth of the layers, and every third between.
fn has_more_bits(layer: usize, n: usize) -> bool {
    layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2
}

/// What rows of `k` weights get where `meant` does not fit: a format of blocks of 32, and F16 where these do not fit either.
pub(crate) fn fallback(meant: Format, k: usize) -> Format {
    if k.is_multiple_of(meant.block_len()) {
        return meant;
    }
    let shorter = match meant {
        Format::Q2_K | Format::Q3_K | Format::TQ1_0 | Format::TQ2_0 => Format::Q4_0,
        Format::IQ1_S | Format::IQ1_M | Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S => Format::IQ4_NL,
        Format::IQ3_XXS | Format::IQ3_S | Format::IQ4_XS => Format::IQ4_NL,
        Format::Q4_K => Format::Q5_0,
        Format::Q5_K => Format::Q5_1,
        Format::Q6_K => Format::Q8_0,
        _ => Format::F16,
    };
    if k.is_multiple_of(shorter.block_len()) { shorter } else { Format::F16 }
}
