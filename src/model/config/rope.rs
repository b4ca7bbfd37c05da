//! Rotary embedding and the ways of stretching it to longer contexts.

use rml_kernels_ref::rope::{inverse_frequencies, pair_that_turns, stretched_magnitude};

use super::super::families::RopeStyle;
use super::super::gguf::TensorType;
use super::super::tensors::{ROPE_FACTORS, ROPE_FREQS};
use super::keys::Keys;
use crate::Result;

/// Rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which components form a pair.
    pub style: RopeStyle,
    /// Base of the frequencies.
    pub base: f32,
    /// Components of a head that are rotated: even, at most `d_head`.
    pub n_rot: usize,
    /// All frequencies are divided by this: linear scaling of positions; 1 for none.
    pub linear: f32,
    /// Which frequencies that division leaves out, where it does.
    pub yarn: Option<Yarn>,
    /// Each frequency is divided by its own of these as well, as in Llama 3.1 and later. (n_rot / 2), or empty for none
    pub factors: Vec<f32>,
    /// What takes the place of `factors` in long contexts.
    pub long: Option<LongFactors>,
    /// What cosines and sines are multiplied with.
    pub magnitude: f32,
}

/// YaRN: fast components turn as they did, slow ones are divided, and those between take a share of both.
///
/// Source: Peng et al. 2023, arXiv 2309.00071.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Positions before the model was stretched.
    pub original: usize,
    /// A component that turns more often than this in `original` positions stays as it is.
    pub fast: f32,
    /// One that turns less often than this is divided.
    pub slow: f32,
    /// Whether the bounds between which shares are taken are rounded to whole components.
    pub rounded: bool,
}

/// LongRoPE. Source: Ding et al. 2024, arXiv 2402.13753.
#[derive(Clone, Debug, PartialEq)]
pub struct LongFactors {
    /// Contexts of more positions are long.
    pub beyond: usize,
    /// (n_rot / 2)
    pub factors: Vec<f32>,
}

impl Rope {
    /// Whether a context of so many positions has other frequencies than a short one.
    pub fn is_long(&self, context: usize) -> bool {
        self.long.as_ref().is_some_and(|long| context > long.beyond)
    }

    /// Angles a position step of each pair, in a context of so many positions. (n_rot / 2)
    ///
    /// A context is that of a whole sequence, so that keys which are already in a cache stay right while it fills.
    pub fn frequencies(&self, context: usize) -> Vec<f32> {
        let mut frequencies = inverse_frequencies(self.base, self.n_rot);
        let factors = match &self.long {
            Some(long) if self.is_long(context) => &long.factors,
            _ => &self.factors,
        };
        for (f, factor) in frequencies.iter_mut().zip(factors) {
            *f /= factor;
        }
        for (j, f) in frequencies.iter_mut().enumerate() {
            let divided = self.yarn.map_or(1.0, |yarn| yarn.share(self, j));
            *f = *f / self.linear * divided + *f * (1.0 - divided);
        }
        frequencies
    }
}

impl Yarn {
    /// The share of the divided frequency in component `j`, from 0 to 1.
    fn share(&self, rope: &Rope, j: usize) -> f32 {
        let pair = |turns: f32| pair_that_turns(turns.into(), self.original, rope.base, rope.n_rot);
        let (mut low, mut high) = (pair(self.fast), pair(self.slow));
        if self.rounded {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(rope.n_rot as f64 - 1.0));
        ((j as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0) as f32
    }
}

impl Keys<'_> {
    /// The rotation, of layers without a window where those differ.
    pub(super) fn rope(&self, d_head: usize, context_length: usize) -> Result<Rope> {
        let n_rot = self.n_rot(d_head)?;
        let (kind, original) = ("rope.scaling.type", "rope.scaling.original_context_length");
        let name = self.text(kind)?.unwrap_or("linear");
        if !["none", "linear", "yarn", "longrope"].contains(&name) {
            return Err(self.unsupported(kind, &format!("is {name:?}")));
        }
        let linear = if name == "none" { 1.0 } else { self.linear_scaling()? };
        let yarn = if name == "yarn" && linear != 1.0 {
            Some(Yarn {
                original: self.size_or(original, context_length)?,
                fast: self.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                slow: self.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                rounded: self.family.yarn_is_rounded,
            })
        } else {
            None
        };
        for suffix in ["rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor"] {
            if yarn.is_some() && self.number(suffix)?.is_some() {
                return Err(self.unsupported(suffix, "is there"));
            }
        }
        let mut magnitude = if yarn.is_some() { stretched_magnitude(linear) } else { 1.0 };
        for suffix in ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"] {
            magnitude *= self.positive(suffix)?.unwrap_or(1.0);
        }
        let [short, long] = [ROPE_FACTORS[0], ROPE_FACTORS[1]].map(|name| self.rope_factors(name, n_rot));
        let (mut factors, mut long_factors) = (self.rope_factors(ROPE_FREQS, n_rot)?, None);
        match (short?, long?) {
            (None, None) => {}
            (Some(short), Some(long)) if factors.is_none() => {
                factors = Some(short);
                long_factors = Some(LongFactors { beyond: self.size(original)?, factors: long });
            }
            _ => {
                return Err(
                    self.malformed(format!("tensors {} come together, without {ROPE_FREQS}, or not at all", ROPE_FACTORS.join(" and ")))
                );
            }
        }
        Ok(Rope {
            style: self.family.rope,
            base: self.base()?,
            n_rot,
            linear,
            yarn,
            factors: factors.unwrap_or_default(),
            long: long_factors,
            magnitude,
        })
    }

    /// The rotation of layers with a window, if they have one of their own: nothing stretches it.
    pub(super) fn local_rope(&self, d_head: usize) -> Result<Option<Rope>> {
        let suffix = "rope.freq_base_swa";
        let base = self.positive(suffix)?;
        let Some(usual) = self.family.local_base else {
            return match base {
                Some(base) if base != self.base()? => {
                    Err(self.unsupported(suffix, &format!("is {base}, another base than in other layers")))
                }
                _ => Ok(None),
            };
        };
        let base = base.unwrap_or(usual);
        let (style, n_rot) = (self.family.rope, self.n_rot(d_head)?);
        Ok(Some(Rope { style, base, n_rot, linear: 1.0, yarn: None, factors: Vec::new(), long: None, magnitude: 1.0 }))
    }

    fn base(&self) -> Result<f32> {
        Ok(self.positive("rope.freq_base")?.unwrap_or(10_000.0))
    }

    fn n_rot(&self, d_head: usize) -> Result<usize> {
        let n_rot = self.size_or("rope.dimension_count", d_head)?;
        if n_rot % 2 == 1 || n_rot > d_head {
            return Err(self.wrong("rope.dimension_count", &format!("is {n_rot}; it must be even and at most the {d_head} of a head")));
        }
        Ok(n_rot)
    }

    /// As llama.cpp reads it: a factor of 0 means none.
    fn linear_scaling(&self) -> Result<f32> {
        for suffix in ["rope.scaling.factor", "rope.scale_linear"] {
            match self.number(suffix)? {
                None => {}
                Some(0.0) => return Ok(1.0),
                Some(x) if x > 0.0 => return Ok(x),
                Some(x) => return Err(self.wrong(suffix, &format!("is {x}; it must be positive"))),
            }
        }
        Ok(1.0)
    }

    /// A tensor with a factor a frequency, where the file has it.
    fn rope_factors(&self, name: &str, n_rot: usize) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.file.tensor(name) else { return Ok(None) };
        if tensor.kind != TensorType(0) || tensor.shape != [n_rot / 2] {
            return Err(self.malformed(format!(
                "tensor {name} has the shape {:?} in {}, where [{}] in f32 is needed",
                tensor.shape,
                tensor.kind,
                n_rot / 2
            )));
        }
        let factors: Vec<f32> = self.file.bytes(tensor).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        match factors.iter().position(|f| !f.is_finite() || *f <= 0.0) {
            Some(i) => Err(self.malformed(format!("tensor {name} holds {} at {i}, where factors are positive", factors[i]))),
            None => Ok(Some(factors)),
        }
    }
}
