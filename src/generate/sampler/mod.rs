//! Which token comes next.
//!
//! Two chains of steps, one machinery ([`ChainOrder`]): Hugging Face's order (penalties, temperature, top-k, top-p, min-p)
//! and min-p first (penalties, temperature, softmax, min-p, top-k, top-p). Tokens rank by logit, equal ones by id.
//! Probabilities are kept relative to the best token, which has exactly 1, and are walked in the order of ids.
//!
//! A seed gives the same tokens on every backend and number of threads: kernels agree to the bit, and weights are summed as
//! whole numbers. One pass over the vocabulary takes the largest logit of each block; what follows looks at few blocks, or,
//! without a top-k, at the few weights that could matter. Nothing is sorted but the handful that is left, and nothing is
//! allocated but by the constructors.
//!
//! [`Sampler`] is the way in for a loop; the functions beside it take the same steps one by one, with the caller's scratch.

mod calls;
mod candidates;
mod chain;
mod config;
mod draw;
mod kernels;
mod maxima;
mod patches;
mod rng;
mod speculative;

pub use calls::{
    SPARSE_TOPK_MAX, argmax, argmax_penalized, distribution_into, sample, sample_with_scratch, sample_with_scratch_pool,
    sparse_distribution_into, sparse_ok, top1_prob_pool,
};
use chain::Call;
pub use chain::SamplerScratch;
pub use config::{ChainOrder, SamplerConfig, Ties};
pub use draw::{Sparse, draw, draw_sparse};
pub use rng::SplitMix64;
pub use speculative::{spec_accept_or_correct, spec_accept_or_correct_sparse};

use rml_backends::KernelTable;

use crate::Result;
use crate::exec::Team;

/// A sampler for one vocabulary. Sampling allocates nothing.
#[derive(Debug)]
pub struct Sampler {
    config: SamplerConfig,
    scratch: SamplerScratch,
}

impl Sampler {
    /// A sampler for `n_vocab` tokens, with the reference kernels.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for an empty vocabulary or a setting out of range;
    /// [`OutOfRange`](crate::Error::OutOfRange) for more than 2^20 tokens, or a setting that names one outside the vocabulary.
    pub fn new(config: SamplerConfig, n_vocab: usize) -> Result<Self> {
        config.validate_for(n_vocab)?;
        Ok(Sampler { config, scratch: SamplerScratch::new(n_vocab)? })
    }

    /// Takes the kernels of a table. Tokens are the same with any.
    pub fn with_kernels(self, table: &KernelTable) -> Self {
        Sampler { scratch: self.scratch.with_kernels(table), ..self }
    }

    /// The settings.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// What it writes to, for the functions beside it.
    pub fn scratch(&mut self) -> &mut SamplerScratch {
        &mut self.scratch
    }

    /// Draws the token that follows `context`. `logits` is (n_vocab). Takes one number from `rng`; none when greedy.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) if a logit is NaN or infinite, their number is another, or every
    /// token is suppressed; [`OutOfRange`](crate::Error::OutOfRange) if `context` has a token outside the vocabulary.
    pub fn sample(&mut self, logits: &[f32], context: &[u32], rng: &mut SplitMix64) -> Result<u32> {
        self.scratch.sample(&Call { logits, context, config: &self.config, team: None }, rng)
    }

    /// [`sample`](Self::sample) with the passes over the vocabulary shared out over a team. The same token.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn sample_on(&mut self, team: &Team, logits: &[f32], context: &[u32], rng: &mut SplitMix64) -> Result<u32> {
        self.scratch.sample(&Call { logits, context, config: &self.config, team: Some(team) }, rng)
    }

    /// The distribution that [`sample`](Self::sample) draws from: normalized, one-hot when greedy. `out` is (n_vocab).
    ///
    /// # Errors
    /// As [`sample`](Self::sample); also if `out` has another length.
    pub fn distribution(&mut self, logits: &[f32], context: &[u32], out: &mut [f32]) -> Result<()> {
        self.scratch.dense(&Call { logits, context, config: &self.config, team: None }, out)
    }

    /// [`distribution`](Self::distribution) as a list by id, for settings that are [`sparse_ok`]. `out` is overwritten.
    ///
    /// # Errors
    /// As [`sample`](Self::sample); also if the settings are not [`sparse_ok`].
    pub fn sparse_distribution(&mut self, logits: &[f32], context: &[u32], out: &mut Sparse) -> Result<()> {
        calls::check_sparse(&self.config)?;
        self.scratch.sparse(&Call { logits, context, config: &self.config, team: None }, out)
    }
}
