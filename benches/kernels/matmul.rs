//! Products of the shapes' matrices with one token, a few, and many.

use std::collections::BTreeSet;
use std::hint::black_box;

use criterion::{Criterion, Throughput};
use rml::exec::{Block, Pages, zeroed};
use rml::toolbox::synth::Blocks;
use rml_backends::TileMut;
use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations};
use rml_kernels_ref::exam::fills::Random;
use rml_kernels_ref::format::Format;

use crate::Setting;
use crate::numbers::{BEYOND_CACHE, Quantized, normal};

const TOKENS: [usize; 4] = [1, 4, 32, 512];
/// Up to so many tokens a product takes about as long as reading its weights: they come from memory, and bytes are counted.
const MEMORY_BOUND: usize = 8;
/// What is measured without a filter.
const USUAL_FORMATS: [Format; 4] = [Format::F16, Format::Q4_0, Format::Q8_0, Format::Q4_K];
const USUAL_MATRICES: [(usize, usize); 3] = [(1536, 576), (576, 1536), (8192, 2048)];

pub(crate) fn all(c: &mut Criterion, setting: &Setting) {
    let matrices = setting.shapes.iter().flat_map(|s| s.layer().into_iter().chain([s.head()])).map(|m| (m.n, m.k));
    let matrices: BTreeSet<_> = matrices.filter(|m| setting.all || USUAL_MATRICES.contains(m)).collect();
    for format in Format::ALL.into_iter().filter(|f| setting.all || USUAL_FORMATS.contains(f)) {
        let mut group = c.benchmark_group(format!("matmul/{format}"));
        for &(n, k) in &matrices {
            let Some(row_bytes) = format.row_bytes(k) else { continue };
            for m in TOKENS {
                group.throughput(match m {
                    0..=MEMORY_BOUND => Throughput::Bytes((n * row_bytes) as u64),
                    _ => Throughput::Elements(2 * (m * n * k) as u64),
                });
                for (owner, kernel) in kernels(setting, format) {
                    if !setting.all && owner == "ref" && m > 1 {
                        continue;
                    }
                    let Ok(layout) = kernel.layout(n, k) else { continue };
                    let mut product = None;
                    group.bench_function(format!("{n}x{k}/m{m}/{owner}"), |b| {
                        let product = product.get_or_insert_with(|| Product::new(kernel, layout, (n, k), m));
                        b.iter(|| product.run());
                    });
                }
            }
        }
        group.finish();
    }
}

/// Each backend's own kernels for a format; where it has several, by their whole name.
fn kernels(setting: &Setting, format: Format) -> Vec<(String, &'static dyn MatmulKernel)> {
    let mut all = Vec::new();
    for (name, table) in &setting.backends {
        let own: Vec<_> = table.matmul(format).iter().filter(|(owner, _)| owner == name).map(|(_, kernel)| *kernel).collect();
        let several = own.len() > 1;
        all.extend(own.into_iter().map(|kernel| (if several { kernel.id().to_owned() } else { (*name).to_owned() }, kernel)));
    }
    all
}

/// A product that is ready to run, with as many copies of the weights as are taken in turn.
struct Product {
    kernel: &'static dyn MatmulKernel,
    layout: PackedLayout,
    n: usize,
    k: usize,
    m: usize,
    copies: Block,
    copy_bytes: usize,
    n_copies: usize,
    turn: usize,
    x: Vec<f32>,
    quantized: Quantized,
    out: Vec<f32>,
}

impl Product {
    fn new(kernel: &'static dyn MatmulKernel, layout: PackedLayout, (n, k): (usize, usize), m: usize) -> Self {
        let random = &mut Random::new(1);
        let packed = packed(kernel, layout, (n, k), random);
        // Kernels want every matrix aligned to 64 bytes.
        let copy_bytes = packed.len().next_multiple_of(64);
        let n_copies = if m <= MEMORY_BOUND { BEYOND_CACHE.div_ceil(copy_bytes) } else { 1 };
        let mut copies = zeroed(n_copies * copy_bytes, "weights", Pages::Huge).unwrap_or_else(|e| panic!("{e}"));
        copies.chunks_exact_mut(copy_bytes).for_each(|copy| copy[..packed.len()].copy_from_slice(&packed));
        let x = normal(m * k, 1.0, random);
        let quantized = if kernel.activation() == ActivationKind::Q8 { Quantized::of(&x) } else { Quantized::room(0) };
        let out = vec![0.0; m * n];
        Product { kernel, layout, n, k, m, copies, copy_bytes, n_copies, turn: 0, x, quantized, out }
    }

    fn run(&mut self) {
        let Product { layout, n, k, m, .. } = *self;
        self.turn = (self.turn + 1) % self.n_copies;
        let bytes = &self.copies[self.turn * self.copy_bytes..][..n.div_ceil(layout.panel_rows) * layout.panel_bytes];
        let data = match self.kernel.activation() {
            ActivationKind::F32 => ActivationData::F32(&self.x),
            ActivationKind::Q8 => ActivationData::Q8(self.quantized.view()),
        };
        let mut tile = TileMut::whole(&mut self.out, m, n);
        self.kernel.multiply(&Weights { n, k, layout, bytes }, &Activations { m, k, data }, &mut tile);
        black_box(&self.out);
    }
}

/// Random weights as the kernel wants them.
fn packed(kernel: &dyn MatmulKernel, layout: PackedLayout, (n, k): (usize, usize), random: &mut Random) -> Vec<u8> {
    let format = kernel.format();
    let row_bytes = format.row_bytes(k).expect("whole blocks, as the caller made sure");
    let mut rows = vec![0; n * row_bytes];
    Blocks::new(format).fill(1.0 / (k as f32).sqrt(), &mut rows, random);
    if layout.in_place {
        return rows;
    }
    let mut panels = vec![0; n.div_ceil(layout.panel_rows) * layout.panel_bytes];
    let rows = rows.chunks(layout.panel_rows * row_bytes);
    for (rows, panel) in rows.zip(panels.chunks_exact_mut(layout.panel_bytes)) {
        kernel.pack_panel(rows, rows.len() / row_bytes, k, panel);
    }
    panels
}
