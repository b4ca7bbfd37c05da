//! Which token comes next: Hugging Face's steps, in order.
//!
//! Repetition penalty, temperature, top-k, top-p, min-p, then a draw. Tokens rank by logit, equal ones by the lower id.
//! Probabilities are kept relative to the best token, which has exactly 1, and are walked in the order of ids.

mod config;
mod rng;

pub use config::SamplerConfig;
use rml_kernels_ref::exp::exp;
pub use rng::SplitMix64;

use crate::{Error, Result};

/// A sampler for one vocabulary. Sampling allocates nothing.
#[derive(Debug)]
pub struct Sampler {
    config: SamplerConfig,
    logits: Vec<f32>,      // (n_vocab) after the penalty
    kept: Vec<(u32, f32)>, // id and logit, then relative probability
    epoch: u32,            // number of the call
    seen: Vec<u32>,        // (n_vocab) the call in which a token was last penalized
}

impl Sampler {
    /// A sampler for `n_vocab` tokens.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty vocabulary or a setting out of range.
    pub fn new(config: SamplerConfig, n_vocab: usize) -> Result<Self> {
        config.validate()?;
        if n_vocab == 0 {
            return Err(Error::invalid("vocabulary", "it is empty"));
        }
        Ok(Sampler { config, logits: vec![0.0; n_vocab], kept: Vec::with_capacity(n_vocab), epoch: 0, seen: vec![0; n_vocab] })
    }

    /// The settings.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// Draws the token that follows `context`. `logits` is (n_vocab); ids of `context` beyond it are passed over.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a logit is NaN or infinite, or their number is another.
    pub fn sample(&mut self, logits: &[f32], context: &[u32], rng: &mut SplitMix64) -> Result<u32> {
        self.filter(logits, context)?;
        let weights = || self.kept.iter().map(|&(id, p)| (id, f64::from(p)));
        Ok(walk(weights, rng))
    }

    /// The distribution that [`sample`](Self::sample) draws from: normalized, one-hot when greedy. `out` is (n_vocab).
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn distribution(&mut self, logits: &[f32], context: &[u32], out: &mut [f32]) -> Result<()> {
        self.filter(logits, context)?;
        if out.len() != self.logits.len() {
            return Err(Error::invalid("distribution", format!("room for {} tokens, of {}", out.len(), self.logits.len())));
        }
        out.fill(0.0);
        let total: f64 = self.kept.iter().map(|&(_, p)| f64::from(p)).sum();
        for &(id, p) in &self.kept {
            out[id as usize] = (f64::from(p) / total) as f32;
        }
        Ok(())
    }

    /// Leaves in `kept` the tokens that may be drawn, by id, with their relative probabilities.
    fn filter(&mut self, logits: &[f32], context: &[u32]) -> Result<()> {
        if logits.len() != self.logits.len() {
            return Err(Error::invalid("logits", format!("{} for a vocabulary of {}", logits.len(), self.logits.len())));
        }
        if let Some(i) = logits.iter().position(|x| !x.is_finite()) {
            return Err(Error::invalid("logits", format!("that of token {i} is {}; the model or its file is damaged", logits[i])));
        }
        self.logits.copy_from_slice(logits);
        self.penalize(context);
        self.kept.clear();
        if self.config.temperature == 0.0 {
            let best = rml_kernels_ref::sampling::argmax(&self.logits).expect("not empty, and no NaN");
            self.kept.push((best as u32, 1.0));
            return Ok(());
        }
        self.kept.extend(self.logits.iter().enumerate().map(|(id, &l)| (id as u32, l)));
        if self.config.top_k > 0 && self.config.top_k < self.kept.len() {
            self.kept.select_nth_unstable_by(self.config.top_k - 1, rank);
            self.kept.truncate(self.config.top_k);
        }
        let best = self.kept.iter().fold(f32::NEG_INFINITY, |m, &(_, l)| m.max(l));
        let keep = self.nucleus(best);
        self.kept.truncate(keep);
        self.kept.sort_unstable_by_key(|&(id, _)| id);
        let t = self.config.temperature;
        for (_, l) in &mut self.kept {
            *l = relative(*l, best, t);
        }
        Ok(())
    }

    /// Brings the tokens that top-p and min-p keep to the front, and says how many they are.
    ///
    /// Both keep a run of the best, so the shorter run is kept; only as much as is needed is brought into order.
    fn nucleus(&mut self, best: f32) -> usize {
        let SamplerConfig { temperature: t, top_p, min_p, .. } = self.config;
        if top_p == 1.0 && min_p == 0.0 {
            return self.kept.len();
        }
        let total: f64 = self.kept.iter().map(|&(_, l)| f64::from(relative(l, best, t))).sum();
        let target = if top_p == 1.0 { f64::INFINITY } else { f64::from(top_p) * total };
        let (mut sorted, mut sum) = (0, 0.0);
        while sorted < self.kept.len() {
            let piece = (sorted + 1).next_power_of_two().max(64).min(self.kept.len() - sorted);
            let rest = &mut self.kept[sorted..];
            if piece < rest.len() {
                rest.select_nth_unstable_by(piece - 1, rank);
            }
            rest[..piece].sort_unstable_by(rank);
            for &(_, l) in &rest[..piece] {
                let p = relative(l, best, t);
                if sum >= target || p < min_p {
                    return sorted.max(1);
                }
                sum += f64::from(p);
                sorted += 1;
            }
        }
        sorted
    }

    /// Penalizes each distinct token of the window once.
    fn penalize(&mut self, context: &[u32]) {
        let penalty = self.config.repetition_penalty;
        if penalty == 1.0 {
            return;
        }
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.seen.fill(0);
            self.epoch = 1;
        }
        let start = context.len().saturating_sub(self.config.repetition_window);
        for &id in &context[start..] {
            let Some(seen) = self.seen.get_mut(id as usize).filter(|seen| **seen != self.epoch) else { continue };
            *seen = self.epoch;
            let l = &mut self.logits[id as usize];
            *l = if *l > 0.0 { *l / penalty } else { *l * penalty };
        }
    }
}

/// Probability relative to the best token.
fn relative(logit: f32, best: f32, temperature: f32) -> f32 {
    exp((logit - best) / temperature)
}

/// The better first: higher logit, then lower id.
fn rank(a: &(u32, f32), b: &(u32, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// The token at a random share of the total weight, walking in the order given.
fn walk<I: Iterator<Item = (u32, f64)>>(weights: impl Fn() -> I, rng: &mut SplitMix64) -> u32 {
    let total: f64 = weights().map(|(_, w)| w).sum();
    let target = rng.next_f64() * total;
    let mut sum = 0.0;
    let mut last = 0;
    for (id, w) in weights().filter(|&(_, w)| w > 0.0) {
        sum += w;
        last = id;
        if sum > target {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [2.0, 1.0, 0.0, -1.0];

    fn distribution(config: SamplerConfig, logits: &[f32], context: &[u32]) -> Vec<f32> {
        let mut out = vec![0.0; logits.len()];
        Sampler::new(config, logits.len()).unwrap().distribution(logits, context, &mut out).unwrap();
        out
    }

    #[test]
    fn the_worked_example() {
        let config = SamplerConfig { temperature: 1.0, top_p: 0.9, min_p: 0.05, ..Default::default() };
        let p = distribution(config.clone(), &LOGITS, &[]);
        let percent: Vec<String> = p.iter().map(|p| format!("{:.1}", p * 100.0)).collect();
        assert_eq!(percent, ["66.5", "24.5", "9.0", "0.0"]);
        // Without top-p the fourth, at 0.0498 of the best, falls to min-p alone.
        let p = distribution(SamplerConfig { top_p: 1.0, ..config }, &LOGITS, &[]);
        assert!(p[3] == 0.0 && p[2] > 0.0);
    }

    #[test]
    fn penalty_once_a_token_over_the_last_of_the_window() {
        let config = SamplerConfig { repetition_penalty: 1.1, repetition_window: 3, ..Default::default() };
        let mut s = Sampler::new(config, 4).unwrap();
        s.filter(&LOGITS, &[1, 0, 3, 0]).unwrap();
        assert_eq!(s.logits, [2.0 / 1.1, 1.0, 0.0, -1.1]);
    }

    #[test]
    fn ties_go_to_the_lower_id() {
        let logits = [0.0, 3.0, 3.0, 3.0];
        assert_eq!(distribution(SamplerConfig::default(), &logits, &[]), [0.0, 1.0, 0.0, 0.0]);
        let p = distribution(SamplerConfig { temperature: 1.0, top_k: 2, ..Default::default() }, &logits, &[]);
        assert_eq!(p, [0.0, 0.5, 0.5, 0.0]);
    }

    #[test]
    fn logits_that_are_no_numbers_are_an_error() {
        let mut s = Sampler::new(SamplerConfig::default(), 2).unwrap();
        let mut rng = SplitMix64::new(0);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(s.sample(&[0.0, bad], &[], &mut rng).is_err());
        }
        assert!(s.sample(&[0.0], &[], &mut rng).is_err());
        assert!(Sampler::new(SamplerConfig::default(), 0).is_err());
    }

    #[test]
    fn seeds_differ_at_temperature_one_and_repeat() {
        let logits: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin()).collect();
        let config = SamplerConfig { temperature: 1.0, ..Default::default() };
        let mut s = Sampler::new(config, 1000).unwrap();
        let mut draw = |seed| s.sample(&logits, &[], &mut SplitMix64::new(seed)).unwrap();
        let draws: Vec<u32> = (0..5).map(&mut draw).collect();
        assert!(draws.iter().collect::<std::collections::HashSet<_>>().len() >= 4, "{draws:?}");
        assert_eq!(draws, (0..5).map(draw).collect::<Vec<_>>());
    }
}
