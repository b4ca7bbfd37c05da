//! The merge of two spans.

use std::arch::aarch64::*;

use rml_kernels_ref::kv::SpanState;

use super::block::{Fold, fold};
use crate::neon::lanes::{all, zip};

pub(in crate::neon) fn merge_spans(so_far: &mut SpanState<'_>, span: &SpanState<'_>) {
    let rows = span.sum.len();
    assert!(so_far.sum.len() == rows && so_far.max.len() == rows && span.max.len() == rows, "merge_spans: {rows} rows");
    assert!(so_far.out.len() == span.out.len() && (rows == 0 || span.out.len().is_multiple_of(rows)), "merge_spans: outputs");
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { merge_neon(so_far, span) }
}

#[target_feature(enable = "neon")]
fn merge_neon(so_far: &mut SpanState<'_>, span: &SpanState<'_>) {
    let rows = span.sum.len();
    let d = span.out.len() / rows.max(1);
    for r in 0..rows {
        let [how] = fold(&[span.max[r]], &[span.sum[r]], &mut so_far.max[r..], &mut so_far.sum[r..]);
        let (out, out2) = (&mut so_far.out[r * d..][..d], &span.out[r * d..][..d]);
        match how {
            Fold::Keep => {}
            Fold::Replace => out.copy_from_slice(out2),
            Fold::Mix(a, b) => {
                let (a, b) = (all(a), all(b));
                zip(out, out2, |out, out2| vfmaq_f32(vmulq_f32(out2, b), out, a));
            }
        }
    }
}
