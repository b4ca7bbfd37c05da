//! What is done to a row of numbers: elements a second, of rows that are in the first or second cache as they are in a step.

use std::hint::black_box;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use rml::toolbox::synth::Blocks;
use rml_backends::table::GatedActivation;
use rml_kernels_ref::exam::fills::Random;
use rml_kernels_ref::format::Format;
use rml_kernels_ref::sampling::BLOCK;

use crate::Setting;
use crate::numbers::{Quantized, normal};

/// Standard deviation of the logits that are sampled from.
const LOGIT_DEVIATION: f32 = 2.5;

pub(crate) fn all(c: &mut Criterion, setting: &Setting) {
    embed_row(c, setting);
    of_the_width(c, setting);
    rope(c, setting);
    gates(c, setting);
    softmax(c, setting);
    sampling(c, setting);
}

fn group<'c>(c: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    c.benchmark_group(name)
}

/// Each iteration widens another of 64 rows.
fn embed_row(c: &mut Criterion, setting: &Setting) {
    const ROWS: usize = 64;
    for format in Format::ALL {
        let mut group = group(c, &format!("embed_row/{format}"));
        for d in setting.sizes(|s| s.d_model) {
            let Some(row_bytes) = format.row_bytes(d) else { continue };
            group.throughput(Throughput::Elements(d as u64));
            for (owner, kernel) in setting.owners(|t| t.embed_row) {
                group.bench_function(format!("{d}/{owner}"), |b| {
                    let mut rows = vec![0; ROWS * row_bytes];
                    Blocks::new(format).fill(1.0, &mut rows, &mut Random::new(1));
                    let mut out = vec![0.0; d];
                    let mut turns = (0..ROWS).cycle();
                    b.iter(|| {
                        let i = turns.next().unwrap_or(0);
                        kernel(format, &rows[i * row_bytes..][..row_bytes], black_box(&mut out));
                    });
                });
            }
        }
        group.finish();
    }
}

fn of_the_width(c: &mut Criterion, setting: &Setting) {
    let mut rms_norm = group(c, "rms_norm");
    for d in setting.sizes(|s| s.d_model) {
        rms_norm.throughput(Throughput::Elements(d as u64));
        let (x, weight) = (normal(d, 1.0, &mut Random::new(1)), vec![1.0; d]);
        for (owner, kernel) in setting.owners(|t| t.rms_norm) {
            let mut out = vec![0.0; d];
            rms_norm.bench_function(format!("{d}/{owner}"), |b| b.iter(|| kernel(black_box(&x), &weight, 1e-5, black_box(&mut out))));
        }
    }
    rms_norm.finish();
    let mut add = group(c, "add");
    for d in setting.sizes(|s| s.d_model) {
        add.throughput(Throughput::Elements(d as u64));
        // Sums stay as they are: what is added is 0, which costs what any number does.
        let (mut sum, x) = (normal(d, 1.0, &mut Random::new(1)), vec![0.0; d]);
        for (owner, kernel) in setting.owners(|t| t.add) {
            add.bench_function(format!("{d}/{owner}"), |b| b.iter(|| kernel(black_box(&mut sum), black_box(&x))));
        }
    }
    add.finish();
    let mut quantize = group(c, "quantize");
    let mut widths = setting.sizes(|s| s.d_model);
    widths.extend(setting.sizes(|s| s.d_ff));
    for k in widths {
        quantize.throughput(Throughput::Elements(k as u64));
        let x = normal(k, 1.0, &mut Random::new(1));
        for (owner, kernel) in setting.owners(|t| t.quantize) {
            let mut out = Quantized::room(k);
            quantize.bench_function(format!("{k}/{owner}"), |b| {
                b.iter(|| {
                    kernel(black_box(&x), &mut out.row_mut());
                    black_box(&out);
                });
            });
        }
    }
    quantize.finish();
}

/// All heads of one token. Rotation keeps their size, however often it is done.
fn rope(c: &mut Criterion, setting: &Setting) {
    let pairs = ("rope_pairs", setting.owners(|t| t.rope_pairs));
    let halves = ("rope_halves", setting.owners(|t| t.rope_halves));
    for (name, owners) in [pairs, halves] {
        let mut group = group(c, name);
        for (h, d) in setting.sizes(|s| (s.n_heads, s.d_head)) {
            group.throughput(Throughput::Elements((h * d) as u64));
            let (sin, cos): (Vec<f32>, Vec<f32>) = (0..d / 2).map(|i| (i as f32).sin_cos()).unzip();
            let mut x = normal(h * d, 1.0, &mut Random::new(1));
            for &(owner, kernel) in &owners {
                group.bench_function(format!("{h}x{d}/{owner}"), |b| b.iter(|| kernel(black_box(&mut x), d, &cos, &sin)));
            }
        }
        group.finish();
    }
}

/// The gate is copied each time, as its activation would otherwise run to 0 or infinity.
fn gates(c: &mut Criterion, setting: &Setting) {
    let silu: (_, Vec<(_, GatedActivation)>) = ("silu_mul", setting.owners(|t| t.silu_mul));
    let gelu = ("gelu_mul", setting.owners(|t| t.gelu_mul));
    let limited = ("limited_mul", setting.owners(|t| t.limited_mul));
    for (name, owners) in [silu, gelu, limited] {
        let mut group = group(c, name);
        for n in setting.sizes(|s| s.d_ff) {
            group.throughput(Throughput::Elements(n as u64));
            let random = &mut Random::new(1);
            let (gate, up) = (normal(n, 1.0, random), normal(n, 1.0, random));
            for &(owner, kernel) in &owners {
                let mut x = gate.clone();
                group.bench_function(format!("{n}/{owner}"), |b| {
                    b.iter(|| {
                        x.copy_from_slice(&gate);
                        kernel(black_box(&mut x), black_box(&up));
                    });
                });
            }
        }
        group.finish();
    }
}

/// Logits are copied each time.
fn softmax(c: &mut Criterion, setting: &Setting) {
    let mut group = group(c, "softmax");
    for n in setting.sizes(|s| s.n_vocab) {
        group.throughput(Throughput::Elements(n as u64));
        let logits = normal(n, LOGIT_DEVIATION, &mut Random::new(1));
        for (owner, kernel) in setting.owners(|t| t.softmax) {
            let mut x = logits.clone();
            group.bench_function(format!("{n}/{owner}"), |b| {
                b.iter(|| {
                    x.copy_from_slice(&logits);
                    kernel(black_box(&mut x));
                });
            });
        }
    }
    group.finish();
}

fn sampling(c: &mut Criterion, setting: &Setting) {
    for n in setting.sizes(|s| s.n_vocab) {
        let elements = Throughput::Elements(n as u64);
        let logits = normal(n, LOGIT_DEVIATION, &mut Random::new(1));
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut weights = vec![0.0; n];
        let mut block_max = group(c, "block_max");
        let mut maxima = vec![0.0; n.div_ceil(BLOCK)];
        block_max.throughput(elements.clone());
        for (owner, kernel) in setting.owners(|t| t.block_max) {
            block_max.bench_function(format!("{n}/{owner}"), |b| b.iter(|| kernel(black_box(&logits), black_box(&mut maxima))));
        }
        block_max.finish();
        let mut at_least = group(c, "at_least");
        let mut found = vec![0; n];
        at_least.throughput(elements.clone());
        for (owner, kernel) in setting.owners(|t| t.at_least) {
            // About one in a thousand.
            let threshold = 3.0 * LOGIT_DEVIATION;
            at_least.bench_function(format!("{n}/{owner}"), |b| b.iter(|| kernel(black_box(&logits), threshold, black_box(&mut found))));
        }
        at_least.finish();
        let mut exp_weights = group(c, "exp_weights");
        exp_weights.throughput(elements.clone());
        for (owner, kernel) in setting.owners(|t| t.exp_weights) {
            exp_weights
                .bench_function(format!("{n}/{owner}"), |b| b.iter(|| kernel(black_box(&logits), best, 1.0, black_box(&mut weights))));
        }
        exp_weights.finish();
        rml_kernels_ref::sampling::exp_weights(&logits, best, 1.0, &mut weights);
        let mut weight_sum = group(c, "weight_sum");
        weight_sum.throughput(elements);
        for (owner, kernel) in setting.owners(|t| t.weight_sum) {
            weight_sum.bench_function(format!("{n}/{owner}"), |b| b.iter(|| kernel(black_box(&weights), 1.0)));
        }
        weight_sum.finish();
    }
}
