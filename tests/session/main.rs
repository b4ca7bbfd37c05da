//! Sessions: whatever was done before, a reply is the one of a fresh run.

mod edges;
mod edits;
mod saved;
mod shared;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rml::decode::KvType;
use rml::generate::sampler::SamplerConfig;
use rml::generate::{GenerationStats, StopReason};
use rml::{LoadOptions, Model, Session, SessionOptions};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models").join(name)
}

/// A tiny model of random weights: 269 tokens.
fn model() -> &'static Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    MODEL.get_or_init(|| {
        let options = LoadOptions { threads: 2, ..LoadOptions::default() };
        Arc::new(Model::load(&fixture("q4_1.gguf"), &options).expect("the tiny model"))
    })
}

/// Draws that are all but even, so that a reply depends on every bit.
fn options(kv: KvType, context_size: usize) -> SessionOptions {
    let sampler = SamplerConfig { temperature: 2.0, repetition_penalty: 1.1, ..SamplerConfig::default() };
    SessionOptions { sampler, context_size, kv, chunk: 16, seed: 1, ..SessionOptions::default() }
}

fn session(kv: KvType, context_size: usize) -> Session {
    Session::new(model(), options(kv, context_size)).expect("a session")
}

/// Ids that mean nothing.
fn tokens(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + seed * 101) % 250 + 3).collect()
}

/// A reply, and what was done for it.
fn reply(session: &mut Session, prompt: &[u32], limit: usize) -> (Vec<u32>, GenerationStats) {
    let mut ids = Vec::new();
    let stats = session.generate(prompt, limit, |id| {
        ids.push(id);
        ControlFlow::Continue(())
    });
    (ids, stats.expect("a reply"))
}

/// The bits of the logits of the last pass.
fn bits(session: &Session) -> Vec<u32> {
    session.logits().iter().map(|x| x.to_bits()).collect()
}

fn assert_stop(stats: &GenerationStats, stop: StopReason, generated: usize) {
    assert_eq!((stats.stop, stats.generated_tokens), (stop, generated));
}
