//! `rml bench`: tokens a second of prefill (`pp`), and of decode (`tg`) after a context of some depth.
//!
//! What is timed is the forward pass alone, as llama.cpp's `llama-bench` does: no sampling, no text, tokens that mean nothing.

mod compare;

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use super::Output;
use super::target;
use crate::decode::{CHUNK, KvType, Rows, State};
use crate::program::{Halt, KV_NAMES, at_least_one, counted, kv_type, thread_count};
use crate::{LoadOptions, Model, Result};

/// Measure tokens a second of prefill and decode
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which model, as in rml-chat
    model: String,

    /// Prompt lengths; 0 leaves prefill out
    #[arg(short = 'p', long = "prompt", value_name = "N,…", value_delimiter = ',', default_value = "512")]
    prompts: Vec<usize>,

    /// Reply lengths; 0 leaves decode out
    #[arg(short = 'n', long = "gen", value_name = "N,…", value_delimiter = ',', default_value = "64")]
    replies: Vec<usize>,

    /// Tokens in the cache before each test
    #[arg(short = 'd', long = "depth", value_name = "N,…", value_delimiter = ',', default_value = "0")]
    depths: Vec<usize>,

    /// Threads; as many as this process may use unless given
    #[arg(short = 't', long, value_name = "N,…", value_delimiter = ',', value_parser = thread_count)]
    threads: Vec<usize>,

    /// Times that each test is repeated
    #[arg(short = 'r', long = "repeat", value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    repeats: usize,

    /// Kernels, several to compare them; RML_BACKEND or auto unless given
    #[arg(long = "backend", value_name = "NAME,…", value_delimiter = ',')]
    backends: Vec<String>,

    /// Types of the cached keys and values
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', default_value = "f16", value_parser = KV_NAMES)]
    kv: Vec<String>,

    /// Measure the backends in turns and print how they relate: those of --backend, else all that can run here
    #[arg(long)]
    compare: bool,

    /// Draw the comparison to this SVG file
    #[arg(long, value_name = "FILE.svg", requires = "compare")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy)]
enum Test {
    Prefill(usize),
    Decode(usize),
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> std::result::Result<(), Halt> {
        if self.compare {
            return self.compare(out);
        }
        let path = target::file(&self.model)?;
        let kinds = self.kinds()?;
        let backends = if self.backends.is_empty() { vec![None] } else { requests(&self.backends).into_iter().map(Some).collect() };
        for backend in &backends {
            for &threads in self.thread_counts() {
                let model = Model::load(&path, &LoadOptions { backend: backend.clone(), threads, ..LoadOptions::default() })?;
                for &(kv_name, kv) in &kinds {
                    for &depth in &self.depths {
                        self.at_depth(&model, kv_name, kv, depth, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Numbers of threads, 0 for as many as there are.
    fn thread_counts(&self) -> &[usize] {
        if self.threads.is_empty() { &[0] } else { &self.threads }
    }

    fn kinds(&self) -> std::result::Result<Vec<(&str, KvType)>, Halt> {
        self.kv.iter().map(|name| Ok((name.as_str(), kv_type(name)?))).collect()
    }

    fn tests(&self) -> impl Iterator<Item = Test> {
        let prefills = self.prompts.iter().map(|&n| Test::Prefill(n));
        prefills.chain(self.replies.iter().map(|&n| Test::Decode(n))).filter(|t| t.n() > 0)
    }

    fn at_depth(&self, model: &Model, kv_name: &str, kv: KvType, depth: usize, out: &mut Output) -> std::result::Result<(), Halt> {
        let longest = self.tests().map(Test::n).max().unwrap_or(0);
        let mut state = prepare(model, kv, depth, longest)?;
        for test in self.tests() {
            let mut rates = Vec::with_capacity(self.repeats);
            for _ in 0..self.repeats {
                state.truncate(depth);
                rates.push(test.rate(model, &mut state)?);
            }
            let median = median(&rates);
            let (threads, backend) = (model.team().n_threads(), chosen(model));
            out.either(
                || {
                    json!({
                        "test": test.name(), "depth": depth, "threads": threads, "backend": backend, "kv": kv_name,
                        "tok_s_median": median, "tok_s": rates,
                    })
                },
                || {
                    let (least, most) = rates.iter().fold((f64::INFINITY, 0f64), |(a, b), &r| (a.min(r), b.max(r)));
                    let (name, test, threads) = (&backend, test.name(), counted(threads, "thread"));
                    format!("{test:8} depth {depth:5}  {threads:10}  {name:12} kv {kv_name}  {median:9.2} tok/s  ({least:.2} to {most:.2})")
                },
            )?;
        }
        Ok(())
    }
}

/// A warm model with `depth` tokens in its cache and room for `longest` more.
fn prepare(model: &Model, kv: KvType, depth: usize, longest: usize) -> Result<State> {
    // Decode at depth 0 starts after one token: there must be something to go on from.
    let mut state = State::new(model, kv, depth.max(1) + longest)?;
    run(model, &mut state, 0, 8.min(depth.max(1)), CHUNK)?;
    state.truncate(0);
    run(model, &mut state, 0, depth, CHUNK)?;
    Ok(state)
}

impl Test {
    fn n(self) -> usize {
        let (Test::Prefill(n) | Test::Decode(n)) = self;
        n
    }

    fn name(self) -> String {
        match self {
            Test::Prefill(n) => format!("pp{n}"),
            Test::Decode(n) => format!("tg{n}"),
        }
    }

    /// Tokens a second, once.
    fn rate(self, model: &Model, state: &mut State) -> Result<f64> {
        if let Test::Decode(_) = self
            && state.cache().is_empty()
        {
            run(model, state, 0, 1, 1)?;
        }
        let chunk = if let Test::Prefill(_) = self { CHUNK } else { 1 };
        let start = Instant::now();
        run(model, state, state.cache().len(), self.n(), chunk)?;
        Ok(self.n() as f64 / start.elapsed().as_secs_f64())
    }
}

/// Runs `n` tokens from position `from` on.
fn run(model: &Model, state: &mut State, from: usize, n: usize, chunk: usize) -> Result<()> {
    let n_vocab = model.config().n_vocab;
    // A stride through the vocabulary: no two rows of the embedding in a row are neighbours.
    let tokens: Vec<u32> = (from..from + n).map(|i| (100 + i * 7919) % n_vocab).map(|id| id as u32).collect();
    for part in tokens.chunks(chunk.min(state.chunk())) {
        state.forward(model, part, Rows::Last)?;
    }
    Ok(())
}

/// The backends whose kernels multiply this model's matrices: one as a rule.
fn chosen(model: &Model) -> String {
    let mut owners: Vec<&str> = model.choice().formats().iter().filter_map(|f| f.kernel.id().split(':').next()).collect();
    owners.sort_unstable();
    owners.dedup();
    owners.join("+")
}

/// The list of `--backend` by request: `slot=backend` belongs to the name before it.
fn requests(words: &[String]) -> Vec<String> {
    let mut requests: Vec<String> = Vec::new();
    for word in words {
        match requests.last_mut() {
            Some(last) if word.contains('=') => *last = format!("{last},{word}"),
            _ => requests.push(word.clone()),
        }
    }
    requests
}

pub(super) fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_go_with_the_backend_before_them() {
        let words = ["auto", "avx2", "attend=ref", "add=ref", "ref"].map(str::to_owned);
        assert_eq!(requests(&words), ["auto", "avx2,attend=ref,add=ref", "ref"]);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[7.0])), (2.0, 2.5, 7.0));
    }
}
