//! Sampling as plain functions: settings, randomness and scratch are the caller's.
//!
//! All take logits (n_vocab) as the model gives them, and the context so far for the penalties. Their results do not depend
//! on the kernels of the scratch or on the size of a team. None but [`sample`] allocates, apart from the text of an error.

use rml_kernels_ref::sampling::BLOCK;

use super::chain::{Call, SamplerScratch};
use super::draw::Sparse;
use super::kernels::{Kernels, PIECE};
use super::{SamplerConfig, SplitMix64, Ties};
use crate::exec::Team;
use crate::{Error, Result};

/// The largest top-k that has a sparse distribution; a larger one is better served by the dense form.
pub const SPARSE_TOPK_MAX: usize = 256;

/// Greedy: the index of the largest logit. `logits` is (n_vocab).
///
/// # Errors
/// [`Error::InvalidArgument`] if a logit is NaN or infinite, or there is none.
pub fn argmax(logits: &[f32], ties: Ties) -> Result<u32> {
    let kernels = Kernels::REFERENCE;
    let mut maxima = [0.0; PIECE / BLOCK];
    let mut best: Option<(f32, usize)> = None; // and the piece that has it
    for (i, piece) in logits.chunks(PIECE).enumerate() {
        let maxima = &mut maxima[..piece.len().div_ceil(BLOCK)];
        if !(kernels.block_max)(piece, maxima) {
            return Err(Error::invalid("logits", "one is NaN or infinite; the model or its file is damaged"));
        }
        let max = maxima.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
        if best.is_none_or(|(best, _)| max > best || (max == best && ties == Ties::Higher)) {
            best = Some((max, i));
        }
    }
    let Some((best, i)) = best else {
        return Err(Error::invalid("logits", "there are none"));
    };
    let piece = &logits[i * PIECE..logits.len().min((i + 1) * PIECE)];
    let found = match ties {
        Ties::Lower => piece.iter().position(|&l| l == best),
        Ties::Higher => piece.iter().rposition(|&l| l == best),
    };
    Ok((i * PIECE + found.unwrap_or(0)) as u32)
}

/// Greedy after biases, penalties and suppression: [`argmax`] of the changed logits, in one pass and without copying them.
///
/// Ties go as `config.order` says; its temperature and filters do not matter. `logits` is (n_vocab).
///
/// # Errors
/// [`Error::InvalidArgument`] if a logit is NaN or infinite, their number is not the scratch's, every token is suppressed or a
/// setting is out of range; [`Error::OutOfRange`] for a token outside the vocabulary in `context` or `config`.
pub fn argmax_penalized(logits: &[f32], context: &[u32], config: &SamplerConfig, scratch: &mut SamplerScratch) -> Result<u32> {
    config.validate_for(scratch.n_vocab())?;
    scratch.best_token(&Call { logits, context, config, team: None })
}

/// The distribution that [`sample`] draws from: normalized, one-hot when greedy. `logits` and `out` are (n_vocab).
///
/// # Errors
/// As [`argmax_penalized`]; also if `out` has another length.
pub fn distribution_into(
    logits: &[f32],
    context: &[u32],
    config: &SamplerConfig,
    scratch: &mut SamplerScratch,
    out: &mut [f32],
) -> Result<()> {
    config.validate_for(scratch.n_vocab())?;
    scratch.dense(&Call { logits, context, config, team: None }, out)
}

/// The next token: the whole chain, then a draw. Makes a scratch each time; loops use [`sample_with_scratch`].
///
/// It is the token that [`draw`](super::draw) finds in [`distribution_into`]. Takes one number from `rng`; none when greedy.
///
/// # Errors
/// As [`argmax_penalized`].
pub fn sample(logits: &[f32], context: &[u32], config: &SamplerConfig, rng: &mut SplitMix64) -> Result<u32> {
    sample_with_scratch(logits, context, config, rng, &mut SamplerScratch::new(logits.len())?)
}

/// [`sample`] with scratch that is kept between calls.
///
/// # Errors
/// As [`argmax_penalized`].
pub fn sample_with_scratch(
    logits: &[f32],
    context: &[u32],
    config: &SamplerConfig,
    rng: &mut SplitMix64,
    scratch: &mut SamplerScratch,
) -> Result<u32> {
    config.validate_for(scratch.n_vocab())?;
    scratch.sample(&Call { logits, context, config, team: None }, rng)
}

/// [`sample_with_scratch`] with the passes over the vocabulary shared out over a team. The same token.
///
/// # Errors
/// As [`argmax_penalized`].
pub fn sample_with_scratch_pool(
    logits: &[f32],
    context: &[u32],
    config: &SamplerConfig,
    rng: &mut SplitMix64,
    scratch: &mut SamplerScratch,
    team: &Team,
) -> Result<u32> {
    config.validate_for(scratch.n_vocab())?;
    scratch.sample(&Call { logits, context, config, team: Some(team) }, rng)
}

/// Whether `config` has a sparse distribution: a temperature above 0, and a top-k in `1..=`[`SPARSE_TOPK_MAX`].
pub fn sparse_ok(config: &SamplerConfig) -> bool {
    config.temperature > 0.0 && (1..=SPARSE_TOPK_MAX).contains(&config.top_k)
}

/// [`distribution_into`] as a list by id, of the same probabilities to the bit, for settings that are [`sparse_ok`].
///
/// The pass over the vocabulary is shared out over `team`. `out` is overwritten; it allocates if its capacity is below top-k.
///
/// # Errors
/// As [`argmax_penalized`]; also if `config` is not [`sparse_ok`].
pub fn sparse_distribution_into(
    logits: &[f32],
    context: &[u32],
    config: &SamplerConfig,
    scratch: &mut SamplerScratch,
    team: Option<&Team>,
    out: &mut Sparse,
) -> Result<()> {
    check_sparse(config)?;
    config.validate_for(scratch.n_vocab())?;
    scratch.sparse(&Call { logits, context, config, team }, out)
}

/// That `config` is [`sparse_ok`].
pub(super) fn check_sparse(config: &SamplerConfig) -> Result<()> {
    if sparse_ok(config) {
        return Ok(());
    }
    let reason =
        format!("{} at temperature {} is not sparse; that takes 1 to {SPARSE_TOPK_MAX}, above 0", config.top_k, config.temperature);
    Err(Error::invalid("top-k", reason))
}

/// The probability of `id` in the softmax of `logits` (n_vocab) at `temperature`: how sure the model is of a token.
///
/// The pass over the vocabulary is shared out over `team`; the result is the same, to the bit, without one.
///
/// # Errors
/// [`Error::InvalidArgument`] if a logit is NaN or infinite, their number is not the scratch's, or the temperature is not
/// finite and above 0; [`Error::OutOfRange`] if `id` is outside the vocabulary.
pub fn top1_prob_pool(logits: &[f32], id: u32, temperature: f32, scratch: &mut SamplerScratch, team: Option<&Team>) -> Result<f32> {
    if !(temperature > 0.0 && temperature.is_finite()) {
        return Err(Error::invalid("temperature", format!("{temperature} is not a finite number above 0")));
    }
    let sharpness = SamplerConfig { temperature, ..Default::default() }.sharpness();
    scratch.softmax_of(logits, id, sharpness, team)
}
