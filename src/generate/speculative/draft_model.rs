//! A smaller model that guesses.

use std::sync::Arc;

use super::drafter::{Drafter, Outlook};
use super::guesses::Guesses;
use super::vocabulary::check_vocabulary;
use crate::decode::{Rows, State};
use crate::generate::sampler::{Sampler, SamplerConfig, SplitMix64};
use crate::generate::{Interrupt, SessionOptions};
use crate::model::Model;
use crate::{Error, Result};

/// The chance that a guess is kept, before it is measured.
const CHANCE: f64 = 0.7;
/// Sets the draws of the draft apart from those of the target.
const STREAM: u64 = 0x5bd1_e995_97f4_a7c5;

/// A draft model with a cache of its own. It draws as the target does: with the same settings, from its own logits.
#[derive(Debug)]
pub struct DraftModel {
    model: Arc<Model>,
    state: State,
    cached: Vec<u32>, // the tokens in the cache
    sampler: Sampler,
    rng: SplitMix64,
    stop_ids: Vec<u32>,
    n_shared: usize, // tokens that both vocabularies have
    relative_cost: f64,
}

impl DraftModel {
    /// A draft for a session with `target`, made with the same `options`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the vocabularies differ; as [`Session::new`](crate::Session::new) otherwise.
    pub fn new(model: &Arc<Model>, target: &Model, options: &SessionOptions) -> Result<Self> {
        check_vocabulary(target, model)?;
        let n_shared = model.config().n_vocab.min(target.config().n_vocab);
        Ok(DraftModel {
            sampler: Sampler::new(shared_settings(&options.sampler, n_shared), n_shared)?.with_kernels(model.table()),
            state: State::with_chunk(model, options.kv, options.context_size, options.chunk)?,
            cached: Vec::with_capacity(options.context_size),
            rng: stream(options.seed),
            stop_ids: options.stop_ids.clone(),
            n_shared,
            relative_cost: multiplied_bytes(model) as f64 / multiplied_bytes(target) as f64,
            model: model.clone(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    fn run(&mut self, tokens: &[u32]) -> Result<()> {
        self.state.forward(&self.model, tokens, Rows::Last)?;
        self.cached.extend_from_slice(tokens);
        Ok(())
    }

    /// Takes in what is new in `context`, so that its last logits are there; false if interrupted.
    fn catch_up(&mut self, context: &[u32], interrupt: &Interrupt) -> Result<bool> {
        let from = self.cached.len().min(context.len() - 1);
        self.keep(from);
        let chunk = self.state.chunk();
        for part in context[from..].chunks(chunk) {
            if interrupt.is_set() {
                return Ok(false);
            }
            self.run(part)?;
        }
        Ok(true)
    }
}

impl Drafter for DraftModel {
    fn begin(&mut self, prompt: &[u32]) -> Result<()> {
        let shared = self.cached.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        self.keep(shared);
        Ok(())
    }

    fn outlook(&mut self, context: &[u32]) -> Outlook {
        let new = &context[self.cached.len().min(context.len())..];
        // A token in the padding of the target's vocabulary cannot be taken in.
        let known = new.iter().all(|&id| (id as usize) < self.n_shared);
        Outlook { class: 0, chance: CHANCE, most: if known { usize::MAX } else { 0 }, behind: new.len().max(1), free: None }
    }

    fn guess(&mut self, context: &[u32], n: usize, guesses: &mut Guesses, interrupt: &Interrupt) -> Result<()> {
        if !self.catch_up(context, interrupt)? {
            return Ok(());
        }
        for i in 0..n {
            let position = self.cached.len() - 1;
            let logits = &self.state.logits()[..self.n_shared];
            let id = guesses
                .draw(&mut self.sampler, logits, &self.cached, &mut self.rng)
                .map_err(|e| Error::Forward { position, reason: format!("draft model: {e}") })?;
            if i + 1 == n || guesses.is_full() || self.stop_ids.contains(&id) || interrupt.is_set() {
                break;
            }
            self.run(&[id])?;
        }
        Ok(())
    }

    fn keep(&mut self, len: usize) {
        self.cached.truncate(len);
        self.state.truncate(len);
    }

    fn reseed(&mut self, seed: u64) {
        self.rng = stream(seed);
    }

    fn relative_cost(&self) -> f64 {
        self.relative_cost
    }
}

/// The draft's own draws: those of the target must not depend on them.
fn stream(seed: u64) -> SplitMix64 {
    SplitMix64::new(SplitMix64::new(seed ^ STREAM).next_u64())
}

/// Settings without what they say of tokens that the draft does not have.
fn shared_settings(config: &SamplerConfig, n_shared: usize) -> SamplerConfig {
    let mut config = config.clone();
    config.suppress.retain(|&id| (id as usize) < n_shared);
    config.logit_bias.retain(|&(id, _)| (id as usize) < n_shared);
    config
}

/// Bytes that a step of decode reads.
fn multiplied_bytes(model: &Model) -> usize {
    let weights = model.weights();
    let used = model.config().experts.map_or(1, |experts| experts.used);
    let of_layers = weights.layers.iter().flat_map(|l| {
        let ffn = l.ffn.iter().take(used).flat_map(|f| [&f.gate, &f.up, &f.down]);
        [&l.q, &l.k, &l.v, &l.output].into_iter().chain(&l.router).chain(ffn)
    });
    of_layers.chain([&weights.head]).map(|m| m.bytes()).sum()
}
