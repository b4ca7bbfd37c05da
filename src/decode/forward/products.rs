//! Products on their way through the threads: how they are shared out, and what is done to what comes out.

use rml_backends::TileMut;
use rml_kernels_ref::activation::{ActivationKind, Activations};

use super::super::activations::{Input, Prepared};
use super::Step;
use super::buffers::ALONE;
use super::prepare::Lacking;
use crate::exec::{Chunks, Grid, Pass, Split, Tiles};
use crate::model::load::FeedForward;
use crate::model::weights::Matrix;

impl Step<'_> {
    /// `x += w * input`, normalized in between where there are weights for that. Of many rows that are not, the sum is left to
    /// who prepares `x` next. `out` and `spare` are as large as `x`.
    #[allow(clippy::too_many_arguments, reason = "the buffers of one step")]
    pub(super) fn residual<'o>(
        &mut self,
        pass: &mut Pass<'_>,
        input: &Input<'_>,
        w: &Matrix,
        norm: Option<&[f32]>,
        shared: &Prepared<'_>,
        own: &mut [Prepared<'_>],
        (out, x, spare): (&'o mut [f32], &mut [f32], &mut [f32]),
    ) -> Option<Lacking<'o>> {
        let (m, n) = (self.m, w.n);
        let out = &mut out[..m * n];
        self.trace_rows("add", &self.table.add, n);
        let grid = self.grid(m, &[w], pass);
        let tiles = in_tiles(&mut *out, m, w, grid);
        if norm.is_none() && m <= ALONE {
            let tiles = (tiles, in_tiles(x, m, w, grid));
            self.product(pass, input, shared, own, tiles, |s, prepared, (mut out, mut x)| {
                s.multiply(w, prepared, input, &mut out);
                (0..m).for_each(|i| s.add(x.row(i), out.row(i)));
            });
            return None;
        }
        self.product(pass, input, shared, own, tiles, |s, prepared, mut out| s.multiply(w, prepared, input, &mut out));
        let Some(weight) = norm else { return Some(Lacking::sum(out)) };
        self.trace_rows("rms_norm", &self.table.rms_norm, n);
        let this = &*self;
        let rows = (Chunks::new(out, n), Chunks::new(&mut spare[..m * n], n), Chunks::new(x, n));
        pass.each(rows, |_, _, (out, normed, x)| {
            this.table.rms_norm.get()(out, weight, this.config.rms_eps, normed);
            this.add(x, normed);
        });
        None
    }

    /// Normalizes queries and keys in place, a row a token. `spare` is as large as `q`.
    pub(super) fn normalize_rows(
        &self,
        pass: &mut Pass<'_>,
        (q, k): (&mut [f32], &mut [f32]),
        [of_q, of_k]: [&[f32]; 2],
        spare: &mut [f32],
    ) {
        self.trace_rows("rms_norm", &self.table.rms_norm, of_q.len());
        self.trace_rows("rms_norm", &self.table.rms_norm, of_k.len());
        let rows = (Chunks::new(q, of_q.len()), Chunks::new(k, of_k.len()), Chunks::new(spare, of_q.len()));
        pass.each(rows, |_, _, (q, k, spare)| {
            for (row, weight) in [(q, of_q), (k, of_k)] {
                let copy = &mut spare[..row.len()];
                copy.copy_from_slice(row);
                self.table.rms_norm.get()(copy, weight, self.config.rms_eps, row);
            }
        });
    }

    /// Runs `body` for every part of `parts`. Input that is not ready is prepared by each thread for itself.
    pub(super) fn product<S: Split>(
        &mut self,
        pass: &mut Pass<'_>,
        input: &Input<'_>,
        shared: &Prepared<'_>,
        own: &mut [Prepared<'_>],
        parts: S,
        body: impl Fn(&Self, &Prepared<'_>, S::Part) + Sync,
    ) {
        self.phase += 1;
        let (phase, this) = (self.phase, &*self);
        if input.ready {
            pass.each(parts, |_, _, part| body(this, shared, part));
            return;
        }
        self.trace_input(&input.wanted);
        pass.each_with(own, parts, |own, _, part| {
            own.fill_once(phase, this.table, input);
            body(this, own, part);
        });
    }

    /// A tile of the product, and the bias where the matrix has one.
    pub(super) fn multiply(&self, w: &Matrix, prepared: &Prepared<'_>, input: &Input<'_>, out: &mut TileMut<'_>) {
        self.multiply_by(w, &prepared.view(input, w.kernel.activation()).rows(out.tokens()), out);
    }

    /// The same with the rows of activations that belong to the tile.
    pub(super) fn multiply_by(&self, w: &Matrix, x: &Activations<'_>, out: &mut TileMut<'_>) {
        self.trace_product(w, x.m);
        w.kernel.multiply(&w.weights(self.model.storage()), x, out);
        self.add_bias(w, x.m, out);
    }

    /// The product with a fine input: of both rows of a token, added up. See [`fine_tiles`].
    pub(super) fn multiply_fine(
        &self,
        w: &Matrix,
        prepared: &Prepared<'_>,
        input: &Input<'_>,
        (out, rest): &mut (TileMut<'_>, TileMut<'_>),
    ) {
        let x = prepared.fine_view(input, w.kernel.activation());
        let (m, tokens) = (input.m, out.tokens());
        let weights = w.weights(self.model.storage());
        self.trace_product(w, x.m);
        w.kernel.multiply(&weights, &x.rows(tokens.clone()), out);
        if rest.m() > 0 {
            w.kernel.multiply(&weights, &x.rows(m + tokens.start..m + tokens.end), rest);
            (0..rest.m()).for_each(|i| self.table.add.get()(out.row(i), rest.row(i)));
        }
        for i in m..tokens.end {
            let (sum, rest) = out.two_rows(i - m, i);
            self.table.add.get()(sum, rest);
        }
        self.add_bias(w, tokens.len().min(m), out);
    }

    fn add_bias(&self, w: &Matrix, m: usize, out: &mut TileMut<'_>) {
        if let Some(bias) = &w.bias {
            let bias = &bias[out.cols()];
            (0..m).for_each(|i| self.table.add.get()(out.row(i), bias));
        }
    }

    /// The activation of a tile of gates and the same tile of ups.
    pub(super) fn activate(&self, gate: &mut TileMut<'_>, up: &mut TileMut<'_>) {
        let activate = self.gate().1.get();
        (0..gate.m()).for_each(|i| activate(gate.row(i), up.row(i)));
    }

    /// How the products of `m` rows with these matrices, which one phase multiplies, are shared out: a few tasks a thread, none
    /// too small to be worth a claim. Many rows are split into bands, one for each thread, which meets its rows again in the
    /// phases that follow.
    pub(super) fn grid(&self, m: usize, matrices: &[&Matrix], pass: &Pass<'_>) -> Grid {
        /// Rows of a band at least: each band unpacks the weights for itself.
        const ROWS: usize = 128;
        let down = (m / ROWS).clamp(1, pass.n_threads());
        let Grid { across, .. } = self.strips(m, matrices, pass);
        Grid { down, across: across.div_ceil(down) }
    }

    /// The same with all rows in one band.
    pub(super) fn strips(&self, m: usize, matrices: &[&Matrix], pass: &Pass<'_>) -> Grid {
        /// Tasks a thread: enough that a thread which is held up leaves its share to the others.
        const TASKS: usize = 4;
        /// Bytes of weights, times rows, that make a task worth claiming.
        const BYTES: usize = 16 << 10;
        let n_threads = pass.n_threads();
        if n_threads == 1 {
            return Grid { down: 1, across: 1 };
        }
        let bytes: usize = matrices.iter().map(|w| w.bytes()).sum();
        Grid { down: 1, across: (bytes * m / BYTES).clamp(n_threads, n_threads * TASKS) }
    }
}

/// Rows of a product that no band of a [`Grid`] splits.
const BAND: usize = 8;

/// The output of a product of `m` rows in tiles, one a task.
pub(super) fn in_tiles<'o>(out: &'o mut [f32], m: usize, w: &Matrix, grid: Grid) -> Tiles<'o> {
    Tiles::new(&mut out[..m * w.n], (m, w.n), grid, (BAND, w.panel_rows()))
}

/// A tile of results and, where a fine input has its second rows apart, of what is added to them.
pub(super) type FineTiles<'o> = (Tiles<'o>, Tiles<'o>);

/// The output of [`Step::multiply_fine`] in tiles, one a task. `out` has room for both rows of a token: all first rows, then all
/// second ones. A few tokens have them in one tile, for which weights are read once; many have two, so that bands of tokens
/// stay with their threads.
pub(super) fn fine_tiles<'o>(out: &'o mut [f32], m: usize, w: &Matrix, grid: Grid) -> FineTiles<'o> {
    match w.kernel.activation() {
        ActivationKind::F32 => plain_tiles(out, m, w, grid),
        ActivationKind::Q8 if m <= ALONE => plain_tiles(out, 2 * m, w, grid),
        ActivationKind::Q8 => {
            let (out, rest) = out.split_at_mut(m * w.n);
            let grid = Grid { across: grid.across.div_ceil(2), ..grid }; // of twice the work
            (in_tiles(out, m, w, grid), in_tiles(rest, m, w, grid))
        }
    }
}

/// The same for an input that is not fine.
pub(super) fn plain_tiles<'o>(out: &'o mut [f32], m: usize, w: &Matrix, grid: Grid) -> FineTiles<'o> {
    (in_tiles(out, m, w, grid), in_tiles(&mut [], 0, w, grid))
}

/// Gates and ups of `m` rows in tiles, the same for both.
pub(super) fn gate_tiles<'o>((gate, up): (&'o mut [f32], &'o mut [f32]), m: usize, w: &FeedForward, grid: Grid) -> (Tiles<'o>, Tiles<'o>) {
    let unit = (BAND, w.gate.panel_rows().max(w.up.panel_rows()));
    (Tiles::new(gate, (m, w.gate.n), grid, unit), Tiles::new(up, (m, w.up.n), grid, unit))
}
