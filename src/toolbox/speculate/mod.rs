//! `rml speculate`: tokens a second with guesses and without, and that both give the same reply.
//!
//! Plain replies and replies with guesses take turns, so that what else the machine does meets both. Each begins in a session
//! of its own, so what is learnt about times and chances is learnt within the reply.

mod spoiled;
mod tasks;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::Output;
use super::bench::median;
use super::target::{self, Target};
use crate::decode::{Rows, State};
use crate::generate::sampler::SamplerConfig;
use crate::generate::speculative::{DraftLength, DraftModel, Drafter, Lookup, MOST_GUESSES, SpeculativeStats};
use crate::generate::{Session, SessionOptions, SpeculativeSession};
use crate::program::{Halt, at_least_one};
use crate::{LoadOptions, Model, Result};
use spoiled::Spoiled;
use tasks::{Task, task};

/// Measure what guessing ahead brings, as a table
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which model, as in rml-chat
    model: String,

    /// Who guesses: a model, or lookup
    #[arg(long, value_name = "MODEL|lookup", default_value = "lookup")]
    draft: String,

    /// The most tokens guessed at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    draft_tokens: usize,

    /// Always guess so many, whether it pays or not
    #[arg(long)]
    fixed: bool,

    /// Leave so many guesses of a hundred as they are, and spoil the others
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    right: Vec<u8>,

    /// What the replies are about: prose, copy, or a JSON file of prompts
    #[arg(long, value_name = "TASK,…", value_delimiter = ',', default_value = "prose")]
    task: Vec<String>,

    /// Tokens of a reply
    #[arg(short = 'n', long = "gen", value_name = "N", default_value_t = 200, value_parser = at_least_one)]
    n: usize,

    /// Draw replies at this temperature rather than take the likeliest token; with lookup alone, as a draft model changes draws
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temp: f32,

    /// Go on where the model would end its reply
    #[arg(long)]
    past_end: bool,

    /// Times that each reply is repeated
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    repeat: usize,

    #[command(flatten)]
    target: Target,
}

/// What was measured of one task.
struct Row {
    plain: f64,   // tokens a second
    guessed: f64, // tokens a second
    alone: f64,   // of the draft model alone; 0 for lookup
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    tokens: usize, // of rounds
    rounds: usize,
    drafted: usize,
    accepted: usize,
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> std::result::Result<(), Halt> {
        if self.draft_tokens > MOST_GUESSES {
            return Err(Halt::Usage(format!("--draft-tokens {}: at most {MOST_GUESSES} can be guessed at a time", self.draft_tokens)));
        }
        if self.temp != 0.0 && self.draft != "lookup" {
            let reason =
                format!("--temp {}: replies drawn with a draft model are others than those without, so they cannot be compared", self.temp);
            return Err(Halt::Usage(reason));
        }
        let model = Arc::new(self.target.load(&self.model)?);
        let draft = match self.draft.as_str() {
            "lookup" => None,
            name => {
                let options = LoadOptions { backend: self.target.backend.clone(), ..LoadOptions::default() };
                Some(Arc::new(Model::load_beside(&target::file(name)?, &options, &model)?))
            }
        };
        let passes = passes(&model, self.draft_tokens + 1)?;
        let relative = passes.iter().map(|s| format!("{:.2}", s / passes[0])).collect::<Vec<_>>().join(", ");
        out.either(
            || json!({"pass_seconds": passes}),
            || {
                format!(
                    "Passes over 1 to {} tokens take, relative to the first: {relative}.\n\n\
                     | task | right | cost | plain tok/s | guessing tok/s | speed | drafted | accepted | tokens a round |\n\
                     | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
                    passes.len()
                )
            },
        )?;
        for name in &self.task {
            let task = task(name, &model)?;
            for &right in &self.right {
                let row = self.measure(&model, draft.as_ref(), &task, right)?;
                row.print(&task.name, right, out)?;
            }
        }
        Ok(())
    }

    fn measure(&self, model: &Arc<Model>, draft: Option<&Arc<Model>>, task: &Task, right: u8) -> std::result::Result<Row, Halt> {
        let (mut plain, mut guessed, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        let mut counts = Counts::default();
        for repeat in 0..self.repeat {
            let (mut n, mut seconds) = (0, [0.0; 3]);
            for (i, prompt) in task.prompts.iter().enumerate() {
                let stop_ids = if self.past_end { Vec::new() } else { model.tokenizer().end_ids().to_vec() };
                let sampler = SamplerConfig { temperature: self.temp, ..SamplerConfig::default() };
                let options = SessionOptions { context_size: prompt.len() + self.n, stop_ids, sampler, ..SessionOptions::default() };
                let (expected, took) = self.plain(model, &options, prompt)?;
                let drafter = self.drafter(model, draft, &options, right, (repeat * task.prompts.len() + i) as u64)?;
                let (reply, stats) = self.guessed(model, &options, drafter, prompt)?;
                if reply != expected {
                    let at = reply.iter().zip(&expected).take_while(|(a, b)| a == b).count();
                    return Err(Halt::Failed(format!("{}: reply {i} with guesses is another from token {at} on", task.name)));
                }
                n += reply.len();
                seconds[0] += took;
                seconds[1] += stats.generation.decode_seconds;
                if let Some(draft) = draft {
                    seconds[2] += self.plain(draft, &options, prompt)?.1 * reply.len() as f64 / expected.len().max(1) as f64;
                }
                counts.add(&stats);
            }
            let rate = |seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
            plain.push(rate(seconds[0]));
            guessed.push(rate(seconds[1]));
            alone.push(rate(seconds[2]));
        }
        Ok(Row { plain: median(&plain), guessed: median(&guessed), alone: median(&alone), counts })
    }

    /// A reply, and the time of its decode.
    fn plain(&self, model: &Arc<Model>, options: &SessionOptions, prompt: &[u32]) -> Result<(Vec<u32>, f64)> {
        let mut reply = Vec::with_capacity(self.n);
        let stats = Session::new(model, options.clone())?.generate(prompt, self.n, |id| {
            reply.push(id);
            ControlFlow::Continue(())
        })?;
        Ok((reply, stats.decode_seconds))
    }

    fn guessed(
        &self,
        model: &Arc<Model>,
        options: &SessionOptions,
        drafter: Box<dyn Drafter>,
        prompt: &[u32],
    ) -> Result<(Vec<u32>, SpeculativeStats)> {
        let length = if self.fixed { DraftLength::Fixed(self.draft_tokens) } else { DraftLength::UpTo(self.draft_tokens) };
        let mut reply = Vec::with_capacity(self.n);
        let stats = SpeculativeSession::new(model, options.clone(), drafter, length)?.generate(prompt, self.n, |id| {
            reply.push(id);
            ControlFlow::Continue(())
        })?;
        Ok((reply, stats))
    }

    fn drafter(
        &self,
        model: &Arc<Model>,
        draft: Option<&Arc<Model>>,
        options: &SessionOptions,
        right: u8,
        seed: u64,
    ) -> Result<Box<dyn Drafter>> {
        let drafter: Box<dyn Drafter> = match draft {
            Some(draft) => Box::new(DraftModel::new(draft, model, options)?),
            None => Box::new(Lookup::new(options.context_size)?),
        };
        let n_vocab = model.config().n_vocab;
        Ok(if right == 100 { drafter } else { Box::new(Spoiled::new(drafter, f64::from(right) / 100.0, n_vocab, seed)) })
    }
}

impl Counts {
    fn add(&mut self, stats: &SpeculativeStats) {
        self.tokens += stats.generation.generated_tokens.saturating_sub(1);
        self.rounds += stats.rounds;
        self.drafted += stats.drafted;
        self.accepted += stats.accepted;
    }
}

impl Row {
    fn print(&self, task: &str, right: u8, out: &mut Output) -> std::result::Result<(), Halt> {
        let Row { plain, guessed, alone, counts: Counts { tokens, rounds, drafted, accepted } } = *self;
        let a_round = if rounds == 0 { 0.0 } else { tokens as f64 / rounds as f64 };
        let speed = guessed / plain;
        out.either(
            || {
                json!({
                    "task": task, "right": right, "plain_tok_s": plain, "guessing_tok_s": guessed, "speed": speed, "draft_tok_s": alone,
                    "rounds": rounds, "drafted": drafted, "accepted": accepted, "tokens_a_round": a_round,
                })
            },
            || {
                let cost = if alone > 0.0 { format!("{:.1}", alone / plain) } else { "-".into() };
                let share = if drafted == 0 { "-".into() } else { format!("{:.0} %", 100.0 * accepted as f64 / drafted as f64) };
                format!("| {task} | {right} % | {cost} | {plain:.2} | {guessed:.2} | {speed:.2} | {drafted} | {share} | {a_round:.2} |")
            },
        )
    }
}

/// The least seconds of a pass over 1, 2, … `most` tokens after a short context.
fn passes(model: &Model, most: usize) -> Result<Vec<f64>> {
    const DEPTH: usize = 32;
    const REPEATS: usize = 5;
    let mut state = State::new(model, SessionOptions::default().kv, DEPTH + most)?;
    let n_vocab = model.config().n_vocab;
    // A stride through the vocabulary: no two rows of the embedding in a row are neighbours.
    let tokens: Vec<u32> = (0..DEPTH + most).map(|i| ((100 + i * 7919) % n_vocab) as u32).collect();
    state.forward(model, &tokens[..DEPTH], Rows::Last)?;
    let mut least = vec![f64::INFINITY; most];
    for _ in 0..REPEATS {
        for (i, least) in least.iter_mut().enumerate() {
            state.truncate(DEPTH);
            let start = Instant::now();
            state.forward(model, &tokens[DEPTH..=DEPTH + i], Rows::All)?;
            *least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least)
}
