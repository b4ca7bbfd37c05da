//! A drafter that is made to be wrong.

use crate::Result;
use crate::generate::Interrupt;
use crate::generate::sampler::SplitMix64;
use crate::generate::speculative::{Drafter, Guesses, Outlook};

/// Leaves each guess as it is with the probability `right`, else replaces it by the next token of the vocabulary.
#[derive(Debug)]
pub(super) struct Spoiled {
    inner: Box<dyn Drafter>,
    right: f64,
    n_vocab: u32,
    rng: SplitMix64,
}

impl Spoiled {
    pub(super) fn new(inner: Box<dyn Drafter>, right: f64, n_vocab: usize, seed: u64) -> Self {
        Spoiled { inner, right, n_vocab: n_vocab as u32, rng: SplitMix64::new(seed) }
    }
}

impl Drafter for Spoiled {
    fn begin(&mut self, prompt: &[u32]) -> Result<()> {
        self.inner.begin(prompt)
    }

    fn outlook(&mut self, context: &[u32]) -> Outlook {
        // The inner drafter's own first guess is not what will be guessed.
        Outlook { free: None, ..self.inner.outlook(context) }
    }

    fn guess(&mut self, context: &[u32], n: usize, guesses: &mut Guesses, interrupt: &Interrupt) -> Result<()> {
        self.inner.guess(context, n, guesses, interrupt)?;
        for i in 0..guesses.tokens().len() {
            if self.rng.next_f64() >= self.right {
                guesses.replace(i, (guesses.tokens()[i] + 1) % self.n_vocab);
            }
        }
        Ok(())
    }

    fn keep(&mut self, len: usize) {
        self.inner.keep(len);
    }

    fn reseed(&mut self, seed: u64) {
        self.inner.reseed(seed);
    }

    fn relative_cost(&self) -> f64 {
        self.inner.relative_cost()
    }
}
