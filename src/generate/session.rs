//! One conversation: its cache, its sampler, and the loop from prompt to reply.

mod saved;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::sampler::{Sampler, SamplerConfig, SplitMix64};
use crate::decode::{CHUNK, KvType, Rows, State};
use crate::model::Model;
use crate::{Error, Result};

/// How to make a [`Session`].
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The sampler's settings.
    pub sampler: SamplerConfig,
    /// Where the sampler's draws start.
    pub seed: u64,
    /// Positions of the cache: prompt and reply together.
    pub context_size: usize,
    /// Tokens that end a reply. They are neither reported nor counted.
    pub stop_ids: Vec<u32>,
    /// Type of the cache.
    pub kv: KvType,
    /// Tokens that go through the layers at once in prefill. The reply does not depend on it.
    pub chunk: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            sampler: SamplerConfig::default(),
            seed: 0,
            context_size: 4096,
            stop_ids: Vec::new(),
            kv: KvType::F16,
            chunk: CHUNK,
        }
    }
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model gave a stop id.
    StopId,
    /// The callback said so.
    Callback,
    /// The token limit was reached.
    Limit,
    /// The cache is full.
    ContextFull,
    /// [`Interrupt::set`] was called.
    Interrupted,
}

/// What a call of [`Session::generate`] did.
#[derive(Clone, Copy, Debug)]
pub struct GenerationStats {
    /// Prompt tokens that were run.
    pub prompt_tokens: usize,
    /// Prompt tokens whose cache was there already.
    pub reused_tokens: usize,
    /// Tokens reported.
    pub generated_tokens: usize,
    /// Wall-clock time of the prompt.
    pub prefill_seconds: f64,
    /// Wall-clock time of the reply.
    pub decode_seconds: f64,
    /// Why it ended.
    pub stop: StopReason,
}

/// Ends a reply from another thread: between tokens, or between chunks of a long prompt.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the reply at hand to end. A request made while no reply runs is forgotten when the next begins.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the reply at hand was asked to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A conversation with a model. Several may share one model at the same time.
#[derive(Debug)]
pub struct Session {
    pub(super) model: Arc<Model>,
    pub(super) state: State,
    pub(super) cached: Vec<u32>, // the tokens in the cache
    pub(super) sampler: Sampler,
    pub(super) rng: SplitMix64,
    pub(super) stop_ids: Vec<u32>,
    pub(super) interrupt: Interrupt,
}

impl Session {
    /// A session with an empty cache.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a context of 0 or a setting out of range; [`Error::OutOfRange`] if memory is short.
    pub fn new(model: &Arc<Model>, options: SessionOptions) -> Result<Self> {
        let SessionOptions { sampler, seed, context_size, stop_ids, kv, chunk } = options;
        let sampler = Sampler::new(sampler, model.config().n_vocab)?.with_kernels(model.table());
        let state = State::with_chunk(model, kv, context_size, chunk)?;
        let cached = Vec::with_capacity(context_size);
        Ok(Session { model: model.clone(), state, cached, sampler, rng: SplitMix64::new(seed), stop_ids, interrupt: Interrupt::default() })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The tokens whose keys and values are cached.
    pub fn cached(&self) -> &[u32] {
        &self.cached
    }

    /// Positions of the cache.
    pub fn context_size(&self) -> usize {
        self.state.cache().capacity()
    }

    /// A handle that ends replies from another thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// The logits of the last pass. (n_vocab)
    pub fn logits(&self) -> &[f32] {
        &self.state.logits()[..self.model.config().n_vocab]
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.cached.clear();
        self.state.truncate(0);
    }

    /// Starts the sampler's draws anew.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = SplitMix64::new(seed);
    }

    /// Replies to `prompt`, the whole context so far, and hands each token to `on_token`.
    ///
    /// What the cache shares with the prompt is kept, all but the last token at most; the rest is run in chunks. Then, a
    /// token at a time: a stop id ends the reply before it is reported; the token is reported; the callback, the limit and
    /// a full cache may end it. The last reported token may not have been run: the next call's prompt brings it again.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty prompt, a limit of 0 or an unknown id; [`Error::OutOfRange`] for a prompt
    /// longer than the cache; [`Error::Forward`] for logits that are no numbers. The session stays usable.
    pub fn generate(&mut self, prompt: &[u32], limit: usize, mut on_token: impl FnMut(u32) -> ControlFlow<()>) -> Result<GenerationStats> {
        self.reply(prompt, limit, |this, generated| this.decode(limit, generated, &mut on_token))
    }

    /// Runs the prompt, and leaves the reply to `decode`, which counts the tokens it reports.
    pub(super) fn reply(
        &mut self,
        prompt: &[u32],
        limit: usize,
        decode: impl FnOnce(&mut Self, &mut usize) -> Result<StopReason>,
    ) -> Result<GenerationStats> {
        self.interrupt.clear();
        let reused_tokens = self.begin(prompt, limit)?;
        let start = Instant::now();
        let mut stats = GenerationStats {
            prompt_tokens: 0,
            reused_tokens,
            generated_tokens: 0,
            prefill_seconds: 0.0,
            decode_seconds: 0.0,
            stop: StopReason::Interrupted,
        };
        let finished = self.prefill(&prompt[reused_tokens..])?;
        stats.prompt_tokens = self.cached.len() - reused_tokens;
        stats.prefill_seconds = start.elapsed().as_secs_f64();
        if finished {
            let start = Instant::now();
            stats.stop = decode(self, &mut stats.generated_tokens)?;
            stats.decode_seconds = start.elapsed().as_secs_f64();
        }
        Ok(stats)
    }

    /// Checks the call and cuts the cache to what it shares with the prompt.
    fn begin(&mut self, prompt: &[u32], limit: usize) -> Result<usize> {
        if prompt.is_empty() {
            return Err(Error::invalid("prompt", "it is empty; there must be at least one token"));
        }
        if limit == 0 {
            return Err(Error::invalid("token limit", "0; it must be at least 1"));
        }
        let (n, size) = (prompt.len(), self.context_size());
        if n > size {
            return Err(Error::out_of_range(
                "prompt",
                format!("{n} tokens are more than the context of {size}; shorten it or use a larger context"),
            ));
        }
        let n_vocab = self.model.config().n_vocab;
        if let Some(id) = prompt.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(Error::invalid("prompt", format!("id {id} is not below the vocabulary's {n_vocab}")));
        }
        let shared = self.cached.iter().zip(prompt).take_while(|(a, b)| a == b).count().min(n - 1);
        self.cached.truncate(shared);
        self.state.truncate(shared);
        Ok(shared)
    }

    /// Runs tokens in chunks; false if it was interrupted.
    fn prefill(&mut self, tokens: &[u32]) -> Result<bool> {
        for chunk in tokens.chunks(self.state.chunk()) {
            if self.interrupt.is_set() {
                return Ok(false);
            }
            self.run(chunk)?;
        }
        Ok(true)
    }

    fn run(&mut self, tokens: &[u32]) -> Result<()> {
        self.state.forward(&self.model, tokens, Rows::Last)?;
        self.cached.extend_from_slice(tokens);
        Ok(())
    }

    fn decode(&mut self, limit: usize, generated: &mut usize, on_token: &mut impl FnMut(u32) -> ControlFlow<()>) -> Result<StopReason> {
        loop {
            if self.interrupt.is_set() {
                return Ok(StopReason::Interrupted);
            }
            let position = self.cached.len() - 1;
            let logits = &self.state.logits()[..self.model.config().n_vocab];
            let id =
                self.sampler.sample(logits, &self.cached, &mut self.rng).map_err(|e| Error::Forward { position, reason: e.to_string() })?;
            if self.stop_ids.contains(&id) {
                return Ok(StopReason::StopId);
            }
            *generated += 1;
            if on_token(id).is_break() {
                return Ok(StopReason::Callback);
            }
            if *generated == limit {
                return Ok(StopReason::Limit);
            }
            if self.cached.len() == self.context_size() {
                return Ok(StopReason::ContextFull);
            }
            self.run(&[id])?;
        }
    }
}
