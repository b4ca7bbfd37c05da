//! The forward pass: tokens in, logits out, a page a layer.

mod buffers;
mod experts;
mod prepare;
mod products;
mod trace;

use rml_backends::KernelTable;
use rml_backends::table::{GatedActivation, Slot};
use rml_kernels_ref::gate::scale;
use rml_kernels_ref::kv::KvType;
use rml_kernels_ref::rope::angles;

use super::attention::{Angles, Layer};
use super::kv::KvCache;
use crate::exec::{Arena, Chain, Pass};
use crate::model::{Config, Gate, HeadNorm, Model};
use crate::{Error, Result};
use buffers::{ALONE, Buffers};
use prepare::Lacking;
use products::{fine_tiles, gate_tiles, in_tiles, plain_tiles};

/// Tokens that go through the layers at once in prefill.
pub const CHUNK: usize = 512;

/// The logits asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Of the last token alone.
    Last,
    /// Of every token.
    All,
}

/// What one sequence needs to run: its cache, the arena of a step, and the logits of the last pass.
#[derive(Debug)]
pub struct State {
    cache: KvCache,
    arena: Arena,
    logits: Vec<f32>,              // (rows, n_vocab)
    frequencies: Vec<Frequencies>, // of each way to rotate
    chunk: usize,
}

/// How fast pairs turn in the context of a state.
#[derive(Debug)]
struct Frequencies {
    of: Vec<f32>, // (n_rot / 2)
    magnitude: f32,
}

impl State {
    /// A state for up to `capacity` positions.
    ///
    /// # Errors
    /// If `capacity` is 0, or memory is short.
    pub fn new(model: &Model, kind: KvType, capacity: usize) -> Result<Self> {
        Self::with_chunk(model, kind, capacity, CHUNK)
    }

    /// As [`new`](Self::new), with chunks of at most `chunk` tokens. Logits do not depend on it.
    ///
    /// # Errors
    /// If `capacity` or `chunk` is 0, or memory is short.
    pub fn with_chunk(model: &Model, kind: KvType, capacity: usize, chunk: usize) -> Result<Self> {
        if chunk == 0 {
            return Err(Error::invalid("chunk", "0 tokens; it must be at least 1"));
        }
        let config = model.config();
        let cache = KvCache::new(config, kind, capacity)?;
        let chunk = chunk.min(capacity);
        let n_threads = model.team().n_threads();
        let arena = Arena::for_plan(|arena| _ = Buffers::new(arena, config, chunk, n_threads, capacity))?;
        let frequencies = config.ropes().map(|rope| Frequencies { of: rope.frequencies(capacity), magnitude: rope.magnitude }).collect();
        Ok(State { cache, arena, logits: vec![0.0; config.n_vocab], frequencies, chunk })
    }

    /// The key-value cache.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    pub(crate) fn cache_mut(&mut self) -> &mut KvCache {
        &mut self.cache
    }

    /// Forgets all positions from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
    }

    /// Tokens a chunk.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Makes room for the logits of `n_rows` tokens, so that passes which ask for all of them allocate nothing.
    pub fn reserve_rows(&mut self, model: &Model, n_rows: usize) {
        let n = n_rows * model.config().n_vocab;
        if self.logits.len() < n {
            self.logits.resize(n, 0.0);
        }
    }

    /// Runs up to [`chunk`](Self::chunk) tokens at the end of the sequence and returns their logits. (rows, n_vocab)
    ///
    /// # Errors
    /// If `tokens` is empty, has an id beyond the vocabulary, or does not fit into chunk or cache; the cache is then as it was.
    pub fn forward(&mut self, model: &Model, tokens: &[u32], rows: Rows) -> Result<&[f32]> {
        let config = model.config();
        let first = self.cache.len();
        check(config, tokens, first, self.cache.capacity(), self.chunk)?;
        let n_rows = if rows == Rows::All { tokens.len() } else { 1 };
        self.reserve_rows(model, n_rows);
        let logits = &mut self.logits[..n_rows * config.n_vocab];
        let capacity = self.cache.capacity();
        let n_threads = model.team().n_threads();
        let buffers = Buffers::new(self.arena.reset(), config, self.chunk, n_threads, capacity);
        let frequencies = &self.frequencies;
        Step { model, table: model.table(), config, frequencies, m: tokens.len(), first, phase: 0 }.run(
            &mut model.team().pass(),
            tokens,
            &mut self.cache,
            buffers,
            logits,
        );
        self.cache.advance(tokens.len());
        Ok(logits)
    }

    /// The logits of the last pass. (rows, n_vocab)
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }
}

fn check(config: &Config, tokens: &[u32], first: usize, capacity: usize, chunk: usize) -> Result<()> {
    if tokens.is_empty() {
        return Err(Error::invalid("tokens", "there are none; a pass needs at least one"));
    }
    if tokens.len() > chunk {
        return Err(Error::out_of_range("tokens", format!("{} are more than a chunk of {chunk}", tokens.len())));
    }
    if tokens.len() > capacity - first {
        return Err(Error::out_of_range(
            "context",
            format!("{first} positions are filled and {} more asked for, of {capacity}", tokens.len()),
        ));
    }
    if let Some(&id) = tokens.iter().find(|&&id| id as usize >= config.n_vocab) {
        return Err(Error::invalid("tokens", format!("id {id} is not below the vocabulary's {}", config.n_vocab)));
    }
    Ok(())
}

/// One pass over `m` tokens.
struct Step<'a> {
    model: &'a Model,
    table: &'a KernelTable,
    config: &'a Config,
    frequencies: &'a [Frequencies],
    m: usize,
    first: usize, // position of the first token
    phase: usize,
}

impl Step<'_> {
    fn run(&mut self, pass: &mut Pass<'_>, tokens: &[u32], cache: &mut KvCache, b: Buffers<'_>, logits: &mut [f32]) {
        let Config { d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, .. } = *self.config;
        let m = self.m;
        let Buffers { x, q, k, v, attn, out, gate, up, cos, sin, mut shared, own, attend, mut partials, mut routed, spare } = b;
        let x = &mut x[..m * d_model];
        let q = &mut q[..m * n_heads * d_head];
        let attn = &mut attn[..m * n_heads * d_head];

        for (row, &id) in x.chunks_exact_mut(d_model).zip(tokens) {
            self.model.embed(id, row);
        }
        let half = self.config.rope.n_rot / 2;
        for (r, frequencies) in self.frequencies.iter().enumerate() {
            for i in 0..m {
                let at = (r * m + i) * half;
                angles(self.first + i, &frequencies.of, frequencies.magnitude, &mut cos[at..][..half], &mut sin[at..][..half]);
            }
        }
        let angles = Angles { cos, sin, half };

        let mut lacking = None;
        for (layer, w) in self.model.weights().layers.iter().enumerate() {
            // norm, quantize, q k v
            let wanted = self.wanted(d_model, w.attn_norm.as_deref(), &[&w.q, &w.k, &w.v]).fine();
            let input = self.prepare(pass, &mut shared, x, lacking, wanted);
            let grid = |w| self.grid(m, &[w], pass);
            let (k_tiles, v_tiles) = (fine_tiles(k, m, &w.k, grid(&w.k)), fine_tiles(v, m, &w.v, grid(&w.v)));
            let tiles = Chain::new([plain_tiles(q, m, &w.q, grid(&w.q)), k_tiles, v_tiles], grid(&w.q).down);
            self.product(pass, &input, &shared, own, tiles, |s, prepared, (member, mut tile)| match member {
                0 => s.multiply(&w.q, prepared, &input, &mut tile.0),
                _ => s.multiply_fine([&w.k, &w.v][member - 1], prepared, &input, &mut tile),
            });
            let (k, v) = (&mut k[..m * n_kv_heads * d_head], &v[..m * n_kv_heads * d_head]);

            // norm of heads, rope, append, attend
            let qk_norm = w.qk_norm.as_ref().map(|(q, k)| [&q[..], &k[..]]);
            let by_row = self.config.family.head_norm == HeadNorm::Row;
            if let Some(weights) = qk_norm.filter(|_| by_row) {
                self.normalize_rows(pass, (q, k), weights, attn);
            }
            self.trace_attention(layer);
            let (table, config) = (self.table, self.config);
            let head_norms = qk_norm.filter(|_| !by_row);
            let angles = config.rope_of(layer).map(|r| angles.after(r, m));
            let sinks = w.sinks.as_deref();
            let attention = Layer { table, config, layer, m, first: self.first, head_norms, angles, sinks };
            attention.run(pass, cache, (q, k, v), attend, &mut partials, attn);

            // output
            let input = self.prepare_whole(pass, &mut shared, attn, self.wanted(n_heads * d_head, None, &[&w.output]));
            lacking = self.residual(pass, &input, &w.output, w.post_attention_norm.as_deref(), &shared, own, (&mut *out, x, spare));

            if let Some(router) = &w.router {
                self.finish(pass, x, lacking);
                self.experts(pass, (router, w), &mut shared, own, (gate, up, out, x), &mut routed);
                lacking = None;
                continue;
            }
            // residual, norm, quantize, gate and up
            let f = &w.ffn[0];
            let (gate, up) = (&mut gate[..m * d_ff], &mut up[..m * d_ff]);
            let input = self.prepare(pass, &mut shared, x, lacking, self.wanted(d_model, w.ffn_norm.as_deref(), &[&f.gate, &f.up]));
            self.trace_rows(self.gate().0, self.gate().1, d_ff);
            let tiles = gate_tiles((&mut *gate, &mut *up), m, f, self.grid(m, &[&f.gate, &f.up], pass));
            let at_once = m <= ALONE;
            self.product(pass, &input, &shared, own, tiles, |s, prepared, (mut gate, mut up)| {
                s.multiply(&f.gate, prepared, &input, &mut gate);
                s.multiply(&f.up, prepared, &input, &mut up);
                if at_once {
                    s.activate(&mut gate, &mut up);
                }
            });

            // activation, quantize, down
            let activation = (!at_once).then(|| Lacking::activation(up));
            let input = self.prepare(pass, &mut shared, gate, activation, self.wanted(d_ff, None, &[&f.down]));
            lacking = self.residual(pass, &input, &f.down, w.post_ffn_norm.as_deref(), &shared, own, (&mut *out, x, spare));
        }

        // The head sees only the rows that are asked for.
        let n_rows = logits.len() / n_vocab;
        let skipped = m - n_rows;
        self.m = n_rows;
        let w = self.model.weights();
        let head = &w.head;
        let lacking = lacking.map(|lacking| lacking.without(skipped * d_model));
        let input =
            self.prepare(pass, &mut shared, &mut x[skipped * d_model..], lacking, self.wanted(d_model, Some(&w.output_norm), &[head]));
        let tiles = in_tiles(logits, n_rows, head, self.grid(n_rows, &[head], pass));
        self.product(pass, &input, &shared, own, tiles, |s, prepared, mut tile| {
            s.multiply(head, prepared, &input, &mut tile);
            for i in 0..tile.m() {
                if s.config.logit_divisor != 1.0 {
                    scale(tile.row(i), 1.0 / s.config.logit_divisor);
                }
                if let Some(cap) = s.config.logit_cap {
                    s.table.soft_cap.get()(tile.row(i), cap);
                }
            }
        });
    }

    /// The activation of the feed-forward part, and the name of its slot.
    fn gate(&self) -> (&'static str, &Slot<GatedActivation>) {
        match self.config.family.gate {
            Gate::Silu => ("silu_mul", &self.table.silu_mul),
            Gate::Gelu => ("gelu_mul", &self.table.gelu_mul),
            Gate::Limited => ("limited_mul", &self.table.limited_mul),
        }
    }
}
