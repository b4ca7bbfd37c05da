//! What the specifications say in so many words: the worked example, edges, errors.

use rml::generate::sampler::*;
use rml::{Error, exec::Team};

const LOGITS: [f32; 4] = [2.0, 1.0, 0.0, -1.0];

fn distribution(config: &SamplerConfig, logits: &[f32], context: &[u32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; logits.len()];
    Sampler::new(config.clone(), logits.len()).unwrap().distribution(logits, context, &mut out).unwrap();
    out
}

fn min_p_first(config: SamplerConfig) -> SamplerConfig {
    SamplerConfig { order: ChainOrder::MinPFirst, ..config }
}

#[test]
fn the_worked_example() {
    let config = SamplerConfig { temperature: 1.0, top_p: 0.9, min_p: 0.05, ..Default::default() };
    let p = distribution(&config, &LOGITS, &[]);
    let percent: Vec<String> = p.iter().map(|p| format!("{:.1}", p * 100.0)).collect();
    assert_eq!(percent, ["66.5", "24.5", "9.0", "0.0"]);
    // Without top-p the fourth, at 0.0498 of the best, falls to min-p alone.
    let p = distribution(&SamplerConfig { top_p: 1.0, ..config.clone() }, &LOGITS, &[]);
    assert!(p[3] == 0.0 && p[2] > 0.0);
    // After two tokens the sum is 1.368, short of 1.398; at a top-p of 0.88 the target is 1.367.
    let p = distribution(&SamplerConfig { top_p: 0.88, ..config.clone() }, &LOGITS, &[]);
    assert!(p[2] == 0.0 && p[1] > 0.0);
    // 2 / 1.1 = 1.82, so the best but one is 0.82 behind; -1 becomes -1.1.
    let config = SamplerConfig { repetition_penalty: 1.1, top_p: 1.0, min_p: 0.0, ..config };
    let p = distribution(&config, &LOGITS, &[0, 3]);
    assert!((p[1] / p[0] - (1.0 - 2.0_f32 / 1.1).exp()).abs() < 1e-6);
    assert!((p[3] / p[2] - (-1.1_f32).exp()).abs() < 1e-6);
}

#[test]
fn ties() {
    let logits = [0.0, 3.0, 3.0, 3.0, 0.0];
    let greedy = SamplerConfig::default();
    let two = SamplerConfig { temperature: 1.0, top_k: 2, ..Default::default() };
    let half = SamplerConfig { temperature: 1.0, top_p: 0.5, ..Default::default() };
    assert_eq!(distribution(&greedy, &logits, &[]), [0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(distribution(&two, &logits, &[]), [0.0, 0.5, 0.5, 0.0, 0.0]);
    assert_eq!(distribution(&half, &logits, &[]), [0.0, 0.5, 0.5, 0.0, 0.0]);
    assert_eq!(distribution(&min_p_first(greedy), &logits, &[]), [0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(distribution(&min_p_first(two), &logits, &[]), [0.0, 0.0, 0.5, 0.5, 0.0]);
    assert_eq!(distribution(&min_p_first(half), &logits, &[]), [0.0, 0.0, 0.5, 0.5, 0.0]);
    assert_eq!((argmax(&logits, Ties::Lower).unwrap(), argmax(&logits, Ties::Higher).unwrap()), (1, 3));
    // Both zeros are one number.
    assert_eq!((argmax(&[-0.0, 0.0, -0.0], Ties::Lower).unwrap(), argmax(&[-0.0, 0.0, -0.0], Ties::Higher).unwrap()), (0, 2));
}

#[test]
fn what_top_p_is_a_share_of() {
    // Weights 1/2, 1/4, 1/8, 1/8 of the whole; after a top-k of 2: 2/3, 1/3.
    let logits = [8.0_f32.ln(), 4.0_f32.ln(), 2.0_f32.ln(), 2.0_f32.ln()];
    let config = SamplerConfig { temperature: 1.0, top_k: 2, top_p: 0.6, ..Default::default() };
    assert_eq!(distribution(&config, &logits, &[]), [1.0, 0.0, 0.0, 0.0], "2/3 is enough");
    assert!(distribution(&min_p_first(config), &logits, &[])[1] > 0.3, "1/2 is not");
}

#[test]
fn filters_that_are_off_keep_all() {
    let config = SamplerConfig { temperature: 1.0, ..Default::default() };
    for top_k in [0, 4, 5, usize::MAX] {
        for config in [SamplerConfig { top_k, ..config.clone() }, min_p_first(SamplerConfig { top_k, ..config.clone() })] {
            assert!(distribution(&config, &LOGITS, &[]).iter().all(|&p| p > 0.0), "{config:?}");
        }
    }
}

#[test]
fn seeds_differ_at_temperature_one_and_repeat() {
    let logits: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin()).collect();
    for top_k in [0, 900] {
        let mut s = Sampler::new(SamplerConfig { temperature: 1.0, top_k, ..Default::default() }, 1000).unwrap();
        let mut draw = |seed| s.sample(&logits, &[], &mut SplitMix64::new(seed)).unwrap();
        let draws: Vec<u32> = (0..5).map(&mut draw).collect();
        assert!(draws.iter().collect::<std::collections::HashSet<_>>().len() >= 4, "{draws:?}");
        assert_eq!(draws, (0..5).map(draw).collect::<Vec<_>>());
    }
}

#[test]
fn one_token_and_none() {
    for config in [SamplerConfig::default(), SamplerConfig { temperature: 1.0, top_k: 40, top_p: 0.9, min_p: 0.1, ..Default::default() }] {
        let mut s = Sampler::new(config.clone(), 1).unwrap();
        assert_eq!(s.sample(&[-7.0], &[0, 0], &mut SplitMix64::new(1)).unwrap(), 0);
        assert_eq!(distribution(&config, &[-7.0], &[]), [1.0]);
        assert!(Sampler::new(config.clone(), 0).is_err());
        assert!(sample(&[], &[], &config, &mut SplitMix64::new(1)).is_err());
    }
    assert!(argmax(&[], Ties::Lower).is_err());
    assert!(SamplerScratch::new(0).is_err());
    assert!(matches!(SamplerScratch::new((1 << 20) + 1), Err(Error::OutOfRange { .. })));
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    let configs = [
        SamplerConfig::default(),
        SamplerConfig { temperature: 1.0, ..Default::default() },
        SamplerConfig { temperature: 1.0, top_k: 3, ..Default::default() },
        SamplerConfig { temperature: 1.0, top_p: 0.5, suppress: vec![70], ..Default::default() },
    ];
    let team = Team::new(2).unwrap();
    for config in configs {
        let mut s = Sampler::new(config.clone(), 100).unwrap();
        let mut rng = SplitMix64::new(0);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 63, 64, 70, 99] {
                let mut logits = vec![0.0; 100];
                logits[at] = bad;
                let error = s.sample(&logits, &[70], &mut rng).unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { name: "logits", .. }));
                assert!(error.to_string().contains(&format!("token {at} is")), "{error}");
                assert!(s.sample_on(&team, &logits, &[], &mut rng).is_err());
                assert!(s.distribution(&logits, &[], &mut [0.0; 100]).is_err());
                assert!(argmax(&logits, Ties::Lower).is_err());
                assert!(argmax_penalized(&logits, &[], &config, s.scratch()).is_err());
                assert!(top1_prob_pool(&logits, 1, 1.0, s.scratch(), None).is_err());
            }
        }
        assert!(s.sample(&[0.0; 99], &[], &mut rng).is_err());
        assert!(s.distribution(&[0.0; 100], &[], &mut [0.0; 101]).is_err());
        assert_eq!(rng, SplitMix64::new(0), "an error takes no number");
        s.sample(&[0.0; 100], &[], &mut rng).unwrap();
    }
}

#[test]
fn suppressed_tokens_are_never_drawn() {
    for temperature in [0.0, 1.0] {
        for (top_k, top_p, min_p) in [(0, 1.0, 0.0), (2, 1.0, 0.0), (0, 0.999_999_94, 0.0), (0, 1.0, 1e-40), (3, 0.9, 0.9)] {
            let config = SamplerConfig { temperature, top_k, top_p, min_p, suppress: vec![0, 2, 0], ..Default::default() };
            for config in [config.clone(), min_p_first(config)] {
                let p = distribution(&config, &[9.0, -1e30, 9.0, -1e30], &[]);
                assert!(p[0] == 0.0 && p[2] == 0.0, "{config:?} {p:?}");
                let all = SamplerConfig { suppress: vec![3, 2, 1, 0], ..config };
                let error = Sampler::new(all, 4).unwrap().sample(&LOGITS, &[], &mut SplitMix64::new(0)).unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { name: "suppress", .. }), "{error}");
            }
        }
    }
}

#[test]
fn tokens_outside_the_vocabulary_are_an_error() {
    let penalized = SamplerConfig { presence_penalty: 1.0, ..Default::default() };
    let mut s = Sampler::new(penalized, 4).unwrap();
    assert!(matches!(s.sample(&LOGITS, &[4], &mut SplitMix64::new(0)), Err(Error::OutOfRange { .. })));
    assert!(Sampler::new(SamplerConfig { suppress: vec![4], ..Default::default() }, 4).is_err());
    assert!(Sampler::new(SamplerConfig { logit_bias: vec![(4, 1.0)], ..Default::default() }, 4).is_err());
    assert!(top1_prob_pool(&LOGITS, 4, 1.0, s.scratch(), None).is_err());
    assert!(top1_prob_pool(&LOGITS, 0, 0.0, s.scratch(), None).is_err());
    assert!(spec_accept_or_correct(&[0.25; 4], &[0.25; 4], 4, &mut SplitMix64::new(0), s.scratch(), None).is_err());
    assert!(spec_accept_or_correct(&[0.25; 3], &[0.25; 4], 0, &mut SplitMix64::new(0), s.scratch(), None).is_err());
}

#[test]
fn settings_are_checked_by_every_function() {
    let bad = SamplerConfig { top_p: 2.0, ..Default::default() };
    let (mut scratch, mut rng) = (SamplerScratch::new(4).unwrap(), SplitMix64::new(0));
    let team = Team::new(1).unwrap();
    assert!(Sampler::new(bad.clone(), 4).is_err());
    assert!(sample(&LOGITS, &[], &bad, &mut rng).is_err());
    assert!(sample_with_scratch(&LOGITS, &[], &bad, &mut rng, &mut scratch).is_err());
    assert!(sample_with_scratch_pool(&LOGITS, &[], &bad, &mut rng, &mut scratch, &team).is_err());
    assert!(argmax_penalized(&LOGITS, &[], &bad, &mut scratch).is_err());
    assert!(distribution_into(&LOGITS, &[], &bad, &mut scratch, &mut [0.0; 4]).is_err());
    let sparse = SamplerConfig { temperature: 1.0, top_k: 2, ..bad };
    assert!(sparse_distribution_into(&LOGITS, &[], &sparse, &mut scratch, None, &mut Sparse::new()).is_err());
}

#[test]
fn sparse_ok_takes_a_temperature_and_a_top_k_up_to_256() {
    let config = |temperature, top_k| SamplerConfig { temperature, top_k, ..Default::default() };
    assert!(sparse_ok(&SamplerConfig { top_p: 0.8, presence_penalty: 1.5, ..config(0.7, 20) }));
    assert!(sparse_ok(&config(1.0, 1)) && sparse_ok(&config(1.0, SPARSE_TOPK_MAX)));
    assert!(!sparse_ok(&config(0.0, 20)) && !sparse_ok(&config(1.0, 0)) && !sparse_ok(&config(1.0, SPARSE_TOPK_MAX + 1)));
}
