//! No round allocates, once the first ones have made what all need.

mod counting;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rml::generate::sampler::SamplerConfig;
use rml::generate::speculative::{DraftLength, DraftModel, Drafter, Lookup};
use rml::generate::{SessionOptions, SpeculativeSession};
use rml::{LoadOptions, Model};

use counting::allocations;

/// Tokens of the first reply, which warms up, and of the second, which is counted.
const REPLY: usize = 120;

// One test, as the counter is everyone's.
#[test]
fn a_round_allocates_nothing_after_the_first_reply() {
    let load = |name: &str, beside: Option<&Model>| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/models/{name}.gguf"));
        let options = LoadOptions { threads: 2, ..LoadOptions::default() };
        Arc::new(beside.map_or_else(|| Model::load(&path, &options), |other| Model::load_beside(&path, &options, other)).expect("a model"))
    };
    let target = load("q4_1", None);
    let other = load("q8_0", Some(&target));
    let greedy = SamplerConfig::default();
    let listed = SamplerConfig { temperature: 0.7, top_k: 40, top_p: 0.95, min_p: 0.05, repetition_penalty: 1.1, ..greedy.clone() };
    let dense = SamplerConfig { temperature: 1.0, ..greedy.clone() };
    for sampler in [greedy, listed, dense] {
        let options = SessionOptions { sampler, context_size: 512, ..SessionOptions::default() };
        let model = |draft| -> Box<dyn Drafter> { Box::new(DraftModel::new(draft, &target, &options).expect("a draft")) };
        let lookup = || -> Box<dyn Drafter> { Box::new(Lookup::new(options.context_size).expect("an index")) };
        for length in [DraftLength::Fixed(5), DraftLength::UpTo(5)] {
            for drafter in [model(&target), model(&other), lookup()] {
                let what = format!("{length:?} {drafter:?}");
                let mut session = SpeculativeSession::new(&target, options.clone(), drafter, length).expect("a session");
                let mut context = vec![72, 105, 72, 105];
                for counted in [false, true] {
                    let mut reply = Vec::with_capacity(REPLY);
                    let (mut first, mut last) = (0, 0);
                    let stats = session.generate(&context, REPLY, |id| {
                        last = allocations();
                        if reply.is_empty() {
                            first = last;
                        }
                        reply.push(id);
                        ControlFlow::Continue(())
                    });
                    let stats = stats.expect("a reply");
                    assert!(stats.rounds > 10 && (stats.drafted > 10 || length == DraftLength::UpTo(5)), "{stats:?}");
                    assert!(!counted || first == last, "{} allocations in {} rounds; {what}", last - first, stats.rounds);
                    context.extend(&reply);
                }
            }
        }
    }
}
