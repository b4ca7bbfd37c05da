//! Keeping a guess or replacing it, so that what comes is distributed as the target alone would have it.

use super::guesses::Odds;
use crate::Result;
use crate::generate::sampler::{
    SPARSE_TOPK_MAX, Sampler, Sparse, SplitMix64, sparse_ok, spec_accept_or_correct, spec_accept_or_correct_sparse,
};

/// The target's distribution at the place that is judged.
#[derive(Debug)]
pub(super) struct Judge {
    listed: Sparse,
    dense: Vec<f32>, // (n_vocab)
}

impl Judge {
    /// For one vocabulary and the settings of one sampler.
    pub(super) fn new(sampler: &Sampler, n_vocab: usize) -> Self {
        let config = sampler.config();
        let dense = if config.is_greedy() || sparse_ok(config) { Vec::new() } else { vec![0.0; n_vocab] };
        Judge { listed: Sparse::with_capacity(SPARSE_TOPK_MAX), dense }
    }

    /// The token that follows `context`, whose logits are given, and whether it is the guess.
    ///
    /// A guess `d` that was certain is judged by the sampler's own draw. That is the rule with a `q` that has all its weight on
    /// `d`: kept with probability `min(1, p(d) / 1)`, else a draw from `p` without `d`. And the draw is the one that would be
    /// made without a guess, so such guesses change no reply, whatever the seed.
    pub(super) fn next(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        context: &[u32],
        guess: Option<(u32, Odds<'_>)>,
        rng: &mut SplitMix64,
    ) -> Result<(u32, bool)> {
        let corrected = |guess, correction: Option<u32>| (correction.unwrap_or(guess), correction.is_none());
        match guess {
            None => Ok((sampler.sample(logits, context, rng)?, false)),
            Some((guess, Odds::Certain)) => {
                let id = sampler.sample(logits, context, rng)?;
                Ok((id, id == guess))
            }
            Some((guess, Odds::Listed(q))) => {
                sampler.sparse_distribution(logits, context, &mut self.listed)?;
                Ok(corrected(guess, spec_accept_or_correct_sparse(&self.listed, q, guess, rng)?))
            }
            Some((guess, Odds::Dense(q))) => {
                sampler.distribution(logits, context, &mut self.dense)?;
                Ok(corrected(guess, spec_accept_or_correct(&self.dense, q, guess, rng, sampler.scratch(), None)?))
            }
        }
    }
}
