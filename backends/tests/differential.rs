//! Every exact backend that runs here against `ref`, bit for bit, over random sizes and hostile fills.

use proptest::prelude::*;
use rml_backends::matmul::{MatmulKernel, Weights};
use rml_backends::{CpuFeatures, KernelTable, Registry, TileMut};
use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations, Q8, Q8RowMut};
use rml_kernels_ref::format::Format;
use rml_kernels_ref::kv::{AttendSpan, KEY_SPAN, KvHead, SpanState, kv_groups};
use std::io::Write;

fn tables() -> Vec<(&'static str, KernelTable)> {
    let registry = Registry::new(CpuFeatures::detect("").unwrap());
    let names = registry.backends().iter().filter(|r| r.refusal.is_none()).map(|r| r.backend.name());
    let tables = names.filter(|n| *n != "ref").map(|n| (n, registry.table_of(n).unwrap()));
    let tables: Vec<_> = tables.filter(|(_, table)| table.inexact().next().is_none()).collect();
    if tables.is_empty() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: nothing but ref runs here");
    }
    tables
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn float(&mut self, fill: u32) -> f32 {
        let r = self.next();
        let x = (r >> 40) as f32 / (1 << 23) as f32 - 1.0;
        match (fill, r % 29) {
            (1, 0) => x * 20.0,
            (2, _) => {
                if r & 1 == 0 {
                    1.0
                } else {
                    -1.0
                }
            }
            (3, 0) => f32::NAN,
            (3, 1) => f32::INFINITY,
            (3, 2) => f32::NEG_INFINITY,
            (4, _) => x * 1e-39,
            (5, _) => 0.0,
            (6, _) => f32::from_bits((r >> 8) as u32),
            _ => x,
        }
    }

    fn floats(&mut self, n: usize, fill: u32) -> Vec<f32> {
        (0..n).map(|_| self.float(fill)).collect()
    }
}

fn same(a: &[f32], b: &[f32]) -> Result<(), String> {
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        if x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan()) {
            return Err(format!("element {i}: {x:e} is not {y:e}"));
        }
    }
    Ok(())
}

struct Rows {
    q: Vec<i8>,
    scale: Vec<f32>,
    scaled_sum: Vec<f32>,
    sum: Vec<i16>,
}

impl Rows {
    fn new(m: usize, k: usize) -> Self {
        Rows { q: vec![77; m * k], scale: vec![f32::NAN; m * k / 32], scaled_sum: vec![f32::NAN; m * k / 32], sum: vec![77; m * k / 16] }
    }
    fn row(&mut self, i: usize, k: usize) -> Q8RowMut<'_> {
        Q8RowMut {
            q: &mut self.q[i * k..][..k],
            scale: &mut self.scale[i * (k / 32)..][..k / 32],
            scaled_sum: &mut self.scaled_sum[i * (k / 32)..][..k / 32],
            sum: &mut self.sum[i * (k / 16)..][..k / 16],
        }
    }
    fn view(&self) -> Q8<'_> {
        Q8 { q: &self.q, scale: &self.scale, scaled_sum: &self.scaled_sum, sum: &self.sum }
    }
}

fn weights(format: Format, n: usize, k: usize, r: &mut Random, fill: u32) -> Vec<u8> {
    let mut w: Vec<u8> = (0..n * format.row_bytes(k).unwrap())
        .map(|_| if fill == 2 { [0xff, 0x80, 0x7f, 0][(r.next() % 4) as usize] } else { r.next() as u8 })
        .collect();
    if fill != 6 && fill != 2 {
        for block in w.chunks_exact_mut(format.block_bytes()) {
            for &at in format.scale_offsets() {
                block[at + 1] = 0x20 | (block[at + 1] & 0x83);
            }
            match format {
                Format::F16 => block[1] = 0x30 | (block[1] & 0x83),
                Format::F32 => block[3] = 0x3e | (block[3] & 0x80),
                Format::BF16 => block[1] = 0x3e | (block[1] & 0x80),
                _ => {}
            }
        }
    }
    w
}

fn check_matmul(kernel: &dyn MatmulKernel, m: usize, n: usize, k: usize, seed: u64, fill: u32, extra: usize) -> Result<(), String> {
    let format = kernel.format();
    let k = k.div_ceil(format.block_len()) * format.block_len();
    let r = &mut Random(seed);
    let src = weights(format, n, k, r, fill);
    let x = r.floats(m * k, fill);
    let mut rows = Rows::new(m, k);
    for i in (0..m).filter(|_| kernel.activation() == ActivationKind::Q8) {
        rml_kernels_ref::quantize::quantize(&x[i * k..][..k], &mut rows.row(i, k));
    }
    let data = match kernel.activation() {
        ActivationKind::F32 => ActivationData::F32(&x),
        ActivationKind::Q8 => ActivationData::Q8(rows.view()),
    };
    let x = Activations { m, k, data };
    let mut want: Vec<Vec<f32>> = vec![vec![0.0; n]; m];
    rml_kernels_ref::matmul::matmul(format, &src, 0..n, &x, &mut want[..]);

    let layout = kernel.layout(n, k).unwrap();
    let row_bytes = format.row_bytes(k).unwrap();
    let n_panels = n.div_ceil(layout.panel_rows);
    let mut room = vec![0u8; n_panels * layout.panel_bytes + 64];
    let align = room.as_ptr().align_offset(64);
    let packed = &mut room[align..][..n_panels * layout.panel_bytes];
    for (p, panel) in packed.chunks_exact_mut(layout.panel_bytes.max(1)).enumerate() {
        let n_rows = layout.panel_rows.min(n - p * layout.panel_rows);
        kernel.pack_panel(&src[p * layout.panel_rows * row_bytes..][..n_rows * row_bytes], n_rows, k, panel);
    }
    let w = Weights { n, k, layout, bytes: packed };
    let stride = n + extra;
    let mut out = vec![-7.0f32; m * stride];
    // From some panel on, with canaries around.
    let first = (seed as usize % n_panels.max(1)) * layout.panel_rows;
    for cols in [0..first, first..n] {
        // SAFETY: cells of `out`, which nothing else touches while the tile lives.
        let mut tile = unsafe { TileMut::part(out.as_mut_ptr(), stride, 0..m, cols) };
        kernel.multiply(&w, &x, &mut tile);
    }
    for i in 0..m {
        same(&out[i * stride..][..n], &want[i])
            .map_err(|e| format!("{} m {m} n {n} k {k} seed {seed} fill {fill} token {i}: {e}", kernel.id()))?;
        if out[i * stride + n..(i + 1) * stride].iter().any(|&c| c != -7.0) {
            return Err(format!("{} wrote past the tile", kernel.id()));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn products(m in 0usize..20, n in 1usize..70, k in 0usize..1400, seed: u64, fill in 0u32..7, extra in 0usize..3) {
        for (_, table) in tables() {
            for format in Format::ALL {
                for (owner, kernel) in table.matmul(format) {
                    if *owner != "ref" {
                        check_matmul(*kernel, m, n, k, seed, fill, extra).map_err(TestCaseError::fail)?;
                    }
                }
            }
        }
    }

    #[test]
    fn attention(
        (m, g, d) in (1usize..20, 1usize..9, 1usize..150),
        (first, window, kind) in (0usize..700, prop_oneof![Just(usize::MAX), 1usize..200], 0usize..3),
        (seed, fill, fill_v) in (any::<u64>(), 0u32..7, 0u32..7),
    ) {
        let reference = KernelTable::reference();
        for (name, table) in tables() {
            let r = &mut Random(seed);
            let capacity = (first + m).next_multiple_of(16);
            let q_stride = g * d + seed as usize % 3;
            let q = r.floats(m * q_stride, fill);
            let (k, v) = (r.floats(capacity * d, fill), r.floats(capacity * d, fill_v));
            let (k16, v16): (Vec<_>, Vec<_>) = (k.iter().map(|&x| half::f16::from_f32(x)).collect(), v.iter().map(|&x| half::f16::from_f32(x)).collect());
            let [k8, v8] = [&k, &v].map(|x| x.iter().map(|x| x.to_bits() as i8).collect::<Vec<_>>());
            let [k_scale, v_scale] = [fill, fill_v].map(|fill| r.floats(capacity * kv_groups(d), fill).into_iter().map(half::f16::from_f32).collect::<Vec<_>>());
            let kv = match kind {
                0 => KvHead::F16 { k: &k16, v: &v16 },
                1 => KvHead::F32 { k: &k, v: &v },
                _ => KvHead::I8 { k: &k8, v: &v8, k_scale: &k_scale, v_scale: &v_scale },
            };
            for span in 0..(first + m).div_ceil(KEY_SPAN) {
                let span = AttendSpan { q: &q, q_stride, m, g, d, kv, first, window, span, scale: 0.3, cap: (seed % 3 == 0).then_some(2.0) };
                let run = |attend: rml_backends::table::Attend| {
                    let (mut out, mut max, mut sum) = (vec![f32::NAN; m * g * d], vec![f32::NAN; m * g], vec![f32::NAN; m * g]);
                    attend(&span, &mut SpanState { out: &mut out, max: &mut max, sum: &mut sum });
                    (out, max, sum)
                };
                let (got, want) = (run(table.attend.get()), run(reference.attend.get()));
                let what = format!("{name} m {m} g {g} d {d} first {first} window {window} kv {kind} seed {seed} fill {fill} {fill_v}");
                for (part, got, want) in [("max", &got.1, &want.1), ("sum", &got.2, &want.2), ("out", &got.0, &want.0)] {
                    same(got, want).map_err(|e| TestCaseError::fail(format!("{what}: {part}: {e}")))?;
                }
            }
        }
    }

    #[test]
    fn rows(n in 0usize..300, seed: u64, fill in 0u32..7, fill2 in 0u32..7) {
        let reference = KernelTable::reference();
        for (name, table) in tables() {
            let r = &mut Random(seed);
            let (x, y) = (r.floats(n, fill), r.floats(n, fill2));
            let fail = |what: &str, e: String| TestCaseError::fail(format!("{name} {what} n {n} seed {seed} fill {fill} {fill2}: {e}"));
            for (what, a, b) in [("silu", table.silu_mul.get(), reference.silu_mul.get()), ("gelu", table.gelu_mul.get(), reference.gelu_mul.get()), ("limited", table.limited_mul.get(), reference.limited_mul.get()), ("add", table.add.get(), reference.add.get())] {
                let (mut got, mut want) = (x.clone(), x.clone());
                a(&mut got, &y);
                b(&mut want, &y);
                same(&got, &want).map_err(|e| fail(what, e))?;
            }
            let (mut got, mut want) = (x.clone(), x.clone());
            table.soft_cap.get()(&mut got, 3.0);
            reference.soft_cap.get()(&mut want, 3.0);
            same(&got, &want).map_err(|e| fail("soft_cap", e))?;
            let (mut got, mut want) = (x.clone(), x.clone());
            table.softmax.get()(&mut got);
            reference.softmax.get()(&mut want);
            same(&got, &want).map_err(|e| fail("softmax", e))?;
            let (mut got, mut want) = (vec![7.0; n], vec![8.0; n]);
            table.rms_norm.get()(&x, &y, 1e-5, &mut got);
            reference.rms_norm.get()(&x, &y, 1e-5, &mut want);
            same(&got, &want).map_err(|e| fail("rms_norm", e))?;
            let k = n / 32 * 32;
            let (mut got, mut want) = (Rows::new(1, k), Rows::new(1, k));
            table.quantize.get()(&x[..k], &mut got.row(0, k));
            reference.quantize.get()(&x[..k], &mut want.row(0, k));
            same(&got.scale, &want.scale).map_err(|e| fail("quantize scale", e))?;
            same(&got.scaled_sum, &want.scaled_sum).map_err(|e| fail("quantize scaled_sum", e))?;
            prop_assert_eq!(&got.q, &want.q);
            prop_assert_eq!(&got.sum, &want.sum);
            let (h, d) = (3, n / 3);
            if d > 0 {
                let half = seed as usize % (d / 2 + 1);
                for (what, a, b) in [("pairs", table.rope_pairs.get(), reference.rope_pairs.get()), ("halves", table.rope_halves.get(), reference.rope_halves.get())] {
                    let (mut got, mut want) = (x[..h * d].to_vec(), x[..h * d].to_vec());
                    a(&mut got, d, &y[..half], &y[half..2 * half]);
                    b(&mut want, d, &y[..half], &y[half..2 * half]);
                    same(&got, &want).map_err(|e| fail(what, e))?;
                }
            }
            for format in Format::ALL {
                let k = n / format.block_len() * format.block_len();
                let row = weights(format, 1, k, r, fill);
                let (mut got, mut want) = (vec![7.0; k], vec![8.0; k]);
                table.embed_row.get()(format, &row, &mut got);
                reference.embed_row.get()(format, &row, &mut want);
                same(&got, &want).map_err(|e| fail(&format!("embed {format}"), e))?;
            }
        }
    }
}
