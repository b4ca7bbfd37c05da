//! The exam of `rml-kernels-ref`, sat by a table of kernels.

use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::exam::{self, Exam, Panels, Product, Tile};
pub use rml_kernels_ref::exam::{Failure, Report};
use rml_kernels_ref::format::Format;

use std::io::Write;

use crate::matmul::{MatmulKernel, PackedLayout, Weights};
use crate::table::Slot;
use crate::{CpuFeatures, KernelTable, Registry, TileMut};

/// The exam of the registered backend called `name`, for a test of it; `RML_EXAM` picks cases by the words of their line.
///
/// Where the backend cannot run, the test says on standard error that it was skipped, and why. Where it passes, the number of cases
/// stands on standard output: `cargo test -- --nocapture` shows it.
///
/// # Panics
/// With the report if a case fails; if no backend can have that name, not exactly one has it, none of its kernels sat or
/// `RML_DISABLE` is wrong.
pub fn assert_passes(name: &str) {
    let registry = Registry::new(CpuFeatures::detect(&std::env::var("RML_DISABLE").unwrap_or_default()).unwrap_or_else(|e| panic!("{e}")));
    if let Some(fault) = crate::registry::unfit(name) {
        panic!("{fault}");
    }
    let namesakes = registry.backends().iter().filter(|r| r.backend.name() == name).count();
    assert!(namesakes < 2, "{namesakes} backends are called {name}; give yours a name of its own, and register it once");
    if let Some(refusal) = registry.backends().iter().find(|r| r.backend.name() == name).and_then(|r| r.refusal.as_ref()) {
        // Past the capture of tests that pass.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {refusal}");
        return;
    }
    let hint = "does it stand in register!, and does the test link its crate (`use the_crate as _;`)?";
    let table = registry.table_of(name).unwrap_or_else(|e| panic!("{e}; {hint}"));
    let only = std::env::var("RML_EXAM").unwrap_or_default();
    let report = sit(&table, name, &only);
    assert!(report.cases() > 0, "{name} sat no case with the words {only:?}; does install put its kernels under its own name?");
    assert!(report.passed(), "{report}");
    println!("{report}");
}

/// Examines every kernel in `table` that `owner` put there.
///
/// `only` picks cases by words of their line, see [`Exam::new`]; empty for all.
pub fn sit(table: &KernelTable, owner: &str, only: &str) -> Report {
    /// The slot's kernel sits, if it is the owner's.
    fn slot<F: Copy>(exam: &mut Exam, owner: &str, slot: &Slot<F>, examine: impl FnOnce(&mut Exam, F)) {
        if slot.owner() == owner {
            examine(exam, slot.get());
        }
    }
    let mut sitting = Exam::new(owner, only);
    let exam = &mut sitting;
    slot(exam, owner, &table.embed_row, exam::embed_row);
    slot(exam, owner, &table.rms_norm, exam::rms_norm);
    slot(exam, owner, &table.quantize, exam::quantize);
    slot(exam, owner, &table.rope_pairs, exam::rope_pairs);
    slot(exam, owner, &table.rope_halves, exam::rope_halves);
    slot(exam, owner, &table.attend, exam::attend);
    slot(exam, owner, &table.append, exam::append);
    slot(exam, owner, &table.merge_spans, exam::merge_spans);
    slot(exam, owner, &table.softmax, exam::softmax);
    slot(exam, owner, &table.silu_mul, exam::silu_mul);
    slot(exam, owner, &table.gelu_mul, exam::gelu_mul);
    slot(exam, owner, &table.limited_mul, exam::limited_mul);
    slot(exam, owner, &table.soft_cap, exam::soft_cap);
    slot(exam, owner, &table.add, exam::add);
    for format in Format::ALL {
        for &(_, kernel) in table.matmul(format).iter().filter(|(of, _)| *of == owner) {
            exam::product(exam, &Candidate(kernel));
        }
    }
    sitting.finish()
}

/// A [`MatmulKernel`] as the exam sees it.
struct Candidate(&'static dyn MatmulKernel);

impl Product for Candidate {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn format(&self) -> Format {
        self.0.format()
    }

    fn activation(&self) -> ActivationKind {
        self.0.activation()
    }

    fn exact(&self) -> bool {
        self.0.exact()
    }

    fn panels(&self, n: usize, k: usize) -> Result<Panels, String> {
        let PackedLayout { panel_rows, panel_bytes, in_place } = self.0.layout(n, k).map_err(|refusal| refusal.to_string())?;
        Ok(Panels { rows: panel_rows, bytes: panel_bytes, in_place })
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        self.0.pack_panel(src, n_rows, k, dst);
    }

    fn multiply(&self, bytes: &[u8], n: usize, k: usize, panels: Panels, x: &Activations<'_>, out: Tile<'_>) {
        let layout = PackedLayout { panel_rows: panels.rows, panel_bytes: panels.bytes, in_place: panels.in_place };
        let mut tile = TileMut::columns(out.cells, x.m, out.stride, out.cols);
        self.0.multiply(&Weights { n, k, layout, bytes }, x, &mut tile);
    }
}
