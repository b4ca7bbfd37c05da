//! Sessions that guess ahead against sessions that do not: tiny models of random weights (see `fixtures/README.md`).

mod distribution;
mod drafts;
mod ends;
mod equality;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rml::generate::sampler::{SamplerConfig, SplitMix64};
use rml::generate::speculative::{DraftLength, DraftModel, Drafter, Guesses, Lookup, Outlook};
use rml::generate::{Interrupt, Session, SessionOptions, SpeculativeSession, SpeculativeStats, StopReason};
use rml::model::gguf::{Array, Gguf, TensorType, Value, Writer};
use rml::{LoadOptions, Model, Result};

/// The tokens of every fixture.
const N_VOCAB: usize = 269;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/models/{name}.gguf"))
}

fn load(path: &Path) -> Arc<Model> {
    Arc::new(Model::load(path, &LoadOptions { threads: 1, ..LoadOptions::default() }).expect("a model"))
}

fn options() -> SessionOptions {
    SessionOptions { context_size: 256, ..SessionOptions::default() }
}

fn warm(seed: u64) -> SessionOptions {
    SessionOptions { sampler: SamplerConfig { temperature: 1.0, top_k: 40, ..SamplerConfig::default() }, seed, ..options() }
}

/// Prompts with and without repetition.
fn prompts() -> Vec<Vec<u32>> {
    let mut rng = SplitMix64::new(12);
    let random: Vec<u32> = (0..20).map(|_| rng.below(N_VOCAB as u64) as u32).collect();
    vec![vec![65], random.clone(), [&random[..], &random[..]].concat(), (0..30).map(|i| 70 + i % 3).collect()]
}

/// What a reply was, and what it left behind.
#[derive(Debug, PartialEq)]
struct Left {
    reply: Vec<u32>,
    ended: std::result::Result<StopReason, String>,
    cached: Vec<u32>,
    logits: Vec<u32>, // bits
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Until `on_token`, which is told how many tokens there were, breaks.
fn plain(session: &mut Session, prompt: &[u32], limit: usize, mut on_token: impl FnMut(usize) -> ControlFlow<()>) -> Left {
    let mut reply = Vec::new();
    let ended = session.generate(prompt, limit, |id| {
        reply.push(id);
        on_token(reply.len())
    });
    let ended = ended.map(|stats| {
        assert_eq!(stats.generated_tokens, reply.len());
        stats.stop
    });
    Left { reply, ended: ended.map_err(|e| e.to_string()), cached: session.cached().to_vec(), logits: bits(session.logits()) }
}

/// As [`plain`], with guesses.
fn guessed(
    session: &mut SpeculativeSession,
    prompt: &[u32],
    limit: usize,
    mut on_token: impl FnMut(usize) -> ControlFlow<()>,
) -> (Left, Option<SpeculativeStats>) {
    let mut reply = Vec::new();
    let ended = session.generate(prompt, limit, |id| {
        reply.push(id);
        on_token(reply.len())
    });
    let stats = ended.as_ref().ok().copied();
    if let Some(stats) = stats {
        assert_eq!(stats.generation.generated_tokens, reply.len());
        assert!(stats.accepted <= stats.drafted, "{stats:?}");
    }
    let ended = ended.map(|stats| stats.generation.stop).map_err(|e| e.to_string());
    (Left { reply, ended, cached: session.cached().to_vec(), logits: bits(session.logits()) }, stats)
}

fn go_on(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Guesses what it was told the sequence is, but each place that `wrong` names.
#[derive(Debug)]
struct Oracle {
    sequence: Vec<u32>,
    wrong: fn(usize) -> bool,
    interrupts: bool,
}

impl Oracle {
    /// Knows the prompt and the plain reply to it.
    fn new(prompt: &[u32], reply: &[u32], wrong: fn(usize) -> bool) -> Box<Self> {
        Box::new(Oracle { sequence: [prompt, reply].concat(), wrong, interrupts: false })
    }
}

impl Drafter for Oracle {
    fn begin(&mut self, _: &[u32]) -> Result<()> {
        Ok(())
    }

    fn outlook(&mut self, context: &[u32]) -> Outlook {
        let most = if self.sequence.starts_with(context) { self.sequence.len() - context.len() } else { 0 };
        Outlook { class: 0, chance: 0.9, most, behind: 1, free: None }
    }

    fn guess(&mut self, context: &[u32], n: usize, guesses: &mut Guesses, interrupt: &Interrupt) -> Result<()> {
        for at in context.len()..context.len() + n {
            guesses.push((self.sequence[at] + u32::from((self.wrong)(at))) % N_VOCAB as u32);
        }
        if self.interrupts {
            interrupt.set();
        }
        Ok(())
    }

    fn keep(&mut self, _: usize) {}

    fn reseed(&mut self, _: u64) {}

    fn relative_cost(&self) -> f64 {
        0.0
    }
}

fn draft(model: &Arc<Model>, target: &Model, options: &SessionOptions) -> Box<dyn Drafter> {
    Box::new(DraftModel::new(model, target, options).expect("a draft"))
}

fn lookup(options: &SessionOptions) -> Box<dyn Drafter> {
    Box::new(Lookup::new(options.context_size).expect("an index"))
}

fn session(model: &Arc<Model>, options: &SessionOptions, drafter: Box<dyn Drafter>, length: DraftLength) -> SpeculativeSession {
    SpeculativeSession::new(model, options.clone(), drafter, length).expect("a session")
}

/// A tensor that a copy of a model gets in place of its own: dimensions and bytes.
type Changed = (Vec<usize>, Vec<u8>);

/// A copy of a model with some of its metadata and tensors changed.
fn altered(
    original: &Path,
    folder: &Path,
    metadata: &[(&str, Value)],
    change: impl Fn(&str, &[usize], &[u8]) -> Option<Changed>,
) -> PathBuf {
    let file = Gguf::open(original).expect("the original");
    let mut writer = Writer::new();
    file.metadata().iter().for_each(|(key, value)| writer.set(key, value.clone()));
    metadata.iter().for_each(|(key, value)| writer.set(key, value.clone()));
    let mut all = Vec::new();
    for t in file.tensors() {
        let bytes = file.bytes(t);
        let (shape, bytes) = change(&t.name, &t.shape, bytes).unwrap_or_else(|| (t.shape.clone(), bytes.to_vec()));
        writer.tensor(&t.name, TensorType(t.kind.0), &shape).expect("a sound tensor");
        all.push(bytes);
    }
    let path = folder.join("altered.gguf");
    let mut out = std::fs::File::create(&path).expect("a new file");
    let bytes = |i: usize, out: &mut Vec<u8>| {
        out.extend_from_slice(&all[i]);
        Ok(())
    };
    writer.write(&path, &mut out, bytes).expect("a written file");
    path
}

/// The spellings of the fixtures' tokens.
fn spellings() -> Vec<String> {
    let file = Gguf::open(&fixture("f32")).expect("the fixture");
    file.metadata().strings("tokenizer.ggml.tokens").expect("strings").expect("tokens").to_vec()
}

fn strings(list: Vec<String>) -> Value {
    Value::Array(Array::Strings(list.iter().map(String::as_str).collect()))
}
