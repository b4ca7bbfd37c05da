//! What a sampler does, and which settings make sense.

use crate::{Error, Result};

/// The order of the steps, and with it what top-p measures against and how ties are broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChainOrder {
    /// Hugging Face's: penalties, temperature, top-k, top-p, min-p. Top-p is a share of what top-k left. Of equal logits
    /// the lower id ranks first.
    #[default]
    HuggingFace,
    /// Penalties, temperature, softmax, min-p, top-k, top-p. Top-p is a share of the whole vocabulary. Of equal logits
    /// the higher id ranks first.
    MinPFirst,
}

/// Which of two equal logits ranks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The lower id.
    Lower,
    /// The higher id.
    Higher,
}

impl ChainOrder {
    /// How this chain breaks ties, in every step.
    pub fn ties(self) -> Ties {
        match self {
            ChainOrder::HuggingFace => Ties::Lower,
            ChainOrder::MinPFirst => Ties::Higher,
        }
    }
}

/// Settings of a sampler. The default is greedy without penalties.
///
/// Before the chain a logit becomes, in this order: plus its bias; divided by the repetition penalty if positive, else
/// multiplied with it; less the presence penalty; less the frequency penalty times its count in the window. The result is
/// clamped to what f32 can hold. Suppressed tokens are then out of question.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// The order of the steps.
    pub order: ChainOrder,
    /// 0 takes the best token; else logits are divided by it. Finite, not negative.
    pub temperature: f32,
    /// Keeps this many best tokens; 0, or the size of the vocabulary and above, keeps all.
    pub top_k: usize,
    /// Keeps the fewest best tokens whose probabilities reach this share. In (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this probable relative to the best. In [0, 1); 0 keeps all.
    pub min_p: f32,
    /// Positive logits of tokens in the window are divided by it, others multiplied. Positive; 1 does nothing.
    pub repetition_penalty: f32,
    /// How many of the last tokens the three penalties look at; `usize::MAX` for all, 0 for none.
    pub repetition_window: usize,
    /// Taken off the logit of each token in the window, once. Finite; 0 does nothing.
    pub presence_penalty: f32,
    /// Taken off the logit of each token in the window, once for each occurrence. Finite; 0 does nothing.
    pub frequency_penalty: f32,
    /// Tokens that are never drawn.
    pub suppress: Vec<u32>,
    /// Added to the logit of a token; several for one token add up. Finite.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        SamplerConfig {
            order: ChainOrder::HuggingFace,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: usize::MAX,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            suppress: Vec::new(),
            logit_bias: Vec::new(),
        }
    }
}

impl SamplerConfig {
    /// Checks every range that does not depend on the vocabulary.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the field and its range.
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, name: &'static str, value: f32, range: &str| {
            if ok { Ok(()) } else { Err(Error::invalid(name, format!("{value} is not {range}"))) }
        };
        let Self { temperature: t, top_p, min_p, repetition_penalty: r, presence_penalty, frequency_penalty, .. } = *self;
        check(t.is_finite() && t >= 0.0, "temperature", t, "a finite number from 0 up")?;
        check(top_p > 0.0 && top_p <= 1.0, "top-p", top_p, "above 0 and at most 1")?;
        check((0.0..1.0).contains(&min_p), "min-p", min_p, "from 0 up and below 1")?;
        check(r.is_finite() && r > 0.0, "repetition penalty", r, "a finite number above 0")?;
        check(presence_penalty.is_finite(), "presence penalty", presence_penalty, "a finite number")?;
        check(frequency_penalty.is_finite(), "frequency penalty", frequency_penalty, "a finite number")?;
        self.logit_bias.iter().try_for_each(|&(_, bias)| check(bias.is_finite(), "logit bias", bias, "a finite number"))
    }

    /// As [`validate`](Self::validate), and that every token named is one of `n_vocab`.
    ///
    /// # Errors
    /// As [`validate`](Self::validate); [`Error::OutOfRange`] for a token outside the vocabulary.
    pub fn validate_for(&self, n_vocab: usize) -> Result<()> {
        self.validate()?;
        let within = |name: &'static str, id: u32| {
            if (id as usize) < n_vocab {
                return Ok(());
            }
            Err(Error::out_of_range(name, format!("token {id} is not in a vocabulary of {n_vocab}")))
        };
        self.suppress.iter().try_for_each(|&id| within("suppress", id))?;
        self.logit_bias.iter().try_for_each(|&(id, _)| within("logit bias", id))
    }

    /// Whether it takes the best token without a draw.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether any of the three penalties on tokens of the window does anything.
    pub(super) fn penalizes(&self) -> bool {
        self.repetition_window > 0 && (self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0)
    }

    /// What differences of logits are multiplied with: `1 / temperature`, within f32's range.
    pub(super) fn sharpness(&self) -> f32 {
        self.temperature.recip().min(f32::MAX)
    }

    /// The number of tokens that top-k keeps, if it leaves out any of `n_vocab`.
    pub(super) fn top_k_of(&self, n_vocab: usize) -> Option<usize> {
        (1..n_vocab).contains(&self.top_k).then_some(self.top_k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_named() {
        let base = SamplerConfig::default;
        let bad = [
            ("temperature", SamplerConfig { temperature: -0.1, ..base() }),
            ("temperature", SamplerConfig { temperature: f32::INFINITY, ..base() }),
            ("temperature", SamplerConfig { temperature: f32::NAN, ..base() }),
            ("top-p", SamplerConfig { top_p: 0.0, ..base() }),
            ("top-p", SamplerConfig { top_p: 1.1, ..base() }),
            ("top-p", SamplerConfig { top_p: f32::NAN, ..base() }),
            ("min-p", SamplerConfig { min_p: 1.0, ..base() }),
            ("min-p", SamplerConfig { min_p: -0.1, ..base() }),
            ("min-p", SamplerConfig { min_p: f32::NAN, ..base() }),
            ("repetition penalty", SamplerConfig { repetition_penalty: 0.0, ..base() }),
            ("repetition penalty", SamplerConfig { repetition_penalty: -1.0, ..base() }),
            ("repetition penalty", SamplerConfig { repetition_penalty: f32::NAN, ..base() }),
            ("repetition penalty", SamplerConfig { repetition_penalty: f32::INFINITY, ..base() }),
            ("presence penalty", SamplerConfig { presence_penalty: f32::NAN, ..base() }),
            ("frequency penalty", SamplerConfig { frequency_penalty: f32::INFINITY, ..base() }),
            ("logit bias", SamplerConfig { logit_bias: vec![(0, 1.0), (1, f32::NEG_INFINITY)], ..base() }),
        ];
        for (name, config) in bad {
            assert!(config.validate().unwrap_err().to_string().starts_with(name), "{config:?}");
        }
        SamplerConfig { temperature: 2.0, ..base() }.validate().unwrap();
    }

    #[test]
    fn tokens_outside_the_vocabulary_are_named() {
        let suppress = SamplerConfig { suppress: vec![3, 4], ..Default::default() };
        assert_eq!(suppress.validate_for(4).unwrap_err().to_string(), "suppress: token 4 is not in a vocabulary of 4");
        suppress.validate_for(5).unwrap();
        let bias = SamplerConfig { logit_bias: vec![(9, 1.0)], ..Default::default() };
        assert_eq!(bias.validate_for(4).unwrap_err().to_string(), "logit bias: token 9 is not in a vocabulary of 4");
    }

    #[test]
    fn sharpness_is_positive_and_finite() {
        for temperature in [1e-45, f32::MIN_POSITIVE, 1e-3, 1.0, f32::MAX] {
            let s = SamplerConfig { temperature, ..Default::default() }.sharpness();
            assert!(s > 0.0 && s.is_finite(), "{temperature} {s}");
        }
    }
}
