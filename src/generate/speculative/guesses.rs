//! What a drafter guesses, and with which distribution it came to each guess.

use crate::Result;
use crate::generate::sampler::{SPARSE_TOPK_MAX, Sampler, SamplerConfig, Sparse, SplitMix64, draw, draw_sparse, sparse_ok};

/// Guesses of one round, in order.
#[derive(Debug)]
pub struct Guesses {
    tokens: Vec<u32>,
    kinds: Vec<Kind>,
    listed: Vec<Sparse>, // a list a guess
    dense: Vec<f32>,     // (most, n_vocab)
    n_vocab: usize,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Certain,
    Listed,
    Dense,
}

/// The distribution that a guess was drawn from.
#[derive(Clone, Copy, Debug)]
pub enum Odds<'a> {
    /// All on the guess: nothing was drawn.
    Certain,
    /// `(id, probability)` by id.
    Listed(&'a [(u32, f32)]),
    /// Every token's probability. (n_vocab)
    Dense(&'a [f32]),
}

impl Guesses {
    /// Room for `most` guesses among the `n_vocab` tokens of the target, and for their distributions under these settings.
    pub(super) fn new(most: usize, n_vocab: usize, config: &SamplerConfig) -> Self {
        let is_listed = sparse_ok(config);
        let n_dense = if is_listed || config.is_greedy() { 0 } else { most * n_vocab };
        Guesses {
            tokens: Vec::with_capacity(most),
            kinds: Vec::with_capacity(most),
            listed: (0..if is_listed { most } else { 0 }).map(|_| Sparse::with_capacity(SPARSE_TOPK_MAX)).collect(),
            dense: vec![0.0; n_dense],
            n_vocab,
            most,
        }
    }

    /// The guesses.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Whether there is no room for another.
    pub fn is_full(&self) -> bool {
        self.tokens.len() == self.most
    }

    /// Adds a guess that nothing was drawn for; one too many, or outside the target's vocabulary, is left out.
    pub fn push(&mut self, id: u32) {
        if !self.is_full() && (id as usize) < self.n_vocab {
            self.tokens.push(id);
            self.kinds.push(Kind::Certain);
        }
    }

    /// Adds a draw from what `sampler` makes of `logits` after `context`, and returns it. `logits` are (n), with n at most the
    /// target's n_vocab: other tokens have no chance.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    ///
    /// # Panics
    /// If there is no room for another guess or for that many logits, or the sampler's temperature and top-k are not those of the
    /// target.
    pub fn draw(&mut self, sampler: &mut Sampler, logits: &[f32], context: &[u32], rng: &mut SplitMix64) -> Result<u32> {
        assert!(!self.is_full() && logits.len() <= self.n_vocab, "room for a guess and its distribution");
        let i = self.tokens.len();
        let (id, kind) = if sampler.config().is_greedy() {
            (sampler.sample(logits, context, rng)?, Kind::Certain)
        } else if sparse_ok(sampler.config()) {
            sampler.sparse_distribution(logits, context, &mut self.listed[i])?;
            (draw_sparse(&self.listed[i], rng)?, Kind::Listed)
        } else {
            let row = &mut self.dense[i * self.n_vocab..][..logits.len()];
            sampler.distribution(logits, context, row)?;
            (draw(row, rng)?, Kind::Dense)
        };
        self.tokens.push(id);
        self.kinds.push(kind);
        Ok(id)
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.kinds.clear();
    }

    /// Leaves out what follows one of these ids: nothing does.
    pub(super) fn end_at(&mut self, ids: &[u32]) {
        if let Some(i) = self.tokens.iter().position(|id| ids.contains(id)) {
            self.tokens.truncate(i + 1);
            self.kinds.truncate(i + 1);
        }
    }

    /// Guess `i`, if there is one.
    pub(super) fn get(&self, i: usize) -> Option<(u32, Odds<'_>)> {
        let odds = match self.kinds.get(i)? {
            Kind::Certain => Odds::Certain,
            Kind::Listed => Odds::Listed(&self.listed[i]),
            Kind::Dense => Odds::Dense(&self.dense[i * self.n_vocab..][..self.n_vocab]),
        };
        Some((self.tokens[i], odds))
    }

    /// Another token in the place of guess `i`, as if it had been certain.
    pub(crate) fn replace(&mut self, i: usize, id: u32) {
        self.tokens[i] = id;
        self.kinds[i] = Kind::Certain;
    }
}
