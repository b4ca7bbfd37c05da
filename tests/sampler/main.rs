//! The sampler against implementations written for these tests, and against Hugging Face's.

mod against_f64;
mod contract;
mod draws;
mod huggingface;
mod plain;

use rml::generate::sampler::SplitMix64;
use rml_backends::{CpuFeatures, KernelTable, Registry};

/// The tables of every backend that runs here, `ref` among them.
fn tables() -> Vec<(&'static str, KernelTable)> {
    let registry = Registry::new(CpuFeatures::detect("").unwrap());
    let names = registry.backends().iter().filter(|r| r.refusal.is_none()).map(|r| r.backend.name());
    names.map(|n| (n, registry.table_of(n).unwrap())).collect()
}

/// Normally distributed numbers: Box and Muller.
fn normal(rng: &mut SplitMix64) -> f32 {
    let (u, v) = (1.0 - rng.next_f64(), rng.next_f64());
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}

/// Logits of one kind: `0` normal, `1` few values (ties), `2` all equal, `3` one far ahead, `4` far apart, `5` any finite bits.
fn logits(kind: u32, n: usize, rng: &mut SplitMix64) -> Vec<f32> {
    let mut x: Vec<f32> = (0..n)
        .map(|_| match kind {
            0 => 2.5 * normal(rng),
            1 => rng.below(9) as f32 / 4.0 - 1.0,
            2 => -3.25,
            3 => normal(rng),
            4 => 300.0 * normal(rng),
            _ => Some(f32::from_bits(rng.next_u64() as u32)).filter(|x| x.is_finite()).unwrap_or(0.0),
        })
        .collect();
    if kind == 3 && n > 0 {
        x[rng.below(n as u64) as usize] = 60.0;
    }
    x
}
