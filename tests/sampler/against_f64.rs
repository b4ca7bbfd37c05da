//! Random logits, settings and ties: distributions against the plain implementation, and all ways to a token against each other.

use std::sync::OnceLock;

use proptest::prelude::*;
use rml::exec::Team;
use rml::generate::sampler::*;

use crate::{logits, plain, tables};

/// Rounding of weights: three roundings of the exponent, two units of `exp`, two of the share.
fn rounding(p: f64, exponent: f64) -> f64 {
    // A weight below 2^-43 of the best may be lost in sums, one below 1e-37 stands for all that is smaller.
    p * (exponent.abs() + 8.0) * 2.0_f64.powi(-22) + 2.0_f64.powi(-42)
}

/// Whether `got` is this distribution: the same tokens, and probabilities within rounding.
fn is(got: &[f32], want: &plain::Distribution) -> Result<(), String> {
    for (id, &got) in got.iter().enumerate() {
        let (p, exponent) = (want.p[id], want.exponent[id]);
        // Far below the best the smallest weight stands for 0, so there only the other direction can be told.
        if (got > 0.0) != (p > 0.0) && exponent > -80.0 {
            return Err(format!("token {id}: {got} is not {p}"));
        }
        if (f64::from(got) - p).abs() > rounding(p, exponent) {
            return Err(format!("token {id}: {got} is not {p}, exponent {exponent}"));
        }
    }
    Ok(())
}

/// Whether `got` is the distribution for limits of top-p and min-p that are the ones given, within rounding.
fn check(got: &[f32], x: &[f32], context: &[u32], config: &SamplerConfig) -> Result<(), String> {
    const GIVE: f64 = 3e-5; // the rounding of a weight whose exponent is -90
    let mut first = None;
    for top_p in [0.0, GIVE, -GIVE] {
        for min_p in [0.0, GIVE, -GIVE] {
            match is(got, &plain::distribution(x, context, config, (top_p, min_p))) {
                Ok(()) => return Ok(()),
                Err(e) => first = first.or(Some(e)),
            }
        }
    }
    Err(first.unwrap())
}

fn config() -> impl Strategy<Value = SamplerConfig> {
    let order = prop::sample::select(vec![ChainOrder::HuggingFace, ChainOrder::MinPFirst]);
    let temperature = prop_oneof![1 => Just(0.0_f32), 8 => 0.2..3.0_f32, 1 => Just(100.0_f32), 1 => Just(1e-42_f32)];
    let top_k = prop_oneof![Just(0_usize), 1..8_usize, 8..400_usize];
    let top_p = prop_oneof![Just(1.0_f32), 0.01..1.0_f32, Just(0.95_f32), Just(1e-9_f32)];
    let min_p = prop_oneof![Just(0.0_f32), 0.0..0.5_f32, Just(0.05_f32), Just(0.999_f32)];
    let window = prop_oneof![Just(0_usize), 1..20_usize, Just(usize::MAX)];
    let penalties =
        prop_oneof![Just((1.0_f32, 0.0_f32, 0.0_f32)), (0.5..2.0_f32, -1.0..2.0_f32, -0.5..1.0_f32), (Just(1.1_f32), Just(0.0), Just(0.0))];
    (order, temperature, top_k, top_p, min_p, window, penalties).prop_map(
        |(order, temperature, top_k, top_p, min_p, repetition_window, (repetition_penalty, presence_penalty, frequency_penalty))| {
            SamplerConfig {
                order,
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty,
                repetition_window,
                presence_penalty,
                frequency_penalty,
                ..Default::default()
            }
        },
    )
}

/// One call: logits (kind 0 to 4), context, settings.
fn call() -> impl Strategy<Value = (Vec<f32>, Vec<u32>, SamplerConfig)> {
    let n = prop_oneof![4 => 1..300_usize, 1 => 300..3000_usize, 1 => 16_000..40_000_usize];
    (n, 0..5_u32, any::<u64>(), config(), 0..60_usize, any::<bool>()).prop_map(|(n, kind, seed, mut config, n_context, lists)| {
        let mut rng = SplitMix64::new(seed);
        let x = logits(kind, n, &mut rng);
        let mut token = || rng.below(n as u64) as u32;
        let context = (0..n_context).map(|_| token()).collect();
        if lists {
            config.suppress = (0..3).map(|_| token()).collect();
            config.logit_bias = (0..4).map(|i| (token(), i as f32 - 1.5)).collect();
            if config.suppress.iter().collect::<std::collections::HashSet<_>>().len() == n {
                config.suppress.clear();
            }
        }
        (x, context, config)
    })
}

/// Made once, as threads are.
fn team() -> &'static Team {
    static TEAM: OnceLock<Team> = OnceLock::new();
    TEAM.get_or_init(|| Team::new(3).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn distributions_are_those_of_the_plain_chain((x, context, config) in call()) {
        let mut scratch = SamplerScratch::new(x.len()).unwrap();
        let mut got = vec![f32::NAN; x.len()];
        distribution_into(&x, &context, &config, &mut scratch, &mut got).unwrap();
        prop_assert_eq!(check(&got, &x, &context, &config), Ok(()));
        let sum: f64 = got.iter().map(|&p| f64::from(p)).sum();
        prop_assert!((sum - 1.0).abs() < 1e-6, "sums to {}", sum);
    }

    #[test]
    fn every_way_to_a_token_is_the_same((x, context, config) in call(), seed in any::<u64>()) {
        let n = x.len();
        let mut scratch = SamplerScratch::new(n).unwrap();
        let mut dense = vec![f32::NAN; n];
        distribution_into(&x, &context, &config, &mut scratch, &mut dense).unwrap();
        let rng = || SplitMix64::new(seed);
        let want = sample(&x, &context, &config, &mut rng()).unwrap();
        if config.is_greedy() {
            prop_assert_eq!(dense[want as usize], 1.0);
            prop_assert_eq!(argmax_penalized(&x, &context, &config, &mut scratch).unwrap(), want);
        } else {
            let mut after = rng();
            prop_assert_eq!(draw(&dense, &mut after).unwrap(), want);
            let mut one = rng();
            one.next_u64();
            prop_assert_eq!(after, one, "one number a draw");
        }
        for (name, table) in tables() {
            let mut scratch = SamplerScratch::new(n).unwrap().with_kernels(&table);
            prop_assert_eq!(sample_with_scratch(&x, &context, &config, &mut rng(), &mut scratch).unwrap(), want, "{}", name);
            prop_assert_eq!(sample_with_scratch_pool(&x, &context, &config, &mut rng(), &mut scratch, team()).unwrap(), want, "{}", name);
            let mut sampler = Sampler::new(config.clone(), n).unwrap().with_kernels(&table);
            prop_assert_eq!(sampler.sample(&x, &context, &mut rng()).unwrap(), want);
            prop_assert_eq!(sampler.sample_on(team(), &x, &context, &mut rng()).unwrap(), want);
            let mut again = vec![f32::NAN; n];
            sampler.distribution(&x, &context, &mut again).unwrap();
            prop_assert_eq!(&again, &dense, "{}", name);
        }
        if sparse_ok(&config) {
            for team in [None, Some(team())] {
                let mut sparse = Sparse::new();
                sparse_distribution_into(&x, &context, &config, &mut scratch, team, &mut sparse).unwrap();
                prop_assert!(sparse.len() <= config.top_k && sparse.is_sorted_by(|a, b| a.0 < b.0));
                let mut spread = vec![0.0; n];
                sparse.iter().for_each(|&(id, p)| spread[id as usize] = p);
                prop_assert_eq!(&spread, &dense);
                prop_assert_eq!(draw_sparse(&sparse, &mut rng()).unwrap(), want);
            }
        } else {
            prop_assert!(sparse_distribution_into(&x, &context, &config, &mut scratch, None, &mut Sparse::new()).is_err());
        }
    }

    #[test]
    fn greedy_is_the_first_of_the_plain_ranking((x, context, config) in call()) {
        let config = SamplerConfig { temperature: 0.0, ..config };
        let want = plain::ranked(&plain::changed(&x, &context, &config), config.order)[0] as u32;
        for (name, table) in tables() {
            let mut scratch = SamplerScratch::new(x.len()).unwrap().with_kernels(&table);
            prop_assert_eq!(argmax_penalized(&x, &context, &config, &mut scratch).unwrap(), want, "{}", name);
            prop_assert_eq!(sample_with_scratch(&x, &context, &config, &mut SplitMix64::new(0), &mut scratch).unwrap(), want, "{}", name);
        }
        let bare = SamplerConfig { order: config.order, ..Default::default() };
        let want = plain::ranked(&plain::changed(&x, &[], &bare), config.order)[0] as u32;
        prop_assert_eq!(argmax(&x, config.order.ties()).unwrap(), want);
    }

    #[test]
    fn confidence_is_that_of_a_softmax((x, _, _) in call(), temperature in 0.1..10.0_f32, pick in any::<prop::sample::Index>()) {
        let id = pick.index(x.len());
        let config = SamplerConfig { temperature, ..Default::default() };
        let want = plain::distribution(&x, &[], &config, (0.0, 0.0));
        for (name, table) in tables() {
            let mut scratch = SamplerScratch::new(x.len()).unwrap().with_kernels(&table);
            let serial = top1_prob_pool(&x, id as u32, temperature, &mut scratch, None).unwrap();
            let pooled = top1_prob_pool(&x, id as u32, temperature, &mut scratch, Some(team())).unwrap();
            prop_assert_eq!(serial.to_bits(), pooled.to_bits());
            prop_assert!((f64::from(serial) - want.p[id]).abs() <= rounding(want.p[id], want.exponent[id]), "{}: {} is not {}", name, serial, want.p[id]);
        }
    }

    #[test]
    fn any_finite_logits_give_a_distribution(n in 1..200_usize, seed in any::<u64>(), config in config()) {
        let mut rng = SplitMix64::new(seed);
        let x = logits(5, n, &mut rng);
        let context: Vec<u32> = (0..30).map(|_| rng.below(n as u64) as u32).collect();
        let mut got = vec![f32::NAN; n];
        distribution_into(&x, &context, &config, &mut SamplerScratch::new(n).unwrap(), &mut got).unwrap();
        let sum: f64 = got.iter().map(|&p| f64::from(p)).sum();
        prop_assert!((sum - 1.0).abs() < 1e-6 && got.iter().all(|&p| p >= 0.0), "{:?}", got);
    }
}
