//! The chain of steps from logits to the tokens that may be drawn.
//!
//! Both orders run as one: weights fall as ranks do, so top-k, top-p and min-p each keep a run of the best tokens, and what
//! differs is only the sum that top-p is a share of, and which of equal logits ranks first. Weights are relative to the best
//! token, which has exactly 1; their sums are sums of whole numbers, the same in any order and on any number of threads.

use rml_backends::KernelTable;
use rml_kernels_ref::sampling::{BLOCK, FIXED_BITS, MAX_WEIGHTS, fixed};

use super::candidates::{self, Candidate};
use super::draw::{self, Sparse};
use super::kernels::{CHUNK, Kernels, PIECE, spread};
use super::maxima::Maxima;
use super::patches::Patches;
use super::{ChainOrder, SamplerConfig, SplitMix64};
use crate::exec::Team;
use crate::{Error, Result};

/// Everything that sampling writes to, made once for a vocabulary: about 36 bytes a token.
#[derive(Debug)]
pub struct SamplerScratch {
    n_vocab: usize,
    kernels: Kernels,
    patches: Patches,
    maxima: Maxima,
    weights: Vec<f32>,          // (n_vocab) relative to the best
    sums: Vec<u64>,             // (n_chunks) of weights
    candidates: Vec<Candidate>, // room for n_vocab
    kept: Sparse,               // room for n_vocab
}

/// Which tokens may be drawn.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// This one alone.
    One(u32),
    /// Those in `kept`, with their probabilities.
    Listed,
    /// All; their weights are in `weights` and sum to this.
    Every(u64),
}

/// What is given, and to whom the work is given: the arguments of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) logits: &'a [f32],
    pub(super) context: &'a [u32],
    pub(super) config: &'a SamplerConfig,
    pub(super) team: Option<&'a Team>,
}

impl SamplerScratch {
    /// Room for `n_vocab` tokens, with the reference kernels.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty vocabulary, [`Error::OutOfRange`] for one above 2^20 tokens.
    pub fn new(n_vocab: usize) -> Result<Self> {
        if n_vocab == 0 {
            return Err(Error::invalid("vocabulary", "it is empty"));
        }
        if n_vocab > MAX_WEIGHTS {
            return Err(Error::out_of_range("vocabulary", format!("{n_vocab} tokens; at most {MAX_WEIGHTS} can be sampled from")));
        }
        Ok(SamplerScratch {
            n_vocab,
            kernels: Kernels::REFERENCE,
            patches: Patches::new(n_vocab),
            maxima: Maxima::new(n_vocab),
            weights: vec![0.0; n_vocab],
            sums: vec![0; n_vocab.div_ceil(CHUNK)],
            candidates: Vec::with_capacity(n_vocab),
            kept: Vec::with_capacity(n_vocab),
        })
    }

    /// Takes the kernels of a table. Results are the same with any.
    pub fn with_kernels(self, table: &KernelTable) -> Self {
        SamplerScratch { kernels: table.into(), ..self }
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    pub(super) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Room for a weight of each token (n_vocab), and for a number of each chunk of [`CHUNK`] of them (n_chunks).
    pub(super) fn room(&mut self) -> (&mut [f32], &mut [u64]) {
        (&mut self.weights, &mut self.sums)
    }

    /// The best token after biases, penalties and suppression.
    pub(super) fn best_token(&mut self, call: &Call<'_>) -> Result<u32> {
        let best = self.best(call)?;
        Ok(self.maxima.locate(best, call.config.order.ties(), call.logits, &self.patches))
    }

    /// Draws from what the chain leaves; takes one number from `rng` unless greedy.
    pub(super) fn sample(&mut self, call: &Call<'_>, rng: &mut SplitMix64) -> Result<u32> {
        match self.filter(call)? {
            Kept::One(id) => Ok(id),
            Kept::Listed => draw::walk(self.kept.iter().copied(), rng),
            Kept::Every(total) => {
                let share = share(total);
                self.weights.iter_mut().for_each(|w| *w *= share);
                draw::draw_with(&self.kernels, &self.weights, rng)
            }
        }
    }

    /// The distribution that [`sample`](Self::sample) draws from. `out` is (n_vocab).
    pub(super) fn dense(&mut self, call: &Call<'_>, out: &mut [f32]) -> Result<()> {
        if out.len() != self.n_vocab {
            return Err(Error::invalid("distribution", format!("room for {} tokens, of {}", out.len(), self.n_vocab)));
        }
        match self.filter(call)? {
            Kept::One(id) => {
                out.fill(0.0);
                out[id as usize] = 1.0;
            }
            Kept::Listed => {
                out.fill(0.0);
                self.kept.iter().for_each(|&(id, p)| out[id as usize] = p);
            }
            Kept::Every(total) => {
                let share = share(total);
                out.iter_mut().zip(&self.weights).for_each(|(out, w)| *out = w * share);
            }
        }
        Ok(())
    }

    /// As [`dense`](Self::dense), as a list by id. `call.config` has a top-k, or is greedy.
    pub(super) fn sparse(&mut self, call: &Call<'_>, out: &mut Sparse) -> Result<()> {
        out.clear();
        match self.filter(call)? {
            Kept::One(id) => out.push((id, 1.0)),
            Kept::Listed => out.extend_from_slice(&self.kept),
            // A top-k of the whole vocabulary.
            Kept::Every(total) => {
                let share = share(total);
                let drawn = self.weights.iter().enumerate().filter(|&(_, &w)| w > 0.0);
                out.extend(drawn.map(|(id, w)| (id as u32, w * share)));
            }
        }
        Ok(())
    }

    /// The weight of `id` relative to all, at one temperature and without any other step.
    pub(super) fn softmax_of(&mut self, logits: &[f32], id: u32, sharpness: f32, team: Option<&Team>) -> Result<f32> {
        self.check_len(logits)?;
        if id as usize >= self.n_vocab {
            return Err(Error::out_of_range("token", format!("{id} is not in a vocabulary of {}", self.n_vocab)));
        }
        self.maxima.observe(&self.kernels, logits, team)?;
        self.patches.clear();
        let best = self.maxima.best(&self.kernels)?;
        let total = self.weigh_all(logits, best, sharpness, team);
        Ok(self.weights[id as usize] * share(total))
    }

    fn check_len(&self, logits: &[f32]) -> Result<()> {
        if logits.len() == self.n_vocab {
            return Ok(());
        }
        Err(Error::invalid("logits", format!("{} for a vocabulary of {}", logits.len(), self.n_vocab)))
    }

    /// Checks the logits, patches them, and finds the best of them.
    fn best(&mut self, call: &Call<'_>) -> Result<f32> {
        self.check_len(call.logits)?;
        self.maxima.observe(&self.kernels, call.logits, call.team)?;
        self.patches.set(call.config, call.logits, call.context)?;
        self.maxima.patch(&self.kernels, call.logits, &self.patches);
        self.maxima.best(&self.kernels)
    }

    /// Runs the chain.
    fn filter(&mut self, call: &Call<'_>) -> Result<Kept> {
        let Call { logits, config, team, .. } = *call;
        let best = self.best(call)?;
        if config.is_greedy() {
            return Ok(Kept::One(self.maxima.locate(best, config.order.ties(), logits, &self.patches)));
        }
        let sharpness = config.sharpness();
        let top_k = config.top_k_of(self.n_vocab);
        let has_top_p = config.top_p < 1.0;
        // Top-p's whole is the whole vocabulary, unless top-k has already cut it down.
        let of_all = top_k.is_none() || (has_top_p && config.order == ChainOrder::MinPFirst);
        let all = if of_all { self.weigh_all(logits, best, sharpness, team) } else { 0 };
        match top_k {
            None if !has_top_p && config.min_p == 0.0 => return Ok(Kept::Every(all)),
            None => self.keep_by_weight(call, all),
            Some(k) => self.keep_top_k(call, k, best, sharpness, of_all.then_some(all)),
        }
        let total = self.kept.iter().map(|&(_, w)| fixed(w)).sum();
        let share = share(total);
        self.kept.iter_mut().for_each(|(_, w)| *w *= share);
        Ok(Kept::Listed)
    }

    /// Fills `weights`, and sums them.
    fn weigh_all(&mut self, logits: &[f32], best: f32, sharpness: f32, team: Option<&Team>) -> u64 {
        let Self { kernels, patches, weights, sums, .. } = self;
        patches.weigh(kernels, best, sharpness);
        let (kernels, patches) = (&*kernels, &*patches);
        spread(team, (weights, CHUNK), (sums, 1), |i, weights, sum| {
            let logits = &logits[i * CHUNK..][..weights.len()];
            sum[0] = 0;
            for (j, (logits, weights)) in logits.chunks(PIECE).zip(weights.chunks_mut(PIECE)).enumerate() {
                (kernels.exp_weights)(logits, best, sharpness, weights);
                patches.overwrite((i * CHUNK + j * PIECE) / BLOCK, weights);
                sum[0] += (kernels.weight_sum)(weights, 1.0);
            }
        });
        sums.iter().sum()
    }

    /// Top-k, top-p and min-p. `all` is the sum of all weights where that is what top-p is a share of.
    fn keep_top_k(&mut self, call: &Call<'_>, k: usize, best: f32, sharpness: f32, all: Option<u64>) {
        let Call { logits, config, .. } = *call;
        let ties = config.order.ties();
        let Self { kernels, patches, maxima, candidates, kept, .. } = self;
        candidates.clear();
        maxima.each_of_the_best(kernels, k, logits, patches, |id, logit| candidates.push(Candidate::new(id, logit, 0.0, ties)));
        candidates::keep_best(candidates, k);
        for part in candidates.chunks_mut(BLOCK) {
            let (mut logits, mut weights) = ([best; BLOCK], [0.0; BLOCK]);
            logits.iter_mut().zip(&*part).for_each(|(l, c)| *l = c.logit());
            (kernels.exp_weights)(&logits, best, sharpness, &mut weights);
            part.iter_mut().zip(weights).for_each(|(c, w)| c.weight = w);
        }
        if config.top_p < 1.0 {
            let whole = all.unwrap_or_else(|| candidates.iter().map(|c| fixed(c.weight)).sum());
            candidates::keep_nucleus(candidates, target(config.top_p, whole));
        }
        kept.clear();
        kept.extend(candidates.iter().filter(|c| c.weight >= config.min_p).map(|c| (c.id(ties), c.weight)));
        kept.sort_unstable_by_key(|&(id, _)| id);
    }

    /// Top-p and min-p, from the weights of the whole vocabulary, which sum to `all`.
    fn keep_by_weight(&mut self, call: &Call<'_>, all: u64) {
        let Call { logits, config, .. } = *call;
        let ties = config.order.ties();
        let Self { kernels, patches, weights, candidates, kept, n_vocab, .. } = self;
        let mut least = config.min_p;
        // What ranks below the nucleus is known to rank below this key.
        let mut last = 0;
        if config.top_p < 1.0 {
            let target = target(config.top_p, all);
            least = least.max(negligible((all - target) / *n_vocab as u64));
            candidates.clear();
            kernels.each_at_least(weights, least, |id| {
                candidates.push(Candidate::new(id, patches.logit(id, logits), weights[id], ties));
            });
            let n = candidates.len();
            candidates::keep_nucleus(candidates, target);
            if let Some(c) = candidates.last().filter(|_| candidates.len() < n) {
                (least, last) = (c.weight, c.key());
            }
        }
        // A second look instead of a sort by id.
        kept.clear();
        kernels.each_at_least(weights, least, |id| {
            if last == 0 || candidates::key(id, patches.logit(id, logits), ties) >= last {
                kept.push((id as u32, weights[id]));
            }
        });
    }
}

/// The sum at which top-p stops.
fn target(top_p: f32, whole: u64) -> u64 {
    ((f64::from(top_p) * whole as f64).ceil() as u64).min(whole)
}

/// The factor that makes weights with this sum probabilities.
fn share(total: u64) -> f32 {
    ((1_u64 << FIXED_BITS) as f64 / total as f64) as f32
}

/// A weight below which none counts for more than `units`, so that all of them together cannot be missed by the nucleus.
fn negligible(units: u64) -> f32 {
    let exact = units as f64 / (1_u64 << FIXED_BITS) as f64;
    let near = exact as f32;
    if f64::from(near) > exact { near.next_down() } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negligible_weights_count_for_no_more_than_said() {
        let mut rng = SplitMix64::new(5);
        for _ in 0..100_000 {
            let units = rng.next_u64() >> (22 + rng.below(42));
            assert!(fixed(negligible(units)) <= units, "{units}");
        }
        assert_eq!(negligible(0), 0.0);
    }
}
