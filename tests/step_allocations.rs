//! No step of decode, no token drawn and no chunk of prefill after the first allocates, on any thread.

mod counting;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rml::decode::{KvType, Rows, State};
use rml::generate::sampler::SamplerConfig;
use rml::model::registry;
use rml::{LoadOptions, Model, Session, SessionOptions};

use counting::allocations;

/// Positions: more than one span of keys, so that both ways of sharing out a token's attention are taken.
const CAPACITY: usize = 600;
/// Where decode starts: the last steps are beyond the first span.
const DEPTH: usize = 500;
const CHUNK: usize = 100;

/// The models: of floats and of blocks, and of families whose layers have what others do not.
const FILES: [&str; 6] = ["models/q4_1", "models/f32", "families/gpt-oss", "families/gemma3", "families/olmo2", "families/mixtral-q8_0"];

/// Ids that mean nothing.
fn tokens(model: &Model, n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 37 % (model.config().n_vocab - 16) + 4) as u32).collect()
}

/// Allocations of every chunk of a prompt, then of every step behind it.
fn of_passes(model: &Model, kv: KvType) -> (Vec<usize>, Vec<usize>) {
    let mut state = State::with_chunk(model, kv, CAPACITY, CHUNK).expect("a state");
    let prompt = tokens(model, DEPTH);
    let mut counts = (Vec::with_capacity(CAPACITY), Vec::with_capacity(CAPACITY));
    for (i, chunk) in prompt.chunks(CHUNK).chain(tokens(model, 60).chunks(1)).enumerate() {
        let before = allocations();
        state.forward(model, chunk, Rows::Last).expect("a pass");
        let n = allocations() - before;
        if i < DEPTH / CHUNK { &mut counts.0 } else { &mut counts.1 }.push(n);
    }
    counts
}

/// The allocator's count at every token of a reply.
fn at_tokens(model: &Arc<Model>, kv: KvType, temperature: f32) -> Vec<usize> {
    let sampler = SamplerConfig { temperature, repetition_penalty: 1.1, top_k: 40, min_p: 0.05, ..SamplerConfig::default() };
    let options = SessionOptions { sampler, context_size: CAPACITY, kv, chunk: CHUNK, ..SessionOptions::default() };
    let mut session = Session::new(model, options).expect("a session");
    let mut counts = Vec::with_capacity(CAPACITY);
    session
        .generate(&tokens(model, DEPTH), 40, |_| {
            counts.push(allocations());
            ControlFlow::Continue(())
        })
        .expect("a reply");
    counts
}

// One test, as the counter is everyone's.
#[test]
fn steps_tokens_and_chunks_allocate_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let registry = registry().expect("a registry");
    let runnable = registry.backends().iter().filter(|r| r.refusal.is_none()).map(|r| r.backend.name());
    let settings = runnable.flat_map(|backend| FILES.map(|file| [(backend, file, 1), (backend, file, 2)]));
    let mut wrong = Vec::new();
    // A team whose model is dropped ends when it gets to it, and its threads may allocate then.
    let mut kept = Vec::new();
    for (backend, file, threads) in settings.flatten() {
        let options = LoadOptions { backend: Some(backend.to_owned()), threads, ..LoadOptions::default() };
        let model = Arc::new(Model::load(&folder.join(format!("{file}.gguf")), &options).expect("a model"));
        kept.push(model.clone());
        // Threads make what they keep for themselves at their start: both have been here when each waited for the other.
        let all = std::sync::Barrier::new(threads);
        model.team().pass().run(threads, &|_, _| _ = all.wait());
        for kv in KvType::ALL {
            let what = format!("{file} on {backend}, {threads} threads, kv {}", kv.name());
            let (chunks, steps) = of_passes(&model, kv);
            assert!(chunks.len() == DEPTH / CHUNK && steps.len() == 60);
            if chunks[1..].iter().any(|&n| n > 0) {
                wrong.push(format!("{what}: chunks allocate {chunks:?} times"));
            }
            if steps.iter().any(|&n| n > 0) {
                wrong.push(format!("{what}: steps allocate {steps:?} times"));
            }
            for temperature in [0.0, 0.8] {
                let counts = at_tokens(&model, kv, temperature);
                let n_tokens = counts.len();
                assert_eq!(n_tokens, 40, "{what}: there is no stop id");
                if counts[0] != counts[n_tokens - 1] {
                    wrong.push(format!(
                        "{what}: {n_tokens} tokens at temperature {temperature} allocate {} times",
                        counts[n_tokens - 1] - counts[0]
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
