//! What a step tells [`Trace`](crate::exec::Trace), if there is one. Each call stands beside what it tells of.

use rml_backends::table::Slot;

use super::super::activations::Wanted;
use super::Step;
use crate::model::weights::Matrix;
use crate::model::{HeadNorm, RopeStyle};

impl Step<'_> {
    /// An operation on rows of `k` numbers.
    pub(super) fn trace_rows<F: Copy>(&self, operation: &'static str, slot: &Slot<F>, k: usize) {
        if let Some(trace) = self.model.trace() {
            trace.slot(operation, slot, (0, k), self.m);
        }
    }

    /// What comes before a product.
    pub(super) fn trace_input(&self, wanted: &Wanted<'_>) {
        if wanted.norm.is_some() {
            self.trace_rows("rms_norm", &self.table.rms_norm, wanted.k);
        }
        if wanted.kinds.q8 {
            self.trace_rows("quantize", &self.table.quantize, wanted.k);
        }
    }

    /// A product with `m` tokens.
    pub(super) fn trace_product(&self, w: &Matrix, m: usize) {
        if let Some(trace) = self.model.trace() {
            trace.matmul(self.table, w.kernel, (w.n, w.k), m);
        }
    }

    /// Rotation and attention.
    pub(super) fn trace_attention(&self, layer: usize) {
        let Some(trace) = self.model.trace() else { return };
        let (heads, kv_heads, d) = (self.config.n_heads, self.config.n_kv_heads, self.config.d_head);
        let (name, rope) = match self.config.rope.style {
            RopeStyle::Pairs => ("rope_pairs", &self.table.rope_pairs),
            RopeStyle::Halves => ("rope_halves", &self.table.rope_halves),
        };
        if self.config.family.head_norm == HeadNorm::Head {
            trace.slot("rms_norm", &self.table.rms_norm, (0, d), self.m);
        }
        if self.config.rope_of(layer).is_some() {
            trace.slot(name, rope, (heads, d), self.m);
            trace.slot(name, rope, (kv_heads, d), self.m);
        }
        trace.slot("attend", &self.table.attend, (heads, d), self.m);
    }
}
