//! The attention of one layer: normalize heads, rotate, append to the cache, attend.
//!
//! Keys are walked in spans of [`KEY_SPAN`] at absolute positions, each folded on its own and then merged in order, so the
//! result does not depend on how tokens or spans are shared out among threads.

use std::ops::Range;

use rml_backends::{KernelTable, TileMut};
use rml_kernels_ref::attention::{finish, sink};
use rml_kernels_ref::kv::{AttendSpan, KEY_SPAN, KvHead, KvType, SpanState};

use super::kv::{KvCache, head_mut};
use crate::exec::{Arena, Chunks, Grid, Pass, Tiles};
use crate::model::{Config, RopeStyle};

/// Tokens that one task of prefill attends for, at most.
const TOKENS: usize = 48;
/// Tokens up to which all that a KV head has to do over one span is one task: another phase would cost more than it shares out.
const FEW: usize = 8;
/// Rows, a token and a query head each, that kernels like to take together.
const ROWS: usize = 12;
const _: () = assert!(TOKENS.is_multiple_of(ROWS));

/// Angles of the positions of a pass, for one rotation or several. (rotations, m, n_rot / 2)
#[derive(Clone, Copy, Debug)]
pub(super) struct Angles<'a> {
    pub(super) cos: &'a [f32],
    pub(super) sin: &'a [f32],
    pub(super) half: usize,
}

/// Room for span states: one for each task at once, of `rows` rows.
#[derive(Debug)]
pub(super) struct States<'a> {
    out: &'a mut [f32],
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

impl<'a> States<'a> {
    pub(super) fn new(arena: &'a Arena, rows: usize, d: usize) -> Self {
        States { out: arena.slice(rows * d), max: arena.slice(rows), sum: arena.slice(rows) }
    }

    fn first(&mut self, rows: usize, d: usize) -> SpanState<'_> {
        SpanState { out: &mut self.out[..rows * d], max: &mut self.max[..rows], sum: &mut self.sum[..rows] }
    }
}

/// What each thread keeps while it attends: the state of all spans so far, and of the one at hand.
#[derive(Debug)]
pub(super) struct AttendScratch<'a> {
    so_far: States<'a>,
    span: States<'a>,
    q: &'a mut [f32],    // queries of a task, rotated (rows, d)
    head: &'a mut [f32], // (d)
}

impl<'a> AttendScratch<'a> {
    pub(super) fn new(arena: &'a Arena, config: &Config, m: usize) -> Self {
        let rows = m.min(TOKENS) * config.group();
        let d = config.d_head;
        AttendScratch {
            so_far: States::new(arena, rows, d),
            span: States::new(arena, rows, d),
            q: arena.slice(rows * d),
            head: arena.slice(d),
        }
    }
}

/// What is rotated.
#[derive(Clone, Copy)]
enum Rotated {
    Queries,
    Keys,
}

/// Partial states of a single token whose spans are shared out: one for each KV head and span.
#[derive(Debug)]
pub(super) struct Partials<'a>(States<'a>);

impl<'a> Partials<'a> {
    pub(super) fn new(arena: &'a Arena, config: &Config, capacity: usize) -> Self {
        let spans = capacity.div_ceil(KEY_SPAN);
        let rows = if spans > 1 { spans * config.n_heads } else { 0 };
        Partials(States::new(arena, rows, config.d_head))
    }
}

/// One layer's attention over `m` new tokens.
pub(super) struct Layer<'a> {
    pub(super) table: &'a KernelTable,
    pub(super) config: &'a Config,
    pub(super) layer: usize,
    pub(super) m: usize,
    pub(super) first: usize,                       // position of the first new token
    pub(super) head_norms: Option<[&'a [f32]; 2]>, // of queries and keys, where each head has one (d)
    pub(super) angles: Option<Angles<'a>>,         // where the layer rotates
    pub(super) sinks: Option<&'a [f32]>,           // (heads)
}

impl<'a> Angles<'a> {
    /// Those of the rotation that comes after `n` others, where each has `m` positions.
    pub(super) fn after(self, n: usize, m: usize) -> Self {
        let start = n * m * self.half;
        Angles { cos: &self.cos[start..], sin: &self.sin[start..], half: self.half }
    }
}

impl Layer<'_> {
    /// Normalizes and rotates queries and keys, appends keys and values, attends. `q` (m, heads * d) and `k` (m, kv_heads * d) are left in
    /// disorder; the result goes to `out` (m, heads * d).
    #[allow(clippy::too_many_arguments, reason = "the buffers of one step")]
    pub(super) fn run(
        &self,
        pass: &mut Pass<'_>,
        cache: &mut KvCache,
        (q, k, v): (&mut [f32], &mut [f32], &[f32]),
        scratch: &mut [AttendScratch<'_>],
        partials: &mut Partials<'_>,
        out: &mut [f32],
    ) {
        let Config { d_head: d, n_heads, n_kv_heads, .. } = *self.config;
        let (m, g, kind) = (self.m, self.config.group(), cache.kind());
        let spans = self.spans(self.first, m);
        let heads = cache.heads_mut(self.layer);
        let k_tiles = Tiles::columns(&mut k[..m * n_kv_heads * d], (m, n_kv_heads * d), d);
        if m <= FEW && spans.len() == 1 {
            let parts = (k_tiles, heads, Tiles::columns(&mut out[..m * n_heads * d], (m, n_heads * d), g * d));
            pass.each_with(scratch, parts, |scratch, h, (k, (keys, values), mut out)| {
                self.append(h, k, v, kind, (&mut *keys, &mut *values), scratch.head);
                self.attend_tile(h, q, head_mut(kind, d, keys, values).into_shared(), scratch, &mut out);
            });
            return;
        }
        if m == 1 {
            let q = &mut q[..n_heads * d];
            pass.each_with(scratch, (Chunks::new(q, g * d), k_tiles, heads), |scratch, h, (q, k, (keys, values))| {
                self.rotate(0, q, Rotated::Queries, scratch.head);
                self.append(h, k, v, kind, (keys, values), scratch.head);
            });
            self.attend_shared_out(pass, cache, q, spans, partials, out);
            return;
        }
        pass.each_with(scratch, (k_tiles, heads), |scratch, h, (k, (keys, values))| {
            self.append(h, k, v, kind, (keys, values), scratch.head);
        });
        let cache = &*cache;
        // Bands of whole tiles, as many tasks for each thread if that takes few more.
        let unit = (1..ROWS).find(|tokens| (tokens * g).is_multiple_of(ROWS)).unwrap_or(ROWS);
        let (fewest, most) = (m.div_ceil(TOKENS), m.div_ceil(unit));
        let even = (fewest..=most).take(pass.n_threads()).find(|bands| (bands * n_kv_heads).is_multiple_of(pass.n_threads()));
        let grid = Grid { down: even.unwrap_or(fewest), across: n_kv_heads };
        let tiles = Tiles::new(&mut out[..m * n_heads * d], (m, n_heads * d), grid, (unit, g * d));
        pass.each_with(scratch, tiles, |scratch, i, mut out| {
            let h = i % n_kv_heads;
            self.attend_tile(h, q, cache.head(self.layer, h), scratch, &mut out);
        });
    }

    /// Rotates the queries of a KV head for the tokens of `out`, and attends.
    fn attend_tile(&self, h: usize, q: &[f32], kv: KvHead<'_>, scratch: &mut AttendScratch<'_>, out: &mut TileMut<'_>) {
        let Config { d_head: d, n_heads, .. } = *self.config;
        let (tokens, width) = (out.tokens(), self.config.group() * d);
        let AttendScratch { so_far, span, q: rotated, head } = scratch;
        // All are copied first, so that the CPU can wait for several of them at once.
        for (row, i) in rotated.chunks_exact_mut(width).zip(tokens.clone()) {
            row.copy_from_slice(&q[i * n_heads * d + h * width..][..width]);
        }
        for (row, i) in rotated.chunks_exact_mut(width).zip(tokens.clone()) {
            self.rotate(i, row, Rotated::Queries, head);
        }
        let queries = self.query(rotated, width, tokens.len(), self.first + tokens.start, kv);
        self.attend(h, &queries, self.spans(queries.first, queries.m), (so_far, span));
        for (i, row) in so_far.out.chunks_exact(width).take(tokens.len()).enumerate() {
            out.row(i).copy_from_slice(row);
        }
    }

    /// Rotates the keys of a head and appends them and the values to the cache.
    fn append(&self, h: usize, mut k: TileMut<'_>, v: &[f32], kind: KvType, (keys, values): (&mut [u8], &mut [u8]), head: &mut [f32]) {
        let Config { d_head: d, n_kv_heads, .. } = *self.config;
        let append = self.table.append.get();
        let mut kv = head_mut(kind, d, keys, values);
        for i in 0..self.m {
            self.rotate(i, k.row(i), Rotated::Keys, head);
            append(&mut kv, self.first + i, k.row(i), &v[(i * n_kv_heads + h) * d..][..d]);
        }
    }

    /// Normalizes the heads of token `i`, where the layer does, and rotates them. `head` has room for one.
    fn rotate(&self, i: usize, row: &mut [f32], what: Rotated, head: &mut [f32]) {
        if let Some([of_q, of_k]) = self.head_norms {
            let weight = match what {
                Rotated::Queries => of_q,
                Rotated::Keys => of_k,
            };
            self.normalize(row, weight, head);
        }
        if let Some(Angles { cos, sin, half }) = self.angles {
            let rope = match self.config.rope.style {
                RopeStyle::Pairs => self.table.rope_pairs.get(),
                RopeStyle::Halves => self.table.rope_halves.get(),
            };
            rope(row, self.config.d_head, &cos[i * half..][..half], &sin[i * half..][..half]);
        }
    }

    /// Normalizes each head of a row in place.
    fn normalize(&self, row: &mut [f32], weight: &[f32], head: &mut [f32]) {
        for row in row.chunks_exact_mut(head.len()) {
            head.copy_from_slice(row);
            self.table.rms_norm.get()(head, weight, self.config.rms_eps, row);
        }
    }

    /// Positions that a token of this layer sees, itself included.
    fn window(&self) -> usize {
        self.config.window_of(self.layer).map_or(usize::MAX, |window| window.size)
    }

    /// The spans that `m` tokens from position `first` on see.
    fn spans(&self, first: usize, m: usize) -> Range<usize> {
        (first + 1).saturating_sub(self.window()) / KEY_SPAN..(first + m).div_ceil(KEY_SPAN)
    }

    fn query<'s>(&self, q: &'s [f32], q_stride: usize, m: usize, first: usize, kv: KvHead<'s>) -> AttendSpan<'s> {
        AttendSpan {
            q,
            q_stride,
            m,
            g: self.config.group(),
            d: self.config.d_head,
            kv,
            first,
            window: self.window(),
            span: 0,
            scale: self.config.attention_scale,
            cap: self.config.score_cap,
        }
    }

    /// Attends over `spans` in order and leaves the result in `so_far`.
    fn attend(&self, h: usize, queries: &AttendSpan<'_>, spans: Range<usize>, (so_far, span): (&mut States<'_>, &mut States<'_>)) {
        let (rows, d) = (queries.m * queries.g, queries.d);
        let attend = self.table.attend.get();
        let first = spans.start;
        attend(&AttendSpan { span: first, ..*queries }, &mut so_far.first(rows, d));
        for later in spans.skip(1) {
            attend(&AttendSpan { span: later, ..*queries }, &mut span.first(rows, d));
            self.table.merge_spans.get()(&mut so_far.first(rows, d), &span.first(rows, d));
        }
        self.finish(h, &mut so_far.first(rows, d));
    }

    /// The result of all spans, for the KV head `h`.
    fn finish(&self, h: usize, state: &mut SpanState<'_>) {
        if let Some(sinks) = self.sinks {
            let g = self.config.group();
            sink(state, &sinks[h * g..][..g]);
        }
        finish(state);
    }

    /// One token over several spans: a task for each KV head and span, then a merge for each head.
    fn attend_shared_out(
        &self,
        pass: &mut Pass<'_>,
        cache: &KvCache,
        q: &[f32],
        spans: Range<usize>,
        partials: &mut Partials<'_>,
        out: &mut [f32],
    ) {
        let Config { d_head: d, n_heads, n_kv_heads, .. } = *self.config;
        let (g, n_spans) = (self.config.group(), spans.len());
        let States { out: po, max, sum } = &mut partials.0;
        let rows = n_kv_heads * n_spans * g;
        let parts = (Chunks::new(&mut po[..rows * d], g * d), Chunks::new(&mut max[..rows], g), Chunks::new(&mut sum[..rows], g));
        pass.each(parts, |_, i, (out, max, sum)| {
            let (h, span) = (i / n_spans, spans.start + i % n_spans);
            let queries = self.query(&q[h * g * d..][..g * d], g * d, 1, self.first, cache.head(self.layer, h));
            self.table.attend.get()(&AttendSpan { span, ..queries }, &mut SpanState { out, max, sum });
        });
        let parts = (
            Chunks::new(&mut po[..rows * d], n_spans * g * d),
            Chunks::new(&mut max[..rows], n_spans * g),
            Chunks::new(&mut sum[..rows], n_spans * g),
        );
        let out = Chunks::new(&mut out[..n_heads * d], g * d);
        pass.each((parts, out), |_, h, ((po, max, sum), out)| {
            let (o0, o) = po.split_at_mut(g * d);
            let (m0, m) = max.split_at_mut(g);
            let (s0, s) = sum.split_at_mut(g);
            let mut so_far = SpanState { out: o0, max: m0, sum: s0 };
            for ((out, max), sum) in o.chunks_exact_mut(g * d).zip(m.chunks_exact_mut(g)).zip(s.chunks_exact_mut(g)) {
                self.table.merge_spans.get()(&mut so_far, &SpanState { out, max, sum });
            }
            self.finish(h, &mut so_far);
            out.copy_from_slice(so_far.out);
        });
    }
}
