//! Attention over the key-value cache, a span of keys at a time.
//!
//! Keys are walked in blocks of [`KEY_BLOCK`] at absolute positions; each block is taken relative to its own maximum and
//! folded into the state of its span, spans are merged in order. So the result depends on the positions alone, not on
//! chunks, tiles or threads. The running maximum is that of Milakov and Gimelshein 2018, arXiv 1805.02867.

use std::ops::Range;

use half::f16;

use crate::exp::exp;
use crate::kv::{AttendSpan, KEY_BLOCK, KEY_PANEL, KEY_SPAN, KvHead, KvHeadMut, SpanState};
use crate::lanes::{self, LANES};

/// Attends over one span, see [`AttendSpan`] and [`SpanState`].
///
/// - Formula: for each block of keys: `s = scale * (q . k)`, `m` their largest, `p = exp(s - m)`, `l = sum p`,
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
pub fn merge_spans(so_far: &mut SpanState<'_>, span: &SpanState<'_>) {
    let d = so_far.out.len() / so_far.max.len();
    for (r, (out, out2)) in so_far.out.chunks_exact_mut(d).zip(span.out.chunks_exact(d)).enumerate() {
        Fold::new(&mut so_far.max[r], &mut so_far.sum[r], span.max[r], span.sum[r]).apply(out, out2);
    }
}

/// Divides each row by its sum: `out * (1 / sum)`.
pub fn finish(state: &mut SpanState<'_>) {
    let d = state.out.len() / state.sum.len();
    for (out, &sum) in state.out.chunks_exact_mut(d).zip(&*state.sum) {
        let inv = 1.0 / sum;
        for out in out {
            *out *= inv;
        }
    }
}

/// Where component `j` of key `t` stands.
fn key_index(t: usize, j: usize, d: usize) -> usize {
    (t / KEY_PANEL * d + j) * KEY_PANEL + t % KEY_PANEL
}

/// Writes key and value (both (d)) of position `t` into the cache of a head; f16 rounds to even.
pub fn append(kv: &mut KvHeadMut<'_>, t: usize, key: &[f32], value: &[f32]) {
    let d = key.len();
    assert_eq!(d, value.len(), "append");
    match kv {
        KvHeadMut::F16 { k, v } => {
            for (j, (&key, &value)) in key.iter().zip(value).enumerate() {
                k[key_index(t, j, d)] = f16::from_f32(key);
                v[t * d + j] = f16::from_f32(value);
            }
        }
        KvHeadMut::F32 { k, v } => {
            for (j, (&key, &value)) in key.iter().zip(value).enumerate() {
                k[key_index(t, j, d)] = key;
                v[t * d + j] = value;
            }
        }
    }
}
