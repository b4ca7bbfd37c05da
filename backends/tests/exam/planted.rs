//! The exam can fail: each fault planted here must be named.

use rml_backends::exam::{self, Report};
use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_backends::{KernelTable, Refusal, TileMut};
use rml_kernels_ref::activation::{ActivationKind, Activations, Q8RowMut};
use rml_kernels_ref::format::Format;
use rml_kernels_ref::kv::{AttendSpan, KvHead, KvHeadMut, SpanState};
use rml_kernels_ref::{attention, gate, norm, quantize, rope, softmax};

const NAME: &str = "planted";

/// The report names the operation and the property, and prints where it happened and how to see it again.
fn assert_named(report: &Report, operation: &str, property: &str) {
    assert!(report.failures().iter().all(|f| f.operation == operation && f.backend == NAME), "{report}");
    let Some(failure) = report.failures().iter().find(|f| f.property == property) else {
        panic!("{operation}: {property} was not found to fail; {report}");
    };
    let text = failure.to_string();
    for part in [NAME, operation, property, "seed=", &format!("RML_EXAM='{NAME} {operation} {}'", failure.sizes)] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert!(report.to_string().contains(" cases failed"), "{report}");
}

/// Sits the exam with one slot of the reference overwritten.
fn sit(plant: impl FnOnce(&mut KernelTable)) -> Report {
    let mut table = KernelTable::reference();
    plant(&mut table);
    exam::sit(&table, NAME, "")
}

#[test]
fn softmax_that_divides_by_a_sum_without_the_last_element() {
    let report = sit(|table| {
        table.softmax.put(NAME, |x| {
            let n = x.len();
            softmax::softmax(&mut x[..n.saturating_sub(n % 2)]);
            if n % 2 == 1 {
                softmax::softmax(&mut x[n - 1..]);
            }
        });
    });
    assert_named(&report, "softmax", "softmax_sums_to_one");
    assert_named(&report, "softmax", "softmax_equals_reference");
}

#[test]
fn norm_that_adds_in_another_order() {
    let report = sit(|table| {
        table.rms_norm.put(NAME, |x, weight, eps, out| {
            let sum: f32 = x.iter().map(|x| x * x).sum();
            let inv = 1.0 / (sum / x.len() as f32 + eps).sqrt();
            out.iter_mut().zip(x).zip(weight).for_each(|((out, x), w)| *out = x * inv * w);
        });
    });
    assert_named(&report, "rms_norm", "rms_norm_equals_reference");
    assert!(report.failures().iter().all(|f| f.property == "rms_norm_equals_reference"), "it is accurate all the same; {report}");
}

#[test]
#[cfg_attr(miri, ignore = "it is what an interpreter forbids")]
fn rows_that_write_one_element_too_many() {
    fn one_more(x: &mut [f32]) {
        // SAFETY: the exam's canaries stand behind each output, within the same allocation.
        unsafe { x.as_mut_ptr().add(x.len()).write(1.0) }
    }
    type Plant = fn(&mut KernelTable);
    let plants: [(&str, Plant); 5] = [
        ("rms_norm", |table| table.rms_norm.put(NAME, |_, _, _, out| one_more(out))),
        ("softmax", |table| table.softmax.put(NAME, one_more)),
        ("rope_pairs", |table| table.rope_pairs.put(NAME, |x, _, _, _| one_more(x))),
        ("silu_mul", |table| table.silu_mul.put(NAME, |gate, _| one_more(gate))),
        ("soft_cap", |table| table.soft_cap.put(NAME, |x, _| one_more(x))),
    ];
    for (slot, plant) in plants {
        let report = sit(plant);
        assert_named(&report, slot, "writes_only_its_output");
        let every = report.failures().len() == report.cases() && report.failures().iter().all(|f| f.property == "writes_only_its_output");
        assert!(every, "no case of {slot} lends memory without canaries; {report}");
    }
}

#[test]
fn norm_that_forgets_eps() {
    let report = sit(|table| table.rms_norm.put(NAME, |x, weight, _, out| norm::rms_norm(x, weight, 0.0, out)));
    assert_named(&report, "rms_norm", "rms_norm_is_accurate");
}

#[test]
fn quantization_that_rounds_half_away_from_zero() {
    let report = sit(|table| {
        table.quantize.put(NAME, |x, out| {
            quantize::quantize(x, out);
            let Q8RowMut { q, .. } = out;
            for (x, q) in x.chunks_exact(32).zip(q.chunks_exact_mut(32)) {
                let max = x.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
                q.iter_mut().zip(x).for_each(|(q, x)| *q = (x * (127.0 / max)).round() as i8);
            }
        });
    });
    assert_named(&report, "quantize", "quantize_equals_reference");
    assert!(report.failures().iter().any(|f| f.sizes.contains("gaussian")), "ties are among ordinary numbers; {report}");
}

#[test]
fn rope_that_turns_the_other_way() {
    let report = sit(|table| {
        table.rope_halves.put(NAME, |x, d, cos, sin| {
            let sin: Vec<f32> = sin.iter().map(|s| -s).collect();
            rope::rope_halves(x, d, cos, &sin);
        });
    });
    assert_named(&report, "rope_halves", "rope_halves_turns_by_the_angle");
}

#[test]
fn gate_of_the_wrong_kind() {
    let report = sit(|table| table.gelu_mul.put(NAME, gate::silu_mul));
    assert_named(&report, "gelu_mul", "gelu_mul_is_accurate");
    assert_named(&report, "gelu_mul", "gelu_mul_equals_reference");
}

#[test]
fn addition_that_panics() {
    let report = sit(|table| {
        table.add.put(NAME, |acc, x| {
            assert!(!acc.len().is_multiple_of(16) || acc.is_empty(), "sixteen is too much");
            gate::add(acc, x);
        });
    });
    assert_named(&report, "add", "does_not_panic");
    assert!(report.failures()[0].fault.contains("sixteen is too much"), "{report}");
}

#[test]
fn embedding_that_swaps_nibbles() {
    let report = sit(|table| {
        table.embed_row.put(NAME, |format, row, out| {
            let mut row = row.to_vec();
            if format == Format::Q4_0 {
                row.chunks_exact_mut(18).flat_map(|block| &mut block[2..]).for_each(|byte| *byte = byte.rotate_left(4));
            }
            rml_kernels_ref::dequantize::dequantize_row(format, &row, out);
        });
    });
    assert_named(&report, "embed_row", "embed_row_equals_reference");
    assert!(report.failures().iter().all(|f| f.sizes.starts_with("q4_0 ")), "{report}");
}

/// Sees one position too many, if there is one in the cache.
fn looks_ahead(span: &AttendSpan<'_>, state: &mut SpanState<'_>) {
    let (KvHead::F16 { v, .. }, window) = (span.kv, span.window) else { return attention::attend(span, state) };
    let first = if (span.first + span.m + 1) * span.d <= v.len() { span.first + 1 } else { span.first };
    attention::attend(&AttendSpan { first, window, ..*span }, state);
}

#[test]
fn attention_that_looks_ahead() {
    let report = sit(|table| table.attend.put(NAME, looks_ahead));
    assert_named(&report, "attend", "attend_equals_reference");
    assert_named(&report, "attend", "attend_is_accurate");
}

#[test]
fn attention_that_takes_the_scales_of_keys_for_those_of_values() {
    let report = sit(|table| {
        table.attend.put(NAME, |span, state| {
            let kv = match span.kv {
                KvHead::I8 { k, v, k_scale, .. } => KvHead::I8 { k, v, k_scale, v_scale: k_scale },
                kv => kv,
            };
            attention::attend(&AttendSpan { kv, ..*span }, state);
        });
    });
    assert_named(&report, "attend", "attend_equals_reference");
    assert_named(&report, "attend", "attend_is_accurate");
    assert!(report.failures().iter().all(|f| f.sizes.contains("kv=i8")), "{report}");
}

#[test]
fn append_that_rounds_scales_after_it_used_them() {
    let report = sit(|table| {
        table.append.put(NAME, |kv, t, key, value| {
            attention::append(kv, t, key, value);
            let KvHeadMut::I8 { v, .. } = kv else { return };
            for (group, q) in value.chunks(32).zip(v[t * value.len()..].chunks_mut(32)) {
                let max = group.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
                q.iter_mut().zip(group).for_each(|(q, x)| *q = (x * (127.0 / max)).round_ties_even() as i8);
            }
        });
    });
    assert_named(&report, "append", "append_equals_reference");
    assert!(report.failures().iter().any(|f| f.sizes.contains("gaussian")), "{report}");
}

#[test]
fn attention_that_depends_on_the_batch() {
    let report = sit(|table| {
        table.attend.put(NAME, |span, state| {
            attention::attend(span, state);
            if span.m > 1 && !state.out.is_empty() {
                state.out[0] = state.out[0].next_up();
            }
        });
    });
    assert_named(&report, "attend", "attend_is_independent_of_batch");
}

/// How a planted product is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    LastRowUnwritten,
    DependsOnBatch,
    DependsOnTile,
    LeavesPadding,
    NoFusion,
    AnyColumns,
    Inexact,
    Rough,
    TakesNothing,
    SaysNothing,
    NamedAsAnother,
}

/// The reference product of `Q4_1` in panels of 4, with one fault.
#[derive(Debug)]
struct Planted(Wrong);

impl MatmulKernel for Planted {
    fn id(&self) -> &'static str {
        if self.0 == Wrong::NamedAsAnother { "ref:q4_1·q8:1x1" } else { "planted:q4_1·q8:4x1" }
    }

    fn format(&self) -> Format {
        Format::Q4_1
    }

    fn activation(&self) -> ActivationKind {
        ActivationKind::Q8
    }

    fn exact(&self) -> bool {
        !matches!(self.0, Wrong::Inexact | Wrong::Rough)
    }

    fn layout(&self, n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        match self.0 {
            Wrong::TakesNothing => return Err(Refusal::new("not today")),
            Wrong::SaysNothing if n < 4 => return Err(Refusal::new(" ")),
            _ => {}
        }
        let row_bytes = match self.0 {
            Wrong::AnyColumns => (k / 32).checked_mul(20),
            _ => Format::Q4_1.row_bytes(k),
        };
        let panel_bytes = row_bytes.and_then(|bytes| bytes.checked_mul(4)).ok_or_else(|| Refusal::new("no whole blocks"))?;
        Ok(PackedLayout { panel_rows: 4, panel_bytes, in_place: false })
    }

    fn pack_panel(&self, src: &[u8], _: usize, _: usize, dst: &mut [u8]) {
        let (rows, padding) = dst.split_at_mut(src.len());
        rows.copy_from_slice(src);
        if self.0 != Wrong::LeavesPadding {
            padding.fill(0);
        }
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        let cols = out.cols();
        rml_kernels_ref::matmul::matmul(Format::Q4_1, w.bytes, cols.clone(), x, out);
        let n = cols.len();
        if x.m == 0 || n == 0 || x.k == 0 {
            return;
        }
        let next_up = |x: &mut f32| *x = x.next_up();
        match self.0 {
            Wrong::LastRowUnwritten if cols.end == w.n && n > 1 => out.row(x.m - 1)[n - 1] = f32::NAN,
            Wrong::DependsOnBatch if x.m > 4 => next_up(&mut out.row(4)[0]),
            Wrong::DependsOnTile if cols.start > 0 => next_up(&mut out.row(0)[0]),
            Wrong::LeavesPadding if !w.n.is_multiple_of(4) => out.row(0)[0] += f32::from(w.bytes[w.bytes.len() - 1]),
            Wrong::NoFusion => out.row(0).iter_mut().for_each(|x| *x += *x * 1e-7),
            Wrong::Inexact => out.row(0).iter_mut().for_each(|x| *x *= 1.03),
            Wrong::Rough => out.row(0).iter_mut().for_each(|x| *x *= 1.003),
            _ => {}
        }
    }
}

fn sit_product(kernel: &'static Planted) -> Report {
    sit(|table| table.put_matmul(NAME, kernel))
}

#[test]
fn products_with_a_fault_each() {
    let expected = [
        (&Planted(Wrong::LastRowUnwritten), "matmul_equals_reference"),
        (&Planted(Wrong::DependsOnBatch), "matmul_tokens_are_independent_of_batch"),
        (&Planted(Wrong::DependsOnTile), "matmul_rows_are_independent_of_tile"),
        (&Planted(Wrong::LeavesPadding), "pack_panel_writes_every_byte"),
        (&Planted(Wrong::LeavesPadding), "matmul_ignores_bytes_after_k"),
        (&Planted(Wrong::NoFusion), "matmul_equals_reference"),
        (&Planted(Wrong::AnyColumns), "layout_refuses_broken_blocks"),
        (&Planted(Wrong::Inexact), "matmul_is_accurate_given_f32_activations"),
        (&Planted(Wrong::Rough), "matmul_is_accurate_given_its_activations"),
        (&Planted(Wrong::TakesNothing), "layout_takes_some_shape"),
        (&Planted(Wrong::SaysNothing), "layout_says_why_it_refuses"),
        (&Planted(Wrong::NamedAsAnother), "id_says_what_it_is"),
    ];
    for (kernel, property) in expected {
        assert_named(&sit_product(kernel), kernel.id(), property);
    }
}
