//! Speculation: guess a few tokens, check them all in one pass, keep what the model would have said.
//!
//! A round takes guesses `d1 … dk` from a [`Drafter`] that drew them from `q1 … qk`, and runs the token that is pending and
//! the guesses as one pass, which gives `p1 … pk+1`. Guess `i` is kept with probability `min(1, pi(di) / qi(di))`; the first
//! that is not is replaced by a draw from `max(0, pi - qi)`, and the round ends; if all are kept, one more token is drawn from
//! `pk+1`. What comes is distributed as without guesses (Leviathan et al. 2023, <https://arxiv.org/abs/2211.17192>; Chen et al.
//! 2023, <https://arxiv.org/abs/2302.01318>). As logits are the same bits in a pass of any size, a greedy reply is the same
//! to the token; so is any reply with guesses that nothing was drawn for, such as those of [`Lookup`].

mod draft_model;
mod drafter;
mod guesses;
mod judge;
mod lookup;
mod pace;
mod suffixes;
mod vocabulary;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub use draft_model::DraftModel;
pub use drafter::{CLASSES, Drafter, Outlook};
pub use guesses::{Guesses, Odds};
pub use lookup::Lookup;

use super::{GenerationStats, Interrupt, Session, SessionOptions, StopReason};
use crate::decode::Rows;
use crate::model::Model;
use crate::{Error, Result};
use judge::Judge;
use pace::{Pace, Round};

/// The most guesses of a round.
pub const MOST_GUESSES: usize = 16;

/// How many guesses a round has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftLength {
    /// Always so many, where they can be had. Replies with a draft model can then be repeated from their seed.
    Fixed(usize),
    /// As many as promise the most tokens a second by what was measured so far, up to this.
    UpTo(usize),
}

impl DraftLength {
    /// The most guesses of a round.
    pub fn most(self) -> usize {
        let (DraftLength::Fixed(n) | DraftLength::UpTo(n)) = self;
        n
    }
}

/// What a call of [`SpeculativeSession::generate`] did.
#[derive(Clone, Copy, Debug)]
pub struct SpeculativeStats {
    /// What a call of [`Session::generate`] tells.
    pub generation: GenerationStats,
    /// Passes of the target over a pending token and the guesses after it, if any.
    pub rounds: usize,
    /// Guesses made.
    pub drafted: usize,
    /// Guesses kept.
    pub accepted: usize,
}

impl SpeculativeStats {
    /// Tokens reported for each round; the first of a reply, which the prompt gives, is of none. 0 without rounds.
    pub fn tokens_a_round(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { self.generation.generated_tokens.saturating_sub(1) as f64 / self.rounds as f64 }
    }
}

/// A [`Session`] that guesses ahead. Stop ids, limits, callbacks, interrupts, errors and what is cached afterwards are those
/// of a session, also where they come in the midst of a round.
#[derive(Debug)]
pub struct SpeculativeSession {
    session: Session,
    rounds: Rounds,
}

impl SpeculativeSession {
    /// A session with an empty cache, and who guesses.
    ///
    /// # Errors
    /// As [`Session::new`]; also [`Error::InvalidArgument`] if the length is not in `1..=`[`MOST_GUESSES`].
    pub fn new(model: &Arc<Model>, options: SessionOptions, drafter: Box<dyn Drafter>, length: DraftLength) -> Result<Self> {
        let most = length.most();
        if !(1..=MOST_GUESSES).contains(&most) {
            return Err(Error::invalid("draft tokens", format!("{most}; it must be 1 to {MOST_GUESSES}")));
        }
        let mut session = Session::new(model, options)?;
        let n_vocab = model.config().n_vocab;
        session.state.reserve_rows(model, (most + 1).min(session.state.chunk()));
        let rounds = Rounds {
            pace: Pace::new(most, drafter.relative_cost()),
            drafter,
            length,
            guesses: Guesses::new(most, n_vocab, session.sampler.config()),
            judge: Judge::new(&session.sampler, n_vocab),
            row: 0,
            round: None,
            counts: Counts::default(),
        };
        Ok(SpeculativeSession { session, rounds })
    }

    /// The session that guesses are judged with.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The tokens whose keys and values are cached.
    pub fn cached(&self) -> &[u32] {
        self.session.cached()
    }

    /// A handle that ends replies from another thread: between tokens, between chunks of a long prompt, between guesses.
    pub fn interrupt(&self) -> Interrupt {
        self.session.interrupt()
    }

    /// The logits that the last token was drawn from. (n_vocab)
    pub fn logits(&self) -> &[f32] {
        let n_vocab = self.session.model.config().n_vocab;
        &self.session.state.logits()[self.rounds.row * n_vocab..][..n_vocab]
    }

    /// As [`Session::restore`].
    ///
    /// # Errors
    /// As [`Session::restore`].
    pub fn restore(&mut self, path: &Path) -> Result<Vec<u8>> {
        self.session.restore(path)
    }

    /// Starts all draws anew.
    pub fn reseed(&mut self, seed: u64) {
        self.session.reseed(seed);
        self.rounds.drafter.reseed(seed);
    }

    /// As [`Session::generate`], and tells what guessing did.
    ///
    /// # Errors
    /// As [`Session::generate`]; also [`Error::Forward`] for a draft model whose logits are no numbers.
    pub fn generate(&mut self, prompt: &[u32], limit: usize, mut on_token: impl FnMut(u32) -> ControlFlow<()>) -> Result<SpeculativeStats> {
        let rounds = &mut self.rounds;
        rounds.counts = Counts::default();
        rounds.row = 0;
        let generation = self.session.reply(prompt, limit, |session, generated| rounds.decode(session, limit, generated, &mut on_token))?;
        let Counts { rounds, drafted, accepted } = rounds.counts;
        Ok(SpeculativeStats { generation, rounds, drafted, accepted })
    }
}

/// Everything of a speculative session but the session.
#[derive(Debug)]
struct Rounds {
    drafter: Box<dyn Drafter>,
    length: DraftLength,
    pace: Pace,
    guesses: Guesses, // whose logits wait to be judged, after those of the token before them
    judge: Judge,
    row: usize, // of the logits that were judged last
    round: Option<Round>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    rounds: usize,
    drafted: usize,
    accepted: usize,
}

impl Rounds {
    fn decode(
        &mut self,
        session: &mut Session,
        limit: usize,
        generated: &mut usize,
        on_token: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<StopReason> {
        // The prompt has left logits to judge, and no guesses.
        self.guesses.clear();
        self.round = None;
        self.drafter.begin(&session.cached)?;
        loop {
            match self.judge(session, limit, generated, on_token)? {
                ControlFlow::Break(stop) => return Ok(stop),
                ControlFlow::Continue(pending) => self.run(session, pending, limit - *generated)?,
            }
        }
    }

    /// Guesses what follows `pending` and runs both, for a reply that may have `left` more tokens.
    fn run(&mut self, session: &mut Session, pending: u32, left: usize) -> Result<()> {
        let n_before = session.cached.len();
        session.cached.push(pending);
        let done = self.guess(session, left).and_then(|round| {
            session.cached.extend_from_slice(self.guesses.tokens());
            let start = Instant::now();
            let rows = if round.n == 0 { Rows::Last } else { Rows::All };
            session.state.forward(&session.model, &session.cached[n_before..], rows)?;
            Ok(Round { pass_seconds: start.elapsed().as_secs_f64(), ..round })
        });
        match done {
            Ok(round) => {
                self.counts.rounds += 1;
                self.counts.drafted += round.n;
                self.round = Some(round);
                Ok(())
            }
            Err(error) => {
                session.cached.truncate(n_before);
                self.drafter.keep(n_before);
                Err(error)
            }
        }
    }

    /// Guesses what follows the context. The round is still to be run.
    fn guess(&mut self, session: &Session, left: usize) -> Result<Round> {
        self.guesses.clear();
        let outlook = self.drafter.outlook(&session.cached);
        // All must fit into the pass, the cache, and with the token that comes after them into the reply.
        let fitting = (left - 1).min(session.context_size() - session.cached.len()).min(session.state.chunk() - 1);
        let most = if session.interrupt.is_set() { 0 } else { fitting.min(outlook.most).min(self.length.most()) };
        let n = match self.length {
            DraftLength::Fixed(_) => most,
            DraftLength::UpTo(_) => self.pace.choose(&outlook, most),
        };
        let start = Instant::now();
        if n > 0 {
            self.drafter.guess(&session.cached, n, &mut self.guesses, &session.interrupt)?;
            self.guesses.end_at(&session.stop_ids);
        }
        Ok(Round { outlook, n: self.guesses.len(), guess_seconds: start.elapsed().as_secs_f64(), pass_seconds: 0.0 })
    }

    /// Judges the guesses and cuts both caches to what was kept: why the reply ends, or the token that is pending.
    fn judge(
        &mut self,
        session: &mut Session,
        limit: usize,
        generated: &mut usize,
        on_token: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<StopReason, u32>> {
        let first = session.cached.len() - self.guesses.len();
        let mut verdicts = Verdicts::default();
        let outcome = self.judge_in_order(session, first, &mut verdicts, limit, generated, on_token);
        let len = first + self.row;
        session.cached.truncate(len);
        session.state.truncate(len);
        self.drafter.keep(len);
        self.counts.accepted += verdicts.kept;
        if let Some(round) = self.round.take() {
            self.pace.record(&round, verdicts.judged, verdicts.kept);
            if let (0, Some(free), Some(id)) = (round.n, round.outlook.free, verdicts.first) {
                self.pace.record_free(&round.outlook, free == id);
            }
        }
        outcome
    }

    /// Draws a token a row, after `first` tokens and those kept, until one is not the guess, and reports each.
    fn judge_in_order(
        &mut self,
        session: &mut Session,
        first: usize,
        verdicts: &mut Verdicts,
        limit: usize,
        generated: &mut usize,
        on_token: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<StopReason, u32>> {
        let n_vocab = session.model.config().n_vocab;
        self.row = 0;
        loop {
            // The steps of `Session::decode`, with a row and a cache of its length for each token.
            if session.interrupt.is_set() {
                return Ok(ControlFlow::Break(StopReason::Interrupted));
            }
            let len = first + self.row;
            let logits = &session.state.logits()[self.row * n_vocab..][..n_vocab];
            let guess = self.guesses.get(self.row);
            verdicts.judged += usize::from(guess.is_some());
            let (id, is_guess) = (self.judge)
                .next(&mut session.sampler, logits, &session.cached[..len], guess, &mut session.rng)
                .map_err(|e| Error::Forward { position: len - 1, reason: e.to_string() })?;
            verdicts.kept += usize::from(is_guess);
            verdicts.first = verdicts.first.or(Some(id));
            if session.stop_ids.contains(&id) {
                return Ok(ControlFlow::Break(StopReason::StopId));
            }
            *generated += 1;
            if on_token(id).is_break() {
                return Ok(ControlFlow::Break(StopReason::Callback));
            }
            if *generated == limit {
                return Ok(ControlFlow::Break(StopReason::Limit));
            }
            if len == session.context_size() {
                return Ok(ControlFlow::Break(StopReason::ContextFull));
            }
            if !is_guess {
                return Ok(ControlFlow::Continue(id));
            }
            self.row += 1;
        }
    }
}

/// What became of the guesses of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Verdicts {
    judged: usize,
    kept: usize,
    first: Option<u32>, // the token that came first, guess or not
}
