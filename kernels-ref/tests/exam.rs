//! The reference sits its own exam: what it is compared with there is itself, but also f64, canaries and other tiles.

use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::exam::{self, Exam, Panels, Product, Tile};
use rml_kernels_ref::format::Format;
use rml_kernels_ref::matmul::matmul;
use rml_kernels_ref::{attention, dequantize, gate, norm, quantize, rope, softmax};

/// The reference product, in place.
struct Reference {
    id: String,
    format: Format,
    /// Writes one number behind its tile.
    writes_past: bool,
}

impl Reference {
    fn new(format: Format, writes_past: bool) -> Self {
        Reference { id: format!("reference:{format}·{}:1x1", activation(format).name()), format, writes_past }
    }
}

fn activation(format: Format) -> ActivationKind {
    if format.is_float() { ActivationKind::F32 } else { ActivationKind::Q8 }
}

impl Product for Reference {
    fn id(&self) -> &str {
        &self.id
    }

    fn format(&self) -> Format {
        self.format
    }

    fn activation(&self) -> ActivationKind {
        activation(self.format)
    }

    fn exact(&self) -> bool {
        true
    }

    fn panels(&self, _: usize, k: usize) -> Result<Panels, String> {
        let bytes = self.format.row_bytes(k).ok_or("no whole blocks")?;
        Ok(Panels { rows: 1, bytes, in_place: true })
    }

    fn pack_panel(&self, _: &[u8], _: usize, _: usize, _: &mut [u8]) {
        unreachable!("in place");
    }

    fn multiply(&self, weights: &[u8], _: usize, _: usize, _: Panels, x: &Activations<'_>, mut out: Tile<'_>) {
        let cols = out.cols.clone();
        matmul(self.format, weights, cols.clone(), x, &mut out);
        if self.writes_past && x.m > 0 && cols.end < out.stride {
            out.cells[cols.end] = 0.0;
        }
    }
}

#[test]
fn the_reference_passes() {
    let mut exam = Exam::new("reference", "");
    exam::embed_row(&mut exam, dequantize::dequantize_row);
    exam::rms_norm(&mut exam, norm::rms_norm);
    exam::quantize(&mut exam, quantize::quantize);
    exam::rope_pairs(&mut exam, rope::rope_pairs);
    exam::rope_halves(&mut exam, rope::rope_halves);
    exam::attend(&mut exam, attention::attend);
    exam::softmax(&mut exam, softmax::softmax);
    exam::silu_mul(&mut exam, gate::silu_mul);
    exam::gelu_mul(&mut exam, gate::gelu_mul);
    exam::limited_mul(&mut exam, gate::limited_mul);
    exam::soft_cap(&mut exam, gate::soft_cap);
    exam::add(&mut exam, gate::add);
    for format in Format::ALL {
        exam::product(&mut exam, &Reference::new(format, false));
    }
    let report = exam.finish();
    assert!(report.passed() && report.cases() > 5000, "{report}");
}

#[test]
fn a_product_that_writes_past_its_tile_is_named() {
    let mut exam = Exam::new("reference", "");
    exam::product(&mut exam, &Reference::new(Format::Q8_0, true));
    let report = exam.finish();
    let failure = report.failures().iter().find(|f| f.property == "writes_only_its_output").expect("canaries are looked at");
    assert!(failure.fault.contains("tile of columns"), "{report}");
}

/// A failure prints the words that run its case again, and only that case's sizes.
#[test]
fn words_pick_cases() {
    let sit = |only: &str| {
        let mut exam = Exam::new("reference", only);
        exam::softmax(&mut exam, |x| x.fill(0.5));
        exam.finish()
    };
    let all = sit("");
    let failure = all.failures().iter().find(|f| f.property == "softmax_sums_to_one").expect("0.5 a number is no softmax");
    let again = sit(&failure.line());
    assert!(again.failures().contains(failure), "the same seed and the same numbers; {again}");
    assert!(again.failures().iter().all(|f| f.sizes == failure.sizes) && again.cases() <= 3, "{again}");
    assert_eq!(sit("reference n=4711").cases(), 0);
}
