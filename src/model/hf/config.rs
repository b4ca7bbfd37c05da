//! `config.json` as metadata of GGUF.

use super::architectures::Architecture;
use super::fields::Fields;
use super::rope;
use crate::Result;
use crate::model::gguf::Value;

/// What `config.json` says of the model: its keys, and the tensors of GGUF that stand in no file.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) arch: &'static Architecture,
    pub(super) metadata: Vec<(String, Value)>,
    /// Vectors by name.
    pub(super) vectors: Vec<(String, Vec<f32>)>,
    pub(super) sizes: Sizes,
}

/// What the shapes of tensors depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) n_layers: usize,
    pub(super) n_heads: usize,
    pub(super) n_kv_heads: usize,
    pub(super) n_experts: usize,
    /// The embedding is the head as well.
    pub(super) tied: bool,
}

/// More would be damage; the bound keeps products of two sizes within 64 bits.
const LARGEST: u32 = 1 << 24;

/// Reads a configuration, that of the text model where there are others beside it.
pub(super) fn translate(whole: &Fields) -> Result<Translated> {
    let arch = Architecture::of(whole)?;
    let text = whole.object("text_config")?;
    let config = Config { fields: text.as_ref().unwrap_or(whole), arch };
    config.refuse_unsupported(whole)?;
    let n_heads = config.size("num_attention_heads")?;
    let n_kv_heads = config.optional_size("num_key_value_heads")?.unwrap_or(n_heads);
    let d_model = config.size("hidden_size")?;
    let d_head = match config.optional_size("head_dim")? {
        Some(d) => d,
        None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => {
            return Err(config.fields.wrong("num_attention_heads", &format!("is {n_heads}, which does not divide the width {d_model}")));
        }
    };
    let n_experts = config.experts()?.unwrap_or(0);
    let mut out = Out { arch: arch.gguf, metadata: vec![("general.architecture".into(), Value::String(arch.gguf.into()))] };
    out.size("block_count", config.size("num_hidden_layers")?);
    out.size("context_length", config.optional_size("max_position_embeddings")?.unwrap_or(2048));
    out.size("embedding_length", d_model);
    out.size("feed_forward_length", config.size("intermediate_size")?);
    out.size("attention.head_count", n_heads);
    out.size("attention.head_count_kv", n_kv_heads);
    out.f32("attention.layer_norm_rms_epsilon", config.number("rms_norm_eps")?.unwrap_or(1e-6));
    out.size("attention.key_length", d_head);
    out.size("attention.value_length", d_head);
    out.size("vocab_size", config.size("vocab_size")?);
    config.windows(&mut out)?;
    config.multipliers(&mut out, d_head)?;
    if n_experts > 0 {
        out.size("expert_count", n_experts);
        out.size("expert_used_count", config.size("num_experts_per_tok")?);
        if ["qwen3moe", "gpt-oss"].contains(&arch.gguf) {
            let key = if arch.gguf == "gpt-oss" { "intermediate_size" } else { "moe_intermediate_size" };
            out.size("expert_feed_forward_length", config.size(key)?);
        }
    }
    let vectors = rope::translate(&config, d_head, &mut out)?;
    let tied_by_default = arch.norms_add_one || arch.gguf == "smollm3";
    let sizes = Sizes {
        n_layers: config.size("num_hidden_layers")?,
        n_heads,
        n_kv_heads,
        n_experts,
        tied: whole.bool("tie_word_embeddings")?.or(config.fields.bool("tie_word_embeddings")?).unwrap_or(tied_by_default),
    };
    Ok(Translated { arch, metadata: out.metadata, vectors, sizes })
}

/// Metadata of one architecture: keys are given without its name.
pub(super) struct Out {
    arch: &'static str,
    metadata: Vec<(String, Value)>,
}

impl Out {
    fn put(&mut self, key: &str, value: Value) {
        self.metadata.push((format!("{}.{key}", self.arch), value));
    }

    /// A size that was read as 32 bits.
    pub(super) fn size(&mut self, key: &str, n: usize) {
        self.put(key, Value::U32(n as u32));
    }

    pub(super) fn f32(&mut self, key: &str, x: f64) {
        self.put(key, Value::F32(x as f32));
    }

    pub(super) fn str(&mut self, key: &str, text: &str) {
        self.put(key, Value::String(text.to_owned()));
    }
}

/// A configuration with the defaults of its class.
pub(super) struct Config<'a> {
    pub(super) fields: &'a Fields,
    pub(super) arch: &'static Architecture,
}

impl Config<'_> {
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        match self.fields.u32(key)? {
            None => Ok(self.arch.default(key).map(|x| x as usize)),
            Some(n) if (1..=LARGEST).contains(&n) => Ok(Some(n as usize)),
            Some(n) => Err(self.fields.wrong(key, &format!("is {n}, where 1 to {LARGEST} are possible"))),
        }
    }

    pub(super) fn size(&self, key: &str) -> Result<usize> {
        self.fields.required(key, self.optional_size(key)?)
    }

    /// A number that is positive, as all of these are.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.fields.f64(key)? {
            None => Ok(self.arch.default(key)),
            Some(x) if x > 0.0 && (x as f32).is_finite() && x as f32 > 0.0 => Ok(Some(x)),
            Some(x) => Err(self.fields.wrong(key, &format!("is {x}; it must be positive"))),
        }
    }

    fn experts(&self) -> Result<Option<usize>> {
        Ok(match self.optional_size("num_local_experts")? {
            Some(n) => Some(n),
            None => self.optional_size("num_experts")?,
        })
    }

    /// Refuses what would change the computation and is not computed.
    fn refuse_unsupported(&self, whole: &Fields) -> Result<()> {
        let fields = self.fields;
        for key in ["hidden_act", "hidden_activation"] {
            match fields.str(key)? {
                Some(name) if !self.arch.activations.contains(&name) => return Err(fields.unsupported(key, &format!("is {name:?}"))),
                _ => {}
            }
        }
        for (key, allowed) in
            [("use_bidirectional_attention", false), ("use_sliding_window", false), ("is_causal", true), ("is_decoder", true)]
        {
            match fields.get(key) {
                Some(serde_json::Value::Bool(b)) if *b != allowed => return Err(fields.unsupported(key, &format!("is {b}"))),
                _ => {}
            }
        }
        if let Some(how) = whole.object("quantization_config")? {
            let method = how.str("quant_method")?.unwrap_or("unknown");
            if (self.arch.gguf, method) != ("gpt-oss", "mxfp4") {
                return Err(whole.unsupported("quantization_config", &format!("says that weights are quantized by {method:?}")));
            }
        }
        if self.arch.gguf == "qwen3moe" {
            if fields.bool("norm_topk_prob")? != Some(true) {
                return Err(fields.unsupported("norm_topk_prob", "is not true"));
            }
            if fields.u32("decoder_sparse_step")?.is_some_and(|n| n != 1) || fields.list("mlp_only_layers")?.is_some_and(|l| !l.is_empty())
            {
                return Err(fields.unsupported("mlp_only_layers or decoder_sparse_step", "leaves layers without experts"));
            }
        }
        if self.arch.gguf == "gpt-oss" {
            for (key, usual) in [("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)] {
                if let Some(x) = fields.f64(key)?.filter(|x| *x != usual) {
                    return Err(fields.unsupported(key, &format!("is {x}")));
                }
            }
        }
        if self.arch.gguf == "smollm3" {
            self.no_rope_layers()?;
        }
        Ok(())
    }

    /// Every fourth layer of SmolLM3 does not rotate; GGUF has no key to say otherwise.
    fn no_rope_layers(&self) -> Result<()> {
        let wanted = |i: usize| u64::from(!(i + 1).is_multiple_of(4));
        let listed = self.fields.list("no_rope_layers")?;
        let usual = match listed {
            Some(list) => list.iter().enumerate().all(|(i, v)| v.as_u64() == Some(wanted(i))),
            None => self.fields.u32("no_rope_layer_interval")?.is_none_or(|n| n == 4),
        };
        if usual { Ok(()) } else { Err(self.fields.unsupported("no_rope_layers", "is not every fourth layer")) }
    }

    /// Sliding windows, and which layers have them.
    fn windows(&self, out: &mut Out) -> Result<()> {
        let fields = self.fields;
        // Layer i has a window unless i + 1 is a multiple of this.
        let every = match self.arch.gguf {
            "gemma2" | "gpt-oss" => Some(2),
            "gemma3" => Some(6),
            _ => None,
        };
        for key in ["sliding_window_pattern", "_sliding_window_pattern"] {
            if let (Some(n), Some(every)) = (fields.u32(key)?, every)
                && n != every
            {
                return Err(fields.unsupported(key, &format!("is {n}")));
            }
        }
        if let Some(types) = fields.list("layer_types")? {
            let wanted = |i: u32| if every.is_some_and(|n| !(i + 1).is_multiple_of(n)) { "sliding_attention" } else { "full_attention" };
            if let Some((i, kind)) = (0..).zip(types).find(|(i, kind)| kind.as_str() != Some(wanted(*i))) {
                return Err(fields.unsupported("layer_types", &format!("says {kind} for layer {i}")));
            }
        }
        let has_windows = every.is_some() || ["llama", "phi3"].contains(&self.arch.gguf);
        match self.optional_size("sliding_window")? {
            Some(n) if has_windows => out.size("attention.sliding_window", n),
            None if self.arch.gguf == "phi3" => out.size("attention.sliding_window", 0),
            _ => {}
        }
        Ok(())
    }

    /// Factors and caps that some architectures have.
    fn multipliers(&self, out: &mut Out, d_head: usize) -> Result<()> {
        match self.arch.gguf {
            "granite" | "granitemoe" => {
                for (key, name) in [
                    ("embedding_multiplier", "embedding_scale"),
                    ("residual_multiplier", "residual_scale"),
                    ("attention_multiplier", "attention.scale"),
                    ("logits_scaling", "logit_scale"),
                ] {
                    out.f32(name, self.number(key)?.unwrap_or(1.0));
                }
            }
            "gemma2" | "gemma3" => {
                let scalar = self.number("query_pre_attn_scalar")?.unwrap_or(256.0);
                if scalar != d_head as f64 {
                    out.f32("attention.scale", scalar.powf(-0.5));
                }
                for (key, name, default) in [
                    ("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
                    ("final_logit_softcapping", "final_logit_softcapping", 30.0),
                ] {
                    let absent = (self.arch.gguf == "gemma2" && !self.fields.keys().any(|k| k == key)).then_some(default);
                    match self.number(key)?.or(absent) {
                        Some(_) if self.arch.gguf == "gemma3" && name.starts_with("attn") => {
                            return Err(self.fields.unsupported(key, "is given for Gemma 3"));
                        }
                        Some(x) => out.f32(name, x),
                        None if self.arch.gguf == "gemma2" => return Err(self.fields.unsupported(key, "is null")),
                        None => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
