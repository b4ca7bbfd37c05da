//! Attention of one key-value head over one span: for the one token of a decode step, and for the 16 of a task of prefill.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use half::f16;
use rml_backends::table::Attend;
use rml_kernels_ref::exam::fills::Random;
use rml_kernels_ref::kv::{AttendSpan, KEY_SPAN, KvHead, KvType, SpanState, kv_groups};

use crate::Setting;
use crate::numbers::{BEYOND_CACHE, normal};

/// Tokens of a decode step, and of a task of prefill.
const TOKENS: [usize; 2] = [1, 16];

pub(crate) fn all(c: &mut Criterion, setting: &Setting) {
    for kv in [KvType::F16, KvType::I8, KvType::F32] {
        if kv != KvType::F16 && !setting.all {
            continue;
        }
        let mut group = c.benchmark_group(format!("attend/{}", kv.name()));
        for (g, d) in setting.sizes(|s| (s.n_heads / s.n_kv_heads, s.d_head)) {
            let span_bytes = 2 * KEY_SPAN * kv.row_bytes(d);
            for m in TOKENS {
                // A decode step reads a cache that is used once a layer; the tasks of prefill share theirs.
                let n_spans = if m == 1 { BEYOND_CACHE.div_ceil(span_bytes) } else { 1 };
                let first = n_spans * KEY_SPAN - m;
                group.throughput(if m == 1 {
                    Throughput::Bytes(span_bytes as u64)
                } else {
                    let n_keys: usize = (0..m).map(|i| first + i + 1).sum();
                    Throughput::Elements((4 * n_keys * g * d) as u64)
                });
                for (owner, kernel) in setting.owners(|t| t.attend) {
                    let mut attention = None;
                    group.bench_function(format!("{g}x{d}/m{m}/{owner}"), |b| {
                        let attention = attention.get_or_insert_with(|| Attention::new(kv, n_spans, (m, g, d), first));
                        b.iter(|| attention.run(kernel));
                    });
                }
            }
        }
        group.finish();
    }
}

/// Queries at the end of a cache whose spans are taken in turn.
struct Attention {
    kv: KvType,
    n_spans: usize,
    turn: usize,
    m: usize,
    g: usize,
    d: usize,
    first: usize,
    q: Vec<f32>,
    halves: [Vec<f16>; 2],
    floats: [Vec<f32>; 2],
    bytes: [Vec<i8>; 2], // with `halves` for their scales
    out: Vec<f32>,
    max: Vec<f32>,
    sum: Vec<f32>,
}

impl Attention {
    fn new(kv: KvType, n_spans: usize, (m, g, d): (usize, usize, usize), first: usize) -> Self {
        let random = &mut Random::new(1);
        let q = normal(m * g * d, 1.0, random);
        // The layout of keys does not matter to numbers that are all alike.
        let floats = [0; 2].map(|_| normal(n_spans * KEY_SPAN * d, 1.0, random));
        let to_halves = |x: Vec<f32>| x.into_iter().map(f16::from_f32).collect();
        let mut bytes = [Vec::new(), Vec::new()];
        let (halves, floats) = match kv {
            KvType::F16 => (floats.map(to_halves), Default::default()),
            KvType::F32 => (Default::default(), floats),
            KvType::I8 => {
                bytes = floats.map(|x| x.into_iter().map(|x| (x * 40.0) as i8).collect());
                let n_scales = n_spans * KEY_SPAN * kv_groups(d);
                ([0; 2].map(|_| to_halves(normal(n_scales, 0.025, random))), Default::default())
            }
        };
        let (out, max, sum) = (vec![0.0; m * g * d], vec![0.0; m * g], vec![0.0; m * g]);
        Attention { kv, n_spans, turn: 0, m, g, d, first, q, halves, floats, bytes, out, max, sum }
    }

    fn run(&mut self, kernel: Attend) {
        let Attention { m, g, d, first, .. } = *self;
        self.turn = (self.turn + 1) % self.n_spans;
        let kv = match self.kv {
            KvType::F16 => KvHead::F16 { k: &self.halves[0], v: &self.halves[1] },
            KvType::F32 => KvHead::F32 { k: &self.floats[0], v: &self.floats[1] },
            KvType::I8 => {
                let ([k, v], [k_scale, v_scale]) = (&self.bytes, &self.halves);
                KvHead::I8 { k, v, k_scale, v_scale }
            }
        };
        let scale = 1.0 / (d as f32).sqrt();
        let (window, span) = (usize::MAX, self.turn);
        let span = AttendSpan { q: &self.q, q_stride: g * d, m, g, d, kv, first, window, span, scale, cap: None };
        kernel(&span, &mut SpanState { out: &mut self.out, max: &mut self.max, sum: &mut self.sum });
        black_box(&self.out);
    }
}
