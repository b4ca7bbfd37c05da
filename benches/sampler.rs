//! One token sampled, on one thread with the best kernels: what a decode step pays after the forward pass.
//!
//! Logits are normally distributed with a deviation of 2.5; the vocabularies are those of SmolLM2, Qwen2 and Qwen3.5.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rml::generate::sampler::{Sampler, SamplerConfig, SplitMix64};
use rml_backends::{CpuFeatures, Registry};

const VOCABULARIES: [usize; 3] = [49_152, 151_936, 248_320];
const SIGMA: f64 = 2.5;
/// Rows of logits taken in turn, so that branches are not learnt by heart.
const ROWS: usize = 4;

fn normal_logits(n: usize, rng: &mut SplitMix64) -> Vec<f32> {
    let mut normal = || (-2.0 * (1.0 - rng.next_f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.next_f64()).cos();
    (0..n).map(|_| (SIGMA * normal()) as f32).collect()
}

fn configs() -> [(&'static str, SamplerConfig); 5] {
    let usual = SamplerConfig {
        temperature: 0.7,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        repetition_penalty: 1.1,
        repetition_window: 64,
        ..Default::default()
    };
    let no_top_k = SamplerConfig { top_k: 0, ..usual.clone() };
    let top_p_alone = SamplerConfig { temperature: 0.7, top_p: 0.95, ..Default::default() };
    let temperature_alone = SamplerConfig { temperature: 0.7, ..Default::default() };
    [
        ("usual", usual),
        ("no top-k", no_top_k),
        ("greedy", SamplerConfig::default()),
        ("top-p alone", top_p_alone),
        ("temperature alone", temperature_alone),
    ]
}

fn sampler(c: &mut Criterion) {
    let table = Registry::new(CpuFeatures::detect("").expect("nothing is disabled")).table();
    for (name, config) in configs() {
        let mut group = c.benchmark_group(name);
        for n in VOCABULARIES {
            let mut rng = SplitMix64::new(n as u64);
            let rows: Vec<_> = (0..ROWS).map(|_| normal_logits(n, &mut rng)).collect();
            let context: Vec<u32> = (0..512).map(|_| rng.below(n as u64) as u32).collect();
            let mut sampler = Sampler::new(config.clone(), n).expect("settings in range").with_kernels(&table);
            let mut row = 0;
            group.bench_function(BenchmarkId::from_parameter(n), |b| {
                b.iter(|| {
                    row = (row + 1) % ROWS;
                    sampler.sample(black_box(&rows[row]), &context, &mut rng).expect("finite logits")
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, sampler);
criterion_main!(benches);
