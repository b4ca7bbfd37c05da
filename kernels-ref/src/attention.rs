//! Attention over the key-value cache, a span of keys at a time.
//!
//! Keys are walked in blocks of [`KEY_BLOCK`] at absolute positions; each block is taken relative to its own maximum and
//! folded into the state of its span, spans are merged in order. So the result depends on the positions alone, not on
//! chunks, tiles or threads. The running maximum is that of Milakov and Gimelshein 2018, arXiv 1805.02867.

use std::ops::Range;

pub use crate::append::append;
use crate::append::{key_index, scale_index};
use crate::exp::exp;
use crate::gate::soft_cap;
use crate::kv::{AttendSpan, KEY_BLOCK, KEY_SPAN, KvHead, SpanState};
use crate::lanes::{self, LANES};

/// Attends over one span, see [`AttendSpan`] and [`SpanState`].
///
/// - Formula: for each block of keys: `s = scale * (q . k)`, kept within `cap` if there is one, `m` their largest, `p = exp(s - m)`, `l = sum p`,
///   `o = sum p v`; then blocks fold in order as [`merge_spans`] says.
/// - Shapes: see [`AttendSpan`].
/// - Requires: keys `0 ..= first + m - 1` were appended.
/// - Numerics: `q . k` by fused multiply-add with `j` ascending from 0; `l` on 16 lanes, lane `t % 16`, ascending from 0,
///   then the tree; `o[j]` by fused multiply-add with `t` ascending from 0. Keys that a token does not see add nothing.
/// - Cost: `4 m g d` operations a key.
pub fn attend(span: &AttendSpan<'_>, state: &mut SpanState<'_>) {
    let d = span.d;
    for i in 0..span.m {
        let position = span.first + i;
        let keys_from = position.saturating_add(1).saturating_sub(span.window).max(span.span * KEY_SPAN);
        let keys_to = (position + 1).min((span.span + 1) * KEY_SPAN);
        for h in 0..span.g {
            let r = i * span.g + h;
            let q = &span.q[i * span.q_stride + h * d..][..d];
            let out = &mut state.out[r * d..][..d];
            out.fill(0.0);
            (state.max[r], state.sum[r]) = (f32::NEG_INFINITY, 0.0);
            let mut from = keys_from;
            while from < keys_to {
                let to = ((from / KEY_BLOCK + 1) * KEY_BLOCK).min(keys_to);
                attend_block(span, q, from..to, out, &mut state.max[r], &mut state.sum[r]);
                from = to;
            }
        }
    }
}

/// Folds the keys of one block into the state of a row.
fn attend_block(span: &AttendSpan<'_>, q: &[f32], keys: Range<usize>, out: &mut [f32], max: &mut f32, sum: &mut f32) {
    let mut p = [0.0_f32; KEY_BLOCK];
    let p = &mut p[..keys.len()];
    for (p, t) in p.iter_mut().zip(keys.clone()) {
        *p = score(span, q, t) * span.scale;
    }
    if let Some(cap) = span.cap {
        soft_cap(p, cap);
    }
    let block_max = lanes::max(p);
    let mut acc = [0.0_f32; LANES];
    for (p, t) in p.iter_mut().zip(keys.clone()) {
        *p = exp(*p - block_max);
        acc[t % LANES] += *p;
    }
    let fold = Fold::new(max, sum, block_max, lanes::reduce(acc));
    const PIECE: usize = 64;
    let mut piece_out = [0.0_f32; PIECE];
    for (piece, out) in out.chunks_mut(PIECE).enumerate() {
        let block_out = &mut piece_out[..out.len()];
        block_out.fill(0.0);
        for (&p, t) in p.iter().zip(keys.clone()) {
            let v = t * span.d + piece * PIECE..t * span.d + piece * PIECE + out.len();
            match span.kv {
                KvHead::F16 { v: values, .. } => accumulate(p, values[v].iter().map(|v| v.to_f32()), block_out),
                KvHead::F32 { v: values, .. } => accumulate(p, values[v].iter().copied(), block_out),
                KvHead::I8 { v: values, v_scale, .. } => {
                    let number = |(c, &q): (usize, &i8)| v_scale[scale_index(t, piece * PIECE + c, span.d)].to_f32() * f32::from(q);
                    accumulate(p, values[v].iter().enumerate().map(number), block_out);
                }
            }
        }
        fold.apply(out, block_out);
    }
}

fn score(span: &AttendSpan<'_>, q: &[f32], t: usize) -> f32 {
    let at = |j: usize| key_index(t, j, span.d);
    match span.kv {
        KvHead::F16 { k, .. } => q.iter().enumerate().fold(0.0, |s, (j, q)| q.mul_add(k[at(j)].to_f32(), s)),
        KvHead::F32 { k, .. } => q.iter().enumerate().fold(0.0, |s, (j, q)| q.mul_add(k[at(j)], s)),
        KvHead::I8 { k, k_scale, .. } => {
            let number = |j| k_scale[scale_index(t, j, span.d)].to_f32() * f32::from(k[at(j)]);
            q.iter().enumerate().fold(0.0, |s, (j, q)| q.mul_add(number(j), s))
        }
    }
}

fn accumulate(p: f32, v: impl Iterator<Item = f32>, out: &mut [f32]) {
    for (out, v) in out.iter_mut().zip(v) {
        *out = p.mul_add(v, *out);
    }
}

/// How a later state folds into an earlier one, each relative to its own maximum.
///
/// An empty side (sum 0) gives way to the other. Else `m = max(max, max2)`, `a = exp(max - m)`, `b = exp(max2 - m)`,
/// `sum = fma(sum, a, sum2 * b)` and each `out = fma(out, a, out2 * b)`.
enum Fold {
    Keep,
    Replace,
    Mix(f32, f32),
}

impl Fold {
    /// Folds maximum and sum, and says what is to happen to the outputs.
    fn new(max: &mut f32, sum: &mut f32, max2: f32, sum2: f32) -> Self {
        if sum2 == 0.0 {
            return Fold::Keep;
        }
        if *sum == 0.0 {
            (*max, *sum) = (max2, sum2);
            return Fold::Replace;
        }
        let m = if max2 > *max { max2 } else { *max };
        let (a, b) = (exp(*max - m), exp(max2 - m));
        *max = m;
        *sum = sum.mul_add(a, sum2 * b);
        Fold::Mix(a, b)
    }

    fn apply(&self, out: &mut [f32], out2: &[f32]) {
        match *self {
            Fold::Keep => {}
            Fold::Replace => out.copy_from_slice(out2),
            Fold::Mix(a, b) => {
                for (out, &out2) in out.iter_mut().zip(out2) {
                    *out = out.mul_add(a, out2 * b);
                }
            }
        }
    }
}

/// Folds the state of a later span into that of the earlier ones, row by row.
///
/// - Formula: with `M` the larger maximum, `a = exp(max - M)`, `b = exp(max2 - M)`: `sum a + sum2 b`, `out a + out2 b`.
/// - Shapes: both as [`SpanState`], for the same rows.
/// - Requires: spans come in ascending order.
/// - Numerics: `fma(out, a, out2 * b)`, `sum` likewise; where one side saw no key (`sum` 0) the other stays as it is.
/// - Cost: one pass, two exponentials a row.
pub fn merge_spans(so_far: &mut SpanState<'_>, span: &SpanState<'_>) {
    let d = head_size(span);
    for (r, (out, out2)) in so_far.out.chunks_exact_mut(d).zip(span.out.chunks_exact(d)).enumerate() {
        Fold::new(&mut so_far.max[r], &mut so_far.sum[r], span.max[r], span.sum[r]).apply(out, out2);
    }
}

/// Adds a score without a value to each row: its share of the softmax goes nowhere. Source: `attn_sinks` of gpt-oss.
///
/// - Formula: [`merge_spans`] with a state of maximum `sinks[r % g]`, sum 1 and output 0.
/// - Shapes: `state` as [`SpanState`]; `sinks` (g), one for each query head of the group.
/// - Requires: all spans are merged.
/// - Numerics: those of the merge.
/// - Cost: one pass, two exponentials a row.
pub fn sink(state: &mut SpanState<'_>, sinks: &[f32]) {
    let d = head_size(state);
    for (r, out) in state.out.chunks_exact_mut(d).enumerate() {
        match Fold::new(&mut state.max[r], &mut state.sum[r], sinks[r % sinks.len()], 1.0) {
            Fold::Mix(a, _) => out.iter_mut().for_each(|out| *out *= a),
            Fold::Keep | Fold::Replace => {}
        }
    }
}

/// Makes the state of all spans the result of attention.
///
/// - Formula: `out = out * (1 / sum)`
/// - Shapes: as [`SpanState`].
/// - Requires: every row saw a key; one that did not comes out NaN.
/// - Numerics: two roundings.
/// - Cost: one pass.
pub fn finish(state: &mut SpanState<'_>) {
    let d = head_size(state);
    for (out, &sum) in state.out.chunks_exact_mut(d).zip(&*state.sum) {
        let inv = 1.0 / sum;
        for out in out {
            *out *= inv;
        }
    }
}

/// Numbers in a row of `out`, 1 if there are no rows.
fn head_size(state: &SpanState<'_>) -> usize {
    (state.out.len() / state.sum.len().max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::kv::{KEY_PANEL, KvHeadMut};

    /// One head of size 1 whose keys are 0, so that every key seen weighs the same: the result is the mean of the values.
    fn mean(first: usize, window: usize) -> f32 {
        let n = (first + 1).next_multiple_of(KEY_PANEL);
        let (mut k, mut v) = (vec![f32::NAN; n], vec![f32::NAN; n]);
        for t in 0..=first {
            append(&mut KvHeadMut::F32 { k: &mut k, v: &mut v }, t, &[0.0], &[t as f32]);
        }
        let kv = KvHead::F32 { k: &k, v: &v };
        let new = || (vec![f32::NAN; 1], vec![f32::NAN; 1], vec![f32::NAN; 1]);
        let attend_span = |span| {
            let (mut out, mut max, mut sum) = new();
            let span = AttendSpan { q: &[1.0], q_stride: 1, m: 1, g: 1, d: 1, kv, first, window, span, scale: 1.0, cap: None };
            attend(&span, &mut SpanState { out: &mut out, max: &mut max, sum: &mut sum });
            (out, max, sum)
        };
        let (mut out, mut max, mut sum) = attend_span(0);
        let mut state = SpanState { out: &mut out, max: &mut max, sum: &mut sum };
        for span in 1..=first / KEY_SPAN {
            let (mut out, mut max, mut sum) = attend_span(span);
            merge_spans(&mut state, &SpanState { out: &mut out, max: &mut max, sum: &mut sum });
        }
        assert_eq!(state.sum[0], window.min(first + 1) as f32, "exp(0) a key");
        finish(&mut state);
        out[0]
    }

    #[test]
    fn equal_keys_give_the_mean_of_the_values_seen() {
        for first in [0, 1, 15, 16, 63, 64, 127, 511, 512, 1023, 1500] {
            assert!((mean(first, usize::MAX) - first as f32 / 2.0).abs() <= 1e-4 * first as f32, "{first}");
            for window in [1, 2, 16, 64, 100, 513].into_iter().filter(|window| *window <= first) {
                let want = first as f32 - (window - 1) as f32 / 2.0;
                assert!((mean(first, window) - want).abs() <= 1e-4 * want, "{first} {window}");
            }
        }
    }

    #[test]
    fn a_key_of_ln_3_weighs_three() {
        let mut k = vec![f16::NAN; 32];
        let mut v = vec![f16::NAN; 32];
        let kv = &mut KvHeadMut::F16 { k: &mut k, v: &mut v };
        append(kv, 0, &[0.0, 5.0], &[0.0, 8.0]);
        append(kv, 1, &[1.0, 5.0], &[4.0, 8.0]);
        let (mut out, mut max, mut sum) = ([f32::NAN; 2], [f32::NAN; 1], [f32::NAN; 1]);
        let mut state = SpanState { out: &mut out, max: &mut max, sum: &mut sum };
        let kv = KvHead::F16 { k: &k, v: &v };
        let q = [2.0 * 3.0_f32.ln(), 0.0];
        attend(
            &AttendSpan { q: &q, q_stride: 2, m: 1, g: 1, d: 2, kv, first: 1, window: usize::MAX, span: 0, scale: 0.5, cap: None },
            &mut state,
        );
        finish(&mut state);
        assert!((out[0] - 3.0).abs() < 1e-6 && (out[1] - 8.0).abs() < 1e-6, "{out:?}");
    }

    #[test]
    fn a_span_that_sees_nothing_is_empty_and_changes_nothing() {
        let (mut out, mut max, mut sum) = ([1.0, 2.0], [0.5], [3.0]);
        let mut empty = ([9.0; 2], [9.0], [9.0]);
        let mut later = SpanState { out: &mut empty.0, max: &mut empty.1, sum: &mut empty.2 };
        let kv = KvHead::F32 { k: &[f32::NAN; 32], v: &[f32::NAN; 32] };
        let span =
            AttendSpan { q: &[1.0; 2], q_stride: 2, m: 1, g: 1, d: 2, kv, first: 3, window: usize::MAX, span: 1, scale: 1.0, cap: None };
        attend(&span, &mut later);
        assert_eq!((&*later.out, &*later.max, &*later.sum), (&[0.0; 2][..], &[f32::NEG_INFINITY][..], &[0.0][..]));
        let mut state = SpanState { out: &mut out, max: &mut max, sum: &mut sum };
        merge_spans(&mut state, &later);
        merge_spans(&mut SpanState { out: &mut [], max: &mut [], sum: &mut [] }, &SpanState { out: &mut [], max: &mut [], sum: &mut [] });
        assert_eq!((out, max, sum), ([1.0, 2.0], [0.5], [3.0]));
    }
}
