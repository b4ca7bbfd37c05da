//! The backend `accelerate` over a CBLAS that is not Apple's: OpenBLAS on Linux. It needs the feature `cblas`.

use rml_backends::accelerate::Accelerate;
use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_backends::reference_backend::Ref;
use rml_backends::{Backend, CpuFeatures, KernelTable, Registry, TileMut, exam};
use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations, Q8, Q8RowMut};
use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::exam::bounds;
use rml_kernels_ref::exam::fills::{Fill, Random, WeightFill};
use rml_kernels_ref::format::Format;

/// The table of the backend, over the reference where `disable` takes all else away.
fn table(disable: &str) -> KernelTable {
    let backends: [&'static dyn Backend; 2] = [&Ref, &Accelerate];
    let cpu = CpuFeatures::detect(disable).expect("features of this CPU");
    Registry::of(cpu, backends).table_of("accelerate").expect("it runs anywhere")
}

#[cfg(target_arch = "x86_64")]
const OVER: [&str; 2] = ["", "avx2"];
#[cfg(not(target_arch = "x86_64"))]
const OVER: [&str; 1] = [""];

fn own(table: &KernelTable, format: Format) -> &'static dyn MatmulKernel {
    let own: Vec<_> = table.matmul(format).iter().filter(|(owner, _)| *owner == "accelerate").collect();
    let [(_, kernel)] = own[..] else { panic!("one product of {format}: {own:?}") };
    *kernel
}

#[test]
fn it_passes_the_exam_of_those_that_are_not_exact() {
    for disable in OVER {
        let report = exam::sit(&table(disable), "accelerate", &std::env::var("RML_EXAM").unwrap_or_default());
        assert!(report.passed(), "{report}");
    }
}

/// Random weights of `n` rows as the kernel packs them, and as numbers. (n, k)
fn weights(kernel: &dyn MatmulKernel, n: usize, k: usize, random: &mut Random) -> (PackedLayout, Vec<u8>, Vec<f32>) {
    let format = kernel.format();
    let rows = WeightFill::Ordinary.rows(format, n, k, random);
    let row_bytes = rows.len() / n;
    let mut numbers = vec![0.0; n * k];
    dequantize_row(format, &rows, &mut numbers);
    let layout = kernel.layout(n, k).expect("a shape that is taken");
    if layout.in_place {
        return (layout, rows, numbers);
    }
    let mut panels = vec![0; n.div_ceil(layout.panel_rows) * layout.panel_bytes];
    for (rows, panel) in rows.chunks(layout.panel_rows * row_bytes).zip(panels.chunks_exact_mut(layout.panel_bytes)) {
        kernel.pack_panel(rows, rows.len() / row_bytes, k, panel);
    }
    (layout, panels, numbers)
}

/// Sizes that meet and miss each block of the scratch: every output against f64, within what a sum in f32 of any order may be off.
#[test]
fn many_tokens_are_within_the_bound_of_a_sum() {
    for (format, disable) in Format::ALL.into_iter().flat_map(|format| OVER.map(|disable| (format, disable))) {
        let kernel = own(&table(disable), format);
        assert!(!kernel.exact() && kernel.instead(16).is_none(), "{}", kernel.id());
        for (m, n, blocks) in [(16, 16, 1_usize), (17, 129, 3), (128, 31, 2), (129, 128, 5), (300, 257, 4)] {
            let k =
                if format.is_float() { blocks * 256 + 1 - blocks % 2 } else { (blocks * 256 - 32).next_multiple_of(format.block_len()) };
            let random = &mut Random::new((m + n + k) as u64);
            let (layout, bytes, w) = weights(kernel, n, k, random);
            let x = Fill::Gaussian.numbers(m * k, random);
            let mut q8 = (vec![0_i8; m * k], vec![0.0; m * k / 32], vec![0.0; m * k / 32], vec![0_i16; m * k / 16]);
            let (data, x) = match kernel.activation() {
                ActivationKind::F32 => (ActivationData::F32(&x), x.clone()),
                ActivationKind::Q8 => {
                    let (q, scale, scaled_sum, sum) = (&mut q8.0[..], &mut q8.1[..], &mut q8.2[..], &mut q8.3[..]);
                    rml_kernels_ref::quantize::quantize(&x, &mut Q8RowMut { q, scale, scaled_sum, sum });
                    let (q, scale, scaled_sum, sum) = (&q8.0[..], &q8.1[..], &q8.2[..], &q8.3[..]);
                    let taken = q.iter().enumerate().map(|(i, &q)| f32::from(q) * scale[i / 32]).collect();
                    (ActivationData::Q8(Q8 { q, scale, scaled_sum, sum }), taken)
                }
            };
            let mut out = vec![f32::NAN; m * n];
            let weights = Weights { n, k, layout, bytes: &bytes };
            kernel.multiply(&weights, &Activations { m, k, data }, &mut TileMut::whole(&mut out, m, n));
            // A product and `k - 1` additions, in any order: each rounding is at most U of what is summed so far.
            let share = k as f64 * bounds::U / (1.0 - k as f64 * bounds::U);
            for (i, r) in (0..m).step_by(7).flat_map(|i| (0..n).map(move |r| (i, r))) {
                let terms = (0..k).map(|j| f64::from(w[r * k + j]) * f64::from(x[i * k + j]));
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                let got = f64::from(out[i * n + r]);
                assert!((got - sum).abs() <= share * size, "{} m={m} n={n} k={k}: {got} at ({i}, {r}), not {sum}", kernel.id());
            }
        }
    }
}

#[test]
fn a_few_tokens_are_left_to_the_kernel_that_packed() {
    for (format, disable) in Format::ALL.into_iter().flat_map(|format| OVER.map(|disable| (format, disable))) {
        let table = table(disable);
        let kernel = own(&table, format);
        let other = kernel.instead(1).expect("one token is decode");
        assert!(kernel.instead(15).is_some_and(|k| k.id() == other.id()) && other.exact(), "{}", kernel.id());
        // Formats that avx2 decodes as it packs are in panels of its own.
        let avx2 = Registry::new(CpuFeatures::detect("").expect("features")).table_of("avx2");
        let readable = avx2.is_ok_and(|table| table.matmul(format).last().is_some_and(|(_, kernel)| kernel.unpack().is_some()));
        let expected = if disable == OVER[0] && readable { "avx2:" } else { "ref:" };
        assert!(other.id().starts_with(expected), "{} leaves them to {}", kernel.id(), other.id());
        assert_eq!(kernel.layout(33, 512), other.layout(33, 512));
    }
}

/// What widens a panel gives the weights that the file had, to the bit: every kernel that lets others read its panels.
#[test]
fn panels_are_widened_to_the_weights_they_were_packed_from() {
    let all = Registry::new(CpuFeatures::detect("").expect("features")).table();
    for format in Format::ALL {
        for (kernel, unpack) in all.matmul(format).iter().filter_map(|&(_, kernel)| Some((kernel, kernel.unpack()?))) {
            let (n, k) = (21, 2 * format.block_len().max(16));
            let (layout, bytes, w) = weights(kernel, n, k, &mut Random::new(7));
            let (first, stride) = (k / 2, layout.panel_rows + 3);
            for (p, panel) in bytes.chunks_exact(layout.panel_bytes).enumerate() {
                let mut out = vec![f32::NAN; (k - first) * stride];
                unpack(format, panel, first..k, &mut out, stride);
                for (j, r) in (first..k).flat_map(|j| (0..layout.panel_rows).map(move |r| (j, r))) {
                    let want = w.get((p * layout.panel_rows + r) * k + j).copied().unwrap_or(0.0);
                    let got = out[(j - first) * stride + r];
                    let padding = p * layout.panel_rows + r >= n;
                    assert!(
                        got.to_bits() == want.to_bits() || padding && got == 0.0,
                        "{}: row {r}, column {j}: {got}, not {want}",
                        kernel.id()
                    );
                }
            }
        }
    }
}
