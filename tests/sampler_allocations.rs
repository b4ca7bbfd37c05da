//! No sampling call allocates, once its scratch is made.

mod counting;

use rml::exec::Team;
use rml::generate::sampler::*;

use counting::allocations;

/// That `f` allocates nothing, not even when it is first called.
fn assert_allocates_nothing(call: &str, what: &str, f: impl FnOnce()) {
    let before = allocations();
    f();
    let n = allocations() - before;
    assert_eq!(n, 0, "{call} allocates {n} times; {what}");
}

// One test, as the counter is everyone's.
#[test]
fn sampling_allocates_nothing_after_construction() {
    let n = 40_000;
    let flat = vec![1.0_f32; n];
    let mut rng = SplitMix64::new(3);
    let rough: Vec<f32> = (0..n).map(|_| rng.next_f64() as f32 * 20.0).collect();
    let context: Vec<u32> = (0..5000).map(|_| rng.below(n as u64) as u32).collect();
    let team = Team::new(2).unwrap();
    // Each task waits for the other, so both threads are there and have made what threads make at their start.
    let both = std::sync::Barrier::new(2);
    team.pass().run(2, &|_, _| _ = both.wait());
    let lists = SamplerConfig { suppress: vec![1, 2, 3], logit_bias: vec![(5, 2.0), (9, -1.0)], ..Default::default() };
    let penalties = SamplerConfig { repetition_penalty: 1.1, presence_penalty: 0.5, frequency_penalty: 0.1, ..lists };
    for order in [ChainOrder::HuggingFace, ChainOrder::MinPFirst] {
        for (temperature, top_k, top_p, min_p) in [
            (0.0, 0, 1.0, 0.0),
            (0.7, 40, 0.95, 0.05),
            (0.7, 0, 0.95, 0.05),
            (5.0, 0, 0.99, 0.0),
            (1.0, 0, 1.0, 0.0),
            (1.0, n / 2, 0.9, 0.0),
        ] {
            let config = SamplerConfig { order, temperature, top_k, top_p, min_p, ..penalties.clone() };
            let what = format!("{config:?}");
            for logits in [&rough, &flat] {
                let mut sampler = Sampler::new(config.clone(), n).unwrap();
                let mut scratch = SamplerScratch::new(n).unwrap();
                let (mut p, mut q) = (vec![0.0; n], vec![0.0; n]);
                let (mut sparse_p, mut sparse_q) = (Sparse::with_capacity(SPARSE_TOPK_MAX), Sparse::with_capacity(SPARSE_TOPK_MAX));
                let mut d = 0;
                macro_rules! none {
                    ($($call:expr;)*) => { $(assert_allocates_nothing(stringify!($call), &what, || $call);)* };
                }
                none! {
                    d = sampler.sample(logits, &context, &mut rng).unwrap();
                    d = sampler.sample_on(&team, logits, &context, &mut rng).unwrap();
                    sampler.distribution(logits, &context, &mut p).unwrap();
                    d = sample_with_scratch(logits, &context, &config, &mut rng, &mut scratch).unwrap();
                    d = sample_with_scratch_pool(logits, &context, &config, &mut rng, &mut scratch, &team).unwrap();
                    d = argmax(logits, Ties::Lower).unwrap();
                    d = argmax_penalized(logits, &context, &config, &mut scratch).unwrap();
                    distribution_into(logits, &[], &config, &mut scratch, &mut q).unwrap();
                    d = draw(&q, &mut rng).unwrap();
                    _ = spec_accept_or_correct(&p, &q, d, &mut rng, &mut scratch, Some(&team)).unwrap();
                    _ = top1_prob_pool(logits, d, 1.0, &mut scratch, Some(&team)).unwrap();
                }
                if sparse_ok(&config) {
                    none! {
                        sparse_distribution_into(logits, &context, &config, &mut scratch, Some(&team), &mut sparse_p).unwrap();
                        sparse_distribution_into(logits, &[], &config, &mut scratch, None, &mut sparse_q).unwrap();
                        d = draw_sparse(&sparse_q, &mut rng).unwrap();
                        _ = spec_accept_or_correct_sparse(&sparse_p, &sparse_q, d, &mut rng).unwrap();
                    }
                }
            }
        }
    }
}
