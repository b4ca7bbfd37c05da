//! The forward pass: tokens in, logits out, a page a layer.

mod trace;

use rml_backends::{KernelTable, TileMut};
use rml_kernels_ref::kv::KvType;
use rml_kernels_ref::rope::angles;

use super::activations::{Input, Kinds, Prepared, fine_rows};
use super::attention::{Angles, AttendScratch, Layer, Partials};
use super::kv::KvCache;
use crate::exec::{Arena, Chain, Pass, Tiles};
use crate::model::weights::Matrix;
use crate::model::{Config, Model};
use crate::{Error, Result};

/// Tokens that go through the layers at once in prefill.
pub const CHUNK: usize = 512;

/// Up to this many tokens each thread normalizes and quantizes all of them for itself, which costs less than a phase.
const ALONE: usize = 8;

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
    logits: Vec<f32>, // (rows, n_vocab)
    chunk: usize,
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
        let arena = Arena::for_plan(|arena| _ = Buffers::new(arena, config, chunk, n_threads, capacity));
        Ok(State { cache, arena, logits: vec![0.0; config.n_vocab], chunk })
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
        Step { model, table: model.table(), config, m: tokens.len(), first, phase: 0 }.run(
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

/// Every buffer of a step, for up to `m` tokens.
struct Buffers<'a> {
    x: &'a mut [f32],                    // residual stream (m, d_model)
    q: &'a mut [f32],                    // (m, heads * d)
    k: &'a mut [f32],                    // (m, kv_heads * d), and as much for what is added to it
    v: &'a mut [f32],                    // the same
    attn: &'a mut [f32],                 // (m, heads * d)
    out: &'a mut [f32],                  // what is added to x (m, d_model)
    gate: &'a mut [f32],                 // (m, d_ff)
    up: &'a mut [f32],                   // (m, d_ff)
    cos: &'a mut [f32],                  // (m, n_rot / 2)
    sin: &'a mut [f32],                  // (m, n_rot / 2)
    shared: Prepared<'a>,                // of all tokens
    own: &'a mut [Prepared<'a>],         // of up to ALONE tokens, one for each thread
    attend: &'a mut [AttendScratch<'a>], // one for each thread
    partials: Partials<'a>,
}

impl<'a> Buffers<'a> {
    fn new(arena: &'a Arena, config: &Config, m: usize, n_threads: usize, capacity: usize) -> Self {
        let (q, kv) = (config.n_heads * config.d_head, config.n_kv_heads * config.d_head);
        let widest = config.d_model.max(config.d_ff).max(q);
        Buffers {
            x: arena.slice(m * config.d_model),
            q: arena.slice(m * q),
            k: arena.slice(2 * m * kv),
            v: arena.slice(2 * m * kv),
            attn: arena.slice(m * q),
            out: arena.slice(m * config.d_model),
            gate: arena.slice(m * config.d_ff),
            up: arena.slice(m * config.d_ff),
            cos: arena.slice(m * config.rope.n_rot / 2),
            sin: arena.slice(m * config.rope.n_rot / 2),
            shared: Prepared::new(arena, m, widest),
            own: arena.collect(n_threads, || Prepared::new(arena, m.min(ALONE), widest)),
            attend: arena.collect(n_threads, || AttendScratch::new(arena, config, m)),
            partials: Partials::new(arena, config, capacity),
        }
    }
}

/// One pass over `m` tokens.
struct Step<'a> {
    model: &'a Model,
    table: &'a KernelTable,
    config: &'a Config,
    m: usize,
    first: usize, // position of the first token
    phase: usize,
}

impl Step<'_> {
    fn run(&mut self, pass: &mut Pass<'_>, tokens: &[u32], cache: &mut KvCache, b: Buffers<'_>, logits: &mut [f32]) {
        let Config { d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, .. } = *self.config;
        let m = self.m;
        let Buffers { x, q, k, v, attn, out, gate, up, cos, sin, mut shared, own, attend, mut partials } = b;
        let x = &mut x[..m * d_model];
        let q = &mut q[..m * n_heads * d_head];
        let (attn, out) = (&mut attn[..m * n_heads * d_head], &mut out[..m * d_model]);
        let (gate, up) = (&mut gate[..m * d_ff], &mut up[..m * d_ff]);

        for (row, &id) in x.chunks_exact_mut(d_model).zip(tokens) {
            self.model.embed(id, row);
        }
        let half = self.config.rope.n_rot / 2;
        for i in 0..m {
            angles(self.first + i, &self.model.weights().rope_frequencies, &mut cos[i * half..][..half], &mut sin[i * half..][..half]);
        }
        let angles = Angles { cos, sin, half };

        for (layer, w) in self.model.weights().layers.iter().enumerate() {
            // norm, quantize, q k v
            let input = self.normed(x, d_model, &w.attn_norm, &[&w.q, &w.k, &w.v]).fine();
            let (k_tiles, v_tiles) = (self.fine_tiles(k, &w.k, pass), self.fine_tiles(v, &w.v, pass));
            let tiles = Chain([self.tiles(q, &w.q, pass), k_tiles, v_tiles]);
            self.product(pass, &input, &mut shared, own, tiles, |s, prepared, (member, _, mut tile)| match member {
                0 => s.multiply(&w.q, &prepared.view(&input, w.q.kernel.activation()), &mut tile),
                _ => s.multiply_fine([&w.k, &w.v][member - 1], prepared, &input, &mut tile),
            });
            let (k, v) = (&mut k[..m * n_kv_heads * d_head], &v[..m * n_kv_heads * d_head]);

            // rope, append, attend
            self.trace_attention();
            let (table, config) = (self.table, self.config);
            Layer { table, config, layer, m, first: self.first, angles }.run(pass, cache, (q, k, v), attend, &mut partials, attn);

            // output, residual
            self.residual(pass, attn, n_heads * d_head, &w.output, &mut shared, own, out, x);

            // norm, quantize, gate and up, activation
            let input = self.normed(x, d_model, &w.ffn_norm, &[&w.gate, &w.up]);
            self.trace_rows("silu_mul", &self.table.silu_mul, d_ff);
            let step = self.rows_a_task(&w.gate, pass).max(w.up.panel_rows());
            let tiles = (Tiles::columns(gate, (m, d_ff), step), Tiles::columns(up, (m, d_ff), step));
            self.product(pass, &input, &mut shared, own, tiles, |s, prepared, (mut gate, mut up)| {
                s.multiply(&w.gate, &prepared.view(&input, w.gate.kernel.activation()), &mut gate);
                s.multiply(&w.up, &prepared.view(&input, w.up.kernel.activation()), &mut up);
                for i in 0..m {
                    s.table.silu_mul.get()(gate.row(i), up.row(i));
                }
            });

            // down, residual
            self.residual(pass, gate, d_ff, &w.down, &mut shared, own, out, x);
        }

        // The head sees only the rows that are asked for.
        let n_rows = logits.len() / n_vocab;
        let skipped = m - n_rows;
        self.m = n_rows;
        let w = self.model.weights();
        let head = &w.head;
        let input = self.normed(&x[skipped * d_model..], d_model, &w.output_norm, &[head]);
        let tiles = self.tiles(logits, head, pass);
        self.product(pass, &input, &mut shared, own, tiles, |s, prepared, mut tile| {
            s.multiply(head, &prepared.view(&input, head.kernel.activation()), &mut tile);
        });
    }

    /// `x += w * input`.
    #[allow(clippy::too_many_arguments, reason = "the buffers of one step")]
    fn residual(
        &mut self,
        pass: &mut Pass<'_>,
        from: &[f32],
        k: usize,
        w: &Matrix,
        shared: &mut Prepared<'_>,
        own: &mut [Prepared<'_>],
        out: &mut [f32],
        x: &mut [f32],
    ) {
        let input = Input { x: from, m: self.m, k, norm: None, kinds: Kinds::default().and(w.kernel.activation()), fine: false };
        let tiles = (self.tiles(out, w, pass), self.tiles(x, w, pass));
        let m = self.m;
        self.trace_rows("add", &self.table.add, w.n);
        self.product(pass, &input, shared, own, tiles, |s, prepared, (mut out, mut x)| {
            s.multiply(w, &prepared.view(&input, w.kernel.activation()), &mut out);
            for i in 0..m {
                s.table.add.get()(x.row(i), out.row(i));
            }
        });
    }

    /// An input that is normalized first, for these matrices.
    fn normed<'i>(&self, x: &'i [f32], k: usize, weight: &'i [f32], matrices: &[&Matrix]) -> Input<'i> {
        let kinds = matrices.iter().fold(Kinds::default(), |kinds, w| kinds.and(w.kernel.activation()));
        Input { x, m: self.m, k, norm: Some((weight, self.config.rms_eps)), kinds, fine: false }
    }

    /// Prepares the input and runs `body` for every part of `parts`.
    fn product<S: crate::exec::Split>(
        &mut self,
        pass: &mut Pass<'_>,
        input: &Input<'_>,
        shared: &mut Prepared<'_>,
        own: &mut [Prepared<'_>],
        parts: S,
        body: impl Fn(&Self, &Prepared<'_>, S::Part) + Sync,
    ) {
        self.phase += 1;
        self.trace_input(input);
        let (phase, this) = (self.phase, &*self);
        if input.m <= ALONE {
            pass.each_with(own, parts, |own, _, part| {
                own.fill_once(phase, this.table, input);
                body(this, own, part);
            });
        } else {
            shared.fill_shared(pass, this.table, input);
            let shared = &*shared;
            pass.each(parts, |_, _, part| body(this, shared, part));
        }
    }

    fn multiply(&self, w: &Matrix, x: &rml_kernels_ref::activation::Activations<'_>, out: &mut TileMut<'_>) {
        self.trace_product(w, x.m);
        w.kernel.multiply(&w.weights(self.model.storage()), x, out);
    }

    /// The product with a fine input: those of both its rows for a token, added up.
    fn multiply_fine(&self, w: &Matrix, prepared: &Prepared<'_>, input: &Input<'_>, out: &mut TileMut<'_>) {
        let x = prepared.fine_view(input, w.kernel.activation());
        self.multiply(w, &x, out);
        for i in input.m..x.m {
            let (sum, rest) = out.two_rows(i - input.m, i);
            self.table.add.get()(sum, rest);
        }
    }

    /// The output of [`multiply_fine`](Self::multiply_fine) in tiles, one a task.
    fn fine_tiles<'o>(&self, out: &'o mut [f32], w: &Matrix, pass: &Pass<'_>) -> Tiles<'o> {
        let rows = fine_rows(self.m, w.kernel.activation());
        Tiles::columns(&mut out[..rows * w.n], (rows, w.n), self.rows_a_task(w, pass))
    }

    /// A product's output in tiles, one a task.
    fn tiles<'o>(&self, out: &'o mut [f32], w: &Matrix, pass: &Pass<'_>) -> Tiles<'o> {
        Tiles::columns(out, (self.m, w.n), self.rows_a_task(w, pass))
    }

    /// Rows of a matrix that one task multiplies: whole panels, a few tasks a thread, none too small to be worth a claim.
    fn rows_a_task(&self, w: &Matrix, pass: &Pass<'_>) -> usize {
        /// Tasks a thread: enough that a thread which is held up leaves its share to the others.
        const TASKS: usize = 4;
        /// Bytes of weights that make a task worth claiming.
        const BYTES: usize = 16 << 10;
        let n_threads = pass.n_threads();
        if n_threads == 1 {
            return w.n.next_multiple_of(w.panel_rows());
        }
        let share = w.n.div_ceil(n_threads * TASKS);
        let smallest = (BYTES * w.n).div_ceil(w.bytes() * self.m);
        share.max(smallest.min(w.n.div_ceil(n_threads))).next_multiple_of(w.panel_rows())
    }
}
