//! Drawn replies: the first three tokens together follow the target's distribution, whoever guessed.
//!
//! Expected probabilities come from the target's logits, context by context, without a session.

use std::collections::HashMap;

use super::*;
use rml::decode::{KvType, Rows, State};
use rml::generate::sampler::Sampler;

const REPLIES: usize = 12_000;

/// The probability of every start of three tokens that has any.
fn starts(target: &Model, sampler: &SamplerConfig, prompt: &[u32]) -> HashMap<[u32; 3], f64> {
    let mut sampler = Sampler::new(sampler.clone(), N_VOCAB).expect("a sampler");
    let mut state = State::new(target, KvType::F16, prompt.len() + 3).expect("a state");
    let mut next = |context: &[u32]| -> Vec<(u32, f64)> {
        state.truncate(0);
        let logits = state.forward(target, context, Rows::Last).expect("a pass");
        let mut p = vec![0.0; N_VOCAB];
        sampler.distribution(&logits[..N_VOCAB], context, &mut p).expect("a distribution");
        (0..).zip(p).filter(|(_, p)| *p > 0.0).map(|(id, p)| (id, f64::from(p))).collect()
    };
    let mut all = HashMap::new();
    let mut context = prompt.to_vec();
    for (a, p_a) in next(&context.clone()) {
        context.truncate(prompt.len());
        context.push(a);
        for (b, p_b) in next(&context.clone()) {
            context.truncate(prompt.len() + 1);
            context.push(b);
            for (c, p_c) in next(&context.clone()) {
                all.insert([a, b, c], p_a * p_b * p_c);
            }
        }
    }
    all
}

/// The chi-square statistic as a deviate of the normal distribution (Wilson and Hilferty). Starts that are expected less than
/// 10 times are taken together.
fn deviate(counts: &HashMap<[u32; 3], usize>, expected: &HashMap<[u32; 3], f64>) -> f64 {
    let n = counts.values().sum::<usize>() as f64;
    let (mut rest, mut rest_p, mut chi2, mut bins) = (0.0, 0.0, 0.0, 0);
    for (start, p) in expected {
        let count = counts.get(start).copied().unwrap_or(0) as f64;
        if p * n < 10.0 {
            (rest, rest_p) = (rest + count, rest_p + p);
        } else {
            chi2 += (count - p * n).powi(2) / (p * n);
            bins += 1;
        }
    }
    if rest_p * n >= 10.0 {
        chi2 += (rest - rest_p * n).powi(2) / (rest_p * n);
        bins += 1;
    }
    assert!(bins > 10, "{bins} bins say little");
    let k = f64::from(bins - 1);
    ((chi2 / k).cbrt() - (1.0 - 2.0 / (9.0 * k))) / (2.0 / (9.0 * k)).sqrt()
}

/// The fixture with another weight for each component of the last norm: its best tokens are mostly the same, with other
/// probabilities.
fn relative(folder: &Path) -> Arc<Model> {
    load(&altered(&fixture("f32"), folder, &[], |name, shape, bytes| {
        let numbers = bytes.as_chunks().0.iter().zip([0.7_f32, 1.1, 0.9, 1.2].iter().cycle());
        let changed = numbers.flat_map(|(x, factor)| (f32::from_le_bytes(*x) * factor).to_le_bytes()).collect();
        (name == "output_norm.weight").then(|| (shape.to_vec(), changed))
    }))
}

/// Settings of each form of distribution: lists, and a probability for each token. Few starts are likely in both.
fn settings() -> [(&'static str, SamplerConfig); 2] {
    let base = SamplerConfig { temperature: 1.0, ..SamplerConfig::default() };
    [("lists", SamplerConfig { top_k: 5, ..base.clone() }), ("dense", SamplerConfig { min_p: 0.15, ..base })]
}

/// Draws replies with a round of `n` guesses in each, after a cache that holds most of the prompt, and returns how often each came.
fn count(with: &mut SpeculativeSession, prompt: &[u32], n: usize) -> (HashMap<[u32; 3], usize>, usize, usize) {
    let (mut counts, mut drafted, mut accepted) = (HashMap::new(), 0, 0);
    for _ in 0..REPLIES {
        let (left, stats) = guessed(with, prompt, n + 2, go_on);
        let stats = stats.expect("a reply");
        (drafted, accepted) = (drafted + stats.drafted, accepted + stats.accepted);
        *counts.entry([left.reply[0], left.reply[1], left.reply[2]]).or_default() += 1;
    }
    (counts, drafted, accepted)
}

/// Deviates above 4.5 come once in 300,000 sets of draws. The seeds are fixed.
#[test]
fn three_tokens_together_follow_the_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = load(&fixture("f32"));
    let relative = relative(folder.path());
    let prompt = &prompts()[2];
    for (form, sampler) in settings() {
        let expected = starts(&target, &sampler, prompt);
        let options = SessionOptions { sampler, seed: 21, ..options() };
        for name in ["a relative", "the model itself", "lookup"] {
            for n in [2, 3] {
                let drafter = match name {
                    "a relative" => draft(&relative, &target, &options),
                    "the model itself" => draft(&target, &target, &options),
                    _ => lookup(&options),
                };
                let mut with = session(&target, &options, drafter, DraftLength::Fixed(n));
                let (counts, drafted, accepted) = count(&mut with, prompt, n);
                assert!(counts.keys().all(|start| expected.contains_key(start)), "{form}, {name}: what has no probability came");
                let z = deviate(&counts, &expected);
                assert!(z < 4.5, "{form}, {n} guesses of {name}: {z} deviations");
                let share = accepted as f64 / drafted as f64;
                let usual = match name {
                    "a relative" => 0.2..0.97,
                    "the model itself" => 0.99..1.01,
                    _ => 0.001..0.9,
                };
                assert!(usual.contains(&share), "{form}, {name}: {share} of the guesses are kept");
            }
        }
    }
}

/// The test would see it if guesses were kept too easily: those of the relative, all of them.
#[test]
fn the_test_sees_guesses_that_are_always_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = load(&fixture("f32"));
    let relative = relative(folder.path());
    let prompt = &prompts()[2];
    for (_, sampler) in settings() {
        let expected = starts(&target, &sampler, prompt);
        let options = SessionOptions { sampler, seed: 21, ..options() };
        let mut with = session(&relative, &options, lookup(&options), DraftLength::Fixed(2));
        let counts = count(&mut with, prompt, 2).0;
        let known = counts.into_iter().filter(|(start, _)| expected.contains_key(start)).collect();
        assert!(deviate(&known, &expected) > 10.0);
    }
}
