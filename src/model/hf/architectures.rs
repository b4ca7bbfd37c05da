//! The architectures of `config.json` that have a place in GGUF, as data.
//!
//! Source: the model classes of `transformers`; for the names of GGUF, `convert_hf_to_gguf.py` of llama.cpp and the tables of
//! the package `gguf`.

use super::fields::Fields;
use crate::{Error, Result};

/// One architecture.
#[derive(Debug)]
pub(super) struct Architecture {
    /// Name of the class, as `architectures` has it.
    pub(super) class: &'static str,
    /// The same as `model_type` has it.
    pub(super) model_type: &'static str,
    /// Value of `general.architecture`.
    pub(super) gguf: &'static str,
    /// Queries and keys are rotated in pairs there and in halves here, so their rows change places.
    pub(super) in_pairs: bool,
    /// Norms multiply with one more than what is stored.
    pub(super) norms_add_one: bool,
    /// Activations that are what GGUF's architecture computes.
    pub(super) activations: &'static [&'static str],
    /// What norms of a layer are called in GGUF.
    pub(super) norms: &'static [(&'static str, &'static str)],
    /// Numbers that the class has where the file is silent.
    pub(super) defaults: &'static [(&'static str, f64)],
}

const SILU: &[&str] = &["silu", "swish"];
/// `gelu` is what the first of these files say and not what their models compute.
const GELU: &[&str] = &["gelu_pytorch_tanh", "gelu"];

const BEFORE: &[(&str, &str)] = &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")];
const AFTER: &[(&str, &str)] = &[("post_attention_layernorm", "post_attention_norm"), ("post_feedforward_layernorm", "post_ffw_norm")];
const AROUND: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
const GPT_OSS: &[(&str, &str)] = &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm")];

const BASE: Architecture = Architecture {
    class: "",
    model_type: "",
    gguf: "llama",
    in_pairs: true,
    norms_add_one: false,
    activations: SILU,
    norms: BEFORE,
    defaults: &[],
};
/// Rotation in halves, as in `transformers` itself.
const HALVES: Architecture = Architecture { in_pairs: false, ..BASE };
const GEMMA: Architecture = Architecture { norms_add_one: true, activations: GELU, ..HALVES };
const GEMMA_3: Architecture = Architecture {
    gguf: "gemma3",
    norms: AROUND,
    defaults: &[
        ("num_attention_heads", 8.0),
        ("num_key_value_heads", 4.0),
        ("head_dim", 256.0),
        ("hidden_size", 2304.0),
        ("intermediate_size", 9216.0),
        ("num_hidden_layers", 26.0),
        ("vocab_size", 262_208.0),
        ("max_position_embeddings", 131_072.0),
        ("rms_norm_eps", 1e-6),
        ("rope_theta", 1e6),
        ("rope_local_base_freq", 1e4),
        ("query_pre_attn_scalar", 256.0),
        ("sliding_window", 4096.0),
    ],
    ..GEMMA
};

const ARCHITECTURES: [Architecture; 16] = [
    Architecture { class: "LlamaForCausalLM", model_type: "llama", ..BASE },
    Architecture { class: "MistralForCausalLM", model_type: "mistral", ..BASE },
    Architecture { class: "MixtralForCausalLM", model_type: "mixtral", defaults: &[("rope_theta", 1e6)], ..BASE },
    Architecture { class: "SmolLM3ForCausalLM", model_type: "smollm3", gguf: "smollm3", defaults: &[("rope_theta", 2e6)], ..BASE },
    Architecture { class: "GraniteForCausalLM", model_type: "granite", gguf: "granite", ..BASE },
    Architecture { class: "GraniteMoeForCausalLM", model_type: "granitemoe", gguf: "granitemoe", ..BASE },
    Architecture { class: "Qwen2ForCausalLM", model_type: "qwen2", gguf: "qwen2", ..HALVES },
    Architecture { class: "Qwen3ForCausalLM", model_type: "qwen3", gguf: "qwen3", defaults: &[("head_dim", 128.0)], ..HALVES },
    Architecture { class: "Qwen3MoeForCausalLM", model_type: "qwen3_moe", gguf: "qwen3moe", ..HALVES },
    Architecture { class: "Phi3ForCausalLM", model_type: "phi3", gguf: "phi3", ..HALVES },
    Architecture { class: "Olmo2ForCausalLM", model_type: "olmo2", gguf: "olmo2", norms: AFTER, ..HALVES },
    Architecture { class: "GptOssForCausalLM", model_type: "gpt_oss", gguf: "gpt-oss", norms: GPT_OSS, ..HALVES },
    Architecture { class: "GemmaForCausalLM", model_type: "gemma", gguf: "gemma", defaults: &[("head_dim", 256.0)], ..GEMMA },
    Architecture {
        class: "Gemma2ForCausalLM",
        model_type: "gemma2",
        gguf: "gemma2",
        norms: AROUND,
        defaults: &[("head_dim", 256.0), ("query_pre_attn_scalar", 256.0), ("sliding_window", 4096.0)],
        ..GEMMA
    },
    Architecture { class: "Gemma3ForCausalLM", model_type: "gemma3_text", ..GEMMA_3 },
    Architecture { class: "Gemma3ForConditionalGeneration", model_type: "gemma3", ..GEMMA_3 },
];

impl Architecture {
    /// The architecture that a configuration names.
    pub(super) fn of(config: &Fields) -> Result<&'static Architecture> {
        let class = config.list("architectures")?.and_then(|list| list.first()).and_then(|v| v.as_str());
        let model_type = config.str("model_type")?;
        let found = match (class, model_type) {
            (Some(class), _) => ARCHITECTURES.iter().find(|a| a.class == class),
            (None, Some(model_type)) => ARCHITECTURES.iter().find(|a| a.model_type == model_type),
            (None, None) => return Err(config.wrong("architectures", "is missing, and so is model_type")),
        };
        found.ok_or_else(|| Error::Unsupported {
            path: config.path().to_owned(),
            reason: format!(
                "architecture {:?} is not read from a directory; rml reads {}",
                class.or(model_type).unwrap_or_default(),
                ARCHITECTURES.map(|a| a.class).join(", ")
            ),
        })
    }

    /// The number that the class has where the file is silent.
    pub(super) fn default(&self, key: &str) -> Option<f64> {
        self.defaults.iter().find(|(k, _)| *k == key).map(|(_, x)| *x)
    }
}
