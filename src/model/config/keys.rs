//! The metadata of one architecture, checked.

use super::super::families::{FAMILIES, Family, Layers, Norms, family};
use super::super::gguf::{Array, Gguf, Metadata, TensorInfo, Value};
use super::super::tensors::TOKEN_EMBD;
use super::{Experts, LARGEST, Window};
use crate::{Error, Result};

/// The metadata of one architecture: keys are given without its name.
pub(super) struct Keys<'a> {
    pub(super) file: &'a Gguf,
    meta: &'a Metadata,
    pub(super) family: &'static Family,
}

impl<'a> Keys<'a> {
    pub(super) fn new(file: &'a Gguf) -> Result<Self> {
        let meta = file.metadata();
        let name = meta.required("general.architecture", meta.str("general.architecture")?)?;
        match family(name) {
            Some(family) => Ok(Keys { file, meta, family }),
            None => Err(Error::Unsupported {
                path: file.path().to_owned(),
                reason: format!("architecture {name:?} is not supported; rml runs {}", FAMILIES.each_ref().map(|f| f.name).join(", ")),
            }),
        }
    }

    pub(super) fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.family.name)
    }

    pub(super) fn wrong(&self, suffix: &str, problem: &str) -> Error {
        self.meta.malformed(&self.key(suffix), problem)
    }

    pub(super) fn unsupported(&self, suffix: &str, problem: &str) -> Error {
        Error::Unsupported {
            path: self.file.path().to_owned(),
            reason: format!("metadata {} {problem}, which rml does not run; take another model", self.key(suffix)),
        }
    }

    /// Refuses what would change the computation and is not computed.
    pub(super) fn refuse_unsupported(&self) -> Result<()> {
        for (suffix, as_run) in [("expert_weights_norm", true), ("attention.causal", true)] {
            if self.meta.bool(&self.key(suffix))?.is_some_and(|value| value != as_run) {
                return Err(self.unsupported(suffix, &format!("is {}", !as_run)));
            }
        }
        if let Some(scale) = self.meta.f32(&self.key("expert_weights_scale"))?.filter(|&scale| scale != 0.0 && scale != 1.0) {
            return Err(self.unsupported("expert_weights_scale", &format!("is {scale}")));
        }
        for suffix in ["attention.head_count", "attention.head_count_kv", "feed_forward_length"] {
            if let Some(Value::Array(_)) = self.meta.get(&self.key(suffix)) {
                return Err(self.unsupported(suffix, "differs from layer to layer"));
            }
        }
        Ok(())
    }

    pub(super) fn optional_size(&self, suffix: &str) -> Result<Option<usize>> {
        match self.meta.u32(&self.key(suffix))? {
            None => Ok(None),
            Some(n) if (1..=LARGEST).contains(&n) => Ok(Some(n as usize)),
            Some(n) => Err(self.wrong(suffix, &format!("is {n}, where 1 to {LARGEST} are possible"))),
        }
    }

    pub(super) fn size_or(&self, suffix: &str, default: usize) -> Result<usize> {
        Ok(self.optional_size(suffix)?.unwrap_or(default))
    }

    pub(super) fn size(&self, suffix: &str) -> Result<usize> {
        self.meta.required(&self.key(suffix), self.optional_size(suffix)?)
    }

    pub(super) fn text(&self, suffix: &str) -> Result<Option<&'a str>> {
        self.meta.str(&self.key(suffix))
    }

    pub(super) fn number(&self, suffix: &str) -> Result<Option<f32>> {
        self.meta.f32(&self.key(suffix))
    }

    pub(super) fn positive(&self, suffix: &str) -> Result<Option<f32>> {
        match self.meta.f32(&self.key(suffix))? {
            Some(x) if x <= 0.0 => Err(self.wrong(suffix, &format!("is {x}; it must be positive"))),
            x => Ok(x),
        }
    }

    pub(super) fn rms_eps(&self) -> Result<f32> {
        let suffix = "attention.layer_norm_rms_epsilon";
        self.meta.required(&self.key(suffix), self.positive(suffix)?)
    }

    /// Rows of the embedding; in a file without tensors, tokens of the vocabulary.
    pub(super) fn vocabulary(&self) -> Result<usize> {
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

    /// Experts, if there are any.
    pub(super) fn experts(&self) -> Result<Option<Experts>> {
        let Some(count @ 1..) = self.meta.u32(&self.key("expert_count"))? else { return Ok(None) };
        let (count, used) = (count as usize, self.size("expert_used_count")?);
        if used > count {
            return Err(self.wrong("expert_used_count", &format!("is {used}, but there are only {count} experts")));
        }
        if self.family.norms != Norms::Before {
            return Err(self.unsupported("expert_count", &format!("asks for {count} experts beside norms of what they say")));
        }
        Ok(Some(Experts { count, used }))
    }

    /// The window and the layers that it limits; a size of 0 is none.
    pub(super) fn window(&self, n_layers: usize, d_head: usize) -> Result<Option<Window>> {
        let Some(size @ 1..) = self.meta.u32(&self.key("attention.sliding_window"))? else { return Ok(None) };
        let suffix = "attention.sliding_window_pattern";
        let layers = match self.meta.get(&self.key(suffix)) {
            None => self.family.windowed,
            Some(Value::Array(Array::Bool(list))) => {
                let list = list.get(..n_layers.min(list.len())).expect("within");
                Layers::listed(list).ok_or_else(|| self.unsupported(suffix, "lists layers that are not every so many"))?
            }
            Some(_) => match self.meta.u32(&self.key(suffix))? {
                None | Some(0) => Layers::All,
                Some(n) => Layers::AllButEvery(n as usize),
            },
        };
        Ok(Some(Window { size: size as usize, layers, rope: self.local_rope(d_head)? }))
    }

    pub(super) fn malformed(&self, problem: String) -> Error {
        Error::Malformed {
            path: self.file.path().to_owned(),
            reason: format!("{problem}; the file is damaged or was converted wrongly, convert or fetch it again"),
        }
    }
}
