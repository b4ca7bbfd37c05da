//! Draws follow the distribution: chi-square over a million of them.

use rml::exec::Team;
use rml::generate::sampler::*;

use crate::{logits, plain, tables};

const DRAWS: usize = 1_000_000;

/// That counts follow `p`: the chi-square statistic, as a deviate of the normal distribution (Wilson and Hilferty), is below
/// 4.5, which it exceeds once in 300,000 sets. Tokens expected less than 20 times are taken together.
fn assert_follows(counts: &[u64], p: &[f64], what: &str) {
    let n: u64 = counts.iter().sum();
    let (mut chi2, mut bins) = (0.0, 0_u32);
    let (mut rest, mut rest_p) = (0, 0.0);
    let mut bin = |count: u64, p: f64| {
        let expected = p * n as f64;
        chi2 += (count as f64 - expected).powi(2) / expected;
        bins += 1;
    };
    for (&count, &p) in counts.iter().zip(p) {
        assert!(p > 0.0 || count == 0, "{what}: a token of probability 0 was drawn");
        if p * n as f64 >= 20.0 {
            bin(count, p);
        } else {
            (rest, rest_p) = (rest + count, rest_p + p);
        }
    }
    if rest_p * n as f64 >= 20.0 {
        bin(rest, rest_p);
    } else {
        assert!((rest as f64) < 60.0, "{what}: {rest} draws of what is nearly never drawn");
    }
    let k = f64::from(bins - 1);
    if k > 0.0 {
        let z = ((chi2 / k).cbrt() - (1.0 - 2.0 / (9.0 * k))) / (2.0 / (9.0 * k)).sqrt();
        assert!(z < 4.5, "{what}: chi-square {chi2} of {k} degrees of freedom, {z} deviations");
    }
}

fn count(n: usize, mut draw: impl FnMut() -> u32) -> Vec<u64> {
    let mut counts = vec![0; n];
    (0..DRAWS).for_each(|_| counts[draw() as usize] += 1);
    counts
}

/// Fast kernels where there are some: every backend gives the same tokens.
fn fastest() -> rml_backends::KernelTable {
    tables().pop().unwrap().1
}

#[test]
fn the_test_sees_a_small_fault() {
    let mut rng = SplitMix64::new(1);
    let counts = count(4, || if rng.next_f64() < 0.008 { 0 } else { rng.below(4) as u32 });
    assert!(std::panic::catch_unwind(|| assert_follows(&counts, &[0.25; 4], "planted")).is_err());
}

#[test]
fn samples_follow_both_chains() {
    let n = 200;
    let mut x = logits(0, n, &mut SplitMix64::new(7));
    x.iter_mut().step_by(5).for_each(|l| *l = l.round()); // some ties
    let context = [3, 50, 3, 120];
    let base = SamplerConfig { temperature: 0.8, repetition_penalty: 1.3, suppress: vec![9], ..Default::default() };
    let configs = [
        ("all", base.clone()),
        ("top-k", SamplerConfig { top_k: 40, top_p: 0.95, min_p: 0.01, ..base.clone() }),
        ("no top-k", SamplerConfig { top_p: 0.95, min_p: 0.01, ..base.clone() }),
        ("min-p first", SamplerConfig { order: ChainOrder::MinPFirst, top_k: 50, top_p: 0.9, ..base }),
    ];
    for (what, config) in configs {
        let p = plain::distribution(&x, &context, &config, (0.0, 0.0)).p;
        let mut rng = SplitMix64::new(99);
        let mut sampler = Sampler::new(config.clone(), n).unwrap().with_kernels(&fastest());
        assert_follows(&count(n, || sampler.sample(&x, &context, &mut rng).unwrap()), &p, what);

        let mut dense = vec![0.0; n];
        sampler.distribution(&x, &context, &mut dense).unwrap();
        assert_follows(&count(n, || draw(&dense, &mut rng).unwrap()), &p, "dense");
        if sparse_ok(&config) {
            let mut sparse = Sparse::new();
            sparse_distribution_into(&x, &context, &config, sampler.scratch(), None, &mut sparse).unwrap();
            assert_follows(&count(n, || draw_sparse(&sparse, &mut rng).unwrap()), &p, "sparse");
        }
    }
}

#[test]
fn pooled_samples_follow_the_distribution() {
    // More than one chunk of the vocabulary, so that the team has work to share; few tokens carry the weight.
    let n = 33_000;
    let mut x = vec![-100.0; n];
    for i in 0..40 {
        x[i * 823] = (i as f32 * 0.7).sin() * 2.0;
    }
    let team = Team::new(2).unwrap();
    let config = SamplerConfig { temperature: 1.0, top_k: 30, top_p: 0.97, ..Default::default() };
    let p = plain::distribution(&x, &[], &config, (0.0, 0.0)).p;
    let mut rng = SplitMix64::new(5);
    let mut scratch = SamplerScratch::new(n).unwrap().with_kernels(&fastest());
    let counts = count(n, || sample_with_scratch_pool(&x, &[], &config, &mut rng, &mut scratch, &team).unwrap());
    assert_follows(&counts, &p, "pooled");
}

/// Drafts drawn from `q` and judged against `p` come out as `p`.
#[test]
fn accept_or_correct_leaves_the_target() {
    let uniform = [0.125_f32; 8];
    let peaked = [0.9, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01];
    let slope = [0.3, 0.25, 0.15, 0.1, 0.1, 0.05, 0.05, 0.0];
    let low = [0.5, 0.25, 0.125, 0.125, 0.0, 0.0, 0.0, 0.0];
    let high = [0.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4];
    let one = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let pairs = [
        ("peaked from uniform", peaked, uniform),
        ("uniform from peaked", uniform, peaked),
        ("disjoint", low, high),
        ("disjoint, other way", high, low),
        ("overlapping", slope, low),
        ("equal", slope, slope),
        ("one from uniform", one, uniform),
        ("uniform from one", uniform, one),
    ];
    let team = Team::new(2).unwrap();
    let mut scratch = SamplerScratch::new(8).unwrap().with_kernels(&fastest());
    for (what, p, q) in pairs {
        let list = |p: [f32; 8]| -> Sparse { (0..).zip(p).filter(|&(_, p)| p > 0.0).collect() };
        let (sparse_p, sparse_q) = (list(p), list(q));
        let (mut rng, mut accepted, mut i) = (SplitMix64::new(21), 0, 0_u32);
        let counts = count(8, || {
            let d = draw(&q, &mut rng).unwrap();
            let mut same = rng.clone();
            i += 1;
            let team = i.is_multiple_of(16).then_some(&team);
            let dense = spec_accept_or_correct(&p, &q, d, &mut rng, &mut scratch, team).unwrap();
            let sparse = spec_accept_or_correct_sparse(&sparse_p, &sparse_q, d, &mut same).unwrap();
            assert_eq!((dense, &rng), (sparse, &same), "{what}: dense and sparse differ");
            accepted += u64::from(dense.is_none());
            dense.unwrap_or(d)
        });
        assert_follows(&counts, &p.map(f64::from), what);
        // Drafts are accepted with the probability that both distributions share.
        let shared = p.iter().zip(q).map(|(&p, q)| f64::from(p.min(q))).sum::<f64>().min(1.0);
        let expected = shared * DRAWS as f64;
        assert!((accepted as f64 - expected).abs() <= 5.0 * (expected * (1.0 - shared)).sqrt() + 1.0, "{what}: {accepted} of {expected}");
    }
}

#[test]
fn nothing_left_falls_back_to_the_target() {
    // A draft that the draft's own distribution says is impossible, and no token that the target has more of.
    let (p, q) = ([0.5, 0.5, 0.0], [0.5, 0.5, 0.0]);
    let mut scratch = SamplerScratch::new(3).unwrap();
    let mut rng = SplitMix64::new(4);
    for _ in 0..100 {
        let c = spec_accept_or_correct(&p, &q, 2, &mut rng, &mut scratch, None).unwrap();
        assert!(matches!(c, Some(0 | 1)), "{c:?}");
        let c = spec_accept_or_correct_sparse(&[(0, 0.5), (1, 0.5)], &[(0, 0.5), (1, 0.5)], 2, &mut rng).unwrap();
        assert!(matches!(c, Some(0 | 1)), "{c:?}");
    }
}

#[test]
fn what_is_no_distribution_is_an_error() {
    let mut scratch = SamplerScratch::new(2).unwrap();
    let mut rng = SplitMix64::new(4);
    for (p, q) in [([f32::NAN, 0.0], [0.5, 0.5]), ([0.0, 1.0], [f32::INFINITY, 0.0]), ([0.0, -1.0], [1.0, 0.0]), ([0.0, 0.0], [1.0, 0.0])] {
        assert!(spec_accept_or_correct(&p, &q, 0, &mut rng, &mut scratch, None).is_err(), "{p:?} {q:?}");
        let list = |p: [f32; 2]| [(0, p[0]), (1, p[1])];
        assert!(spec_accept_or_correct_sparse(&list(p), &list(q), 0, &mut rng).is_err(), "{p:?} {q:?}");
    }
    assert!(spec_accept_or_correct_sparse(&[(1, 0.5), (0, 0.5)], &[(0, 1.0)], 0, &mut rng).is_err());
}
