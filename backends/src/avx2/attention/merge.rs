//! The merge of two spans.

use std::arch::x86_64::*;

use rml_kernels_ref::kv::SpanState;

use super::block::{Fold, fold};
use crate::avx2::lanes::zip;

pub(crate) fn merge_spans(so_far: &mut SpanState<'_>, span: &SpanState<'_>) {
    let rows = span.sum.len();
    assert!(so_far.sum.len() == rows && so_far.max.len() == rows && span.max.len() == rows, "merge_spans: {rows} rows");
    assert!(so_far.out.len() == span.out.len() && (rows == 0 || span.out.len().is_multiple_of(rows)), "merge_spans: outputs");
    // SAFETY: installed.
    unsafe { merge_avx2(so_far, span) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn merge_avx2(so_far: &mut SpanState<'_>, span: &SpanState<'_>) {
    let rows = span.sum.len();
    let d = span.out.len() / rows.max(1);
    for r in 0..rows {
        let [how] = fold(&[span.max[r]], &[span.sum[r]], &mut so_far.max[r..], &mut so_far.sum[r..]);
        let (out, out2) = (&mut so_far.out[r * d..][..d], &span.out[r * d..][..d]);
        match how {
            Fold::Keep => {}
            Fold::Replace => out.copy_from_slice(out2),
            Fold::Mix(a, b) => {
                let (a, b) = (_mm256_set1_ps(a), _mm256_set1_ps(b));
                zip(out, out2, |out, out2| _mm256_fmadd_ps(out, a, _mm256_mul_ps(out2, b)));
            }
        }
    }
}
