//! What a sampler does, and which settings make sense.

use crate::{Error, Result};

/// Settings of a sampler. The default is greedy without penalties.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// 0 takes the best token; else logits are divided by it. Finite, not negative.
    pub temperature: f32,
    /// Keeps this many best tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest best tokens whose probabilities reach this share. In (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this probable relative to the best. In [0, 1); 0 keeps all.
    pub min_p: f32,
    /// Positive logits of tokens in the window are divided by it, others multiplied. Positive; 1 does nothing.
    pub repetition_penalty: f32,
    /// How many of the last tokens are penalized; `usize::MAX` for all.
    pub repetition_window: usize,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        SamplerConfig { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, repetition_window: usize::MAX }
    }
}

impl SamplerConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the field and its range.
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, name: &'static str, value: f32, range: &str| {
            if ok { Ok(()) } else { Err(Error::invalid(name, format!("{value} is not {range}"))) }
        };
        let Self { temperature: t, top_p, min_p, repetition_penalty: r, .. } = *self;
        check(t.is_finite() && t >= 0.0, "temperature", t, "a finite number from 0 up")?;
        check(top_p > 0.0 && top_p <= 1.0, "top-p", top_p, "above 0 and at most 1")?;
        check((0.0..1.0).contains(&min_p), "min-p", min_p, "from 0 up and below 1")?;
        check(r.is_finite() && r > 0.0, "repetition penalty", r, "a finite number above 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_named() {
        let bad = [
            ("temperature", SamplerConfig { temperature: -0.1, ..Default::default() }),
            ("temperature", SamplerConfig { temperature: f32::INFINITY, ..Default::default() }),
            ("temperature", SamplerConfig { temperature: f32::NAN, ..Default::default() }),
            ("top-p", SamplerConfig { top_p: 0.0, ..Default::default() }),
            ("top-p", SamplerConfig { top_p: 1.1, ..Default::default() }),
            ("top-p", SamplerConfig { top_p: f32::NAN, ..Default::default() }),
            ("min-p", SamplerConfig { min_p: 1.0, ..Default::default() }),
            ("min-p", SamplerConfig { min_p: -0.1, ..Default::default() }),
            ("repetition penalty", SamplerConfig { repetition_penalty: 0.0, ..Default::default() }),
            ("repetition penalty", SamplerConfig { repetition_penalty: f32::NAN, ..Default::default() }),
        ];
        for (name, config) in bad {
            assert!(config.validate().unwrap_err().to_string().starts_with(name), "{config:?}");
        }
        SamplerConfig { temperature: 2.0, top_p: 1.0, min_p: 0.0, ..Default::default() }.validate().unwrap();
    }
}
