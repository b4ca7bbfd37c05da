//! The exam of `rml-kernels-ref`, sat by a table of kernels.

use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::exam::{self, Exam, Panels, Product, Tile};
pub use rml_kernels_ref::exam::{Failure, Report};
use rml_kernels_ref::format::Format;

use crate::matmul::{MatmulKernel, PackedLayout, Weights};
use crate::table::Slot;
use crate::{KernelTable, TileMut};

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
