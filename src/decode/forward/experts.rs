//! The feed-forward part of a layer with experts: a router chooses some for each token, and adds up what they say.
//!
//! Pairs of a token and an expert that it uses are sorted by expert, so that each expert multiplies its tokens together. What
//! a token gets is added up in the order of its router's numbers, and so does not depend on the tokens beside it.

use std::ops::Range;

use rml_kernels_ref::gate::scale;

use super::super::activations::{Input, Prepared};
use super::Step;
use super::products::{gate_tiles, in_tiles};
use crate::exec::{Arena, Chunks, Pass};
use crate::model::load::LayerWeights;
use crate::model::weights::Matrix;
use crate::model::{Config, Experts};

/// Which token uses which experts, and room for rows of pairs.
#[derive(Debug)]
pub(super) struct Routed<'a> {
    scores: &'a mut [f32],  // (m, experts)
    weights: &'a mut [f32], // of the experts that a token uses, best first (m, used)
    experts: &'a mut [u32], // which these are (m, used)
    rows: &'a mut [u32],    // where each of these pairs stands among all, sorted by expert (m, used)
    starts: &'a mut [u32],  // where the pairs of each expert start, and where the last ones end (experts + 1)
    tokens: &'a mut [u32],  // the token of each pair (m * used)
    x: &'a mut [f32],       // its row (m * used, d_model)
}

impl<'a> Routed<'a> {
    pub(super) fn new(arena: &'a Arena, config: &Config, m: usize) -> Self {
        let Experts { count, used } = config.experts.unwrap_or(Experts { count: 0, used: 0 });
        Routed {
            scores: arena.slice(m * count),
            weights: arena.slice(m * used),
            experts: arena.slice(m * used),
            rows: arena.slice(m * used),
            starts: arena.slice(count + 1),
            tokens: arena.slice(m * used),
            x: arena.slice(m * used * config.d_model),
        }
    }

    /// Chooses the `used` largest scores of each of `m` tokens, of equal ones the first, and sorts the pairs.
    fn choose(&mut self, m: usize, Experts { count, used }: Experts, softmax: fn(&mut [f32])) {
        self.starts.fill(0);
        for i in 0..m {
            let scores = &mut self.scores[i * count..][..count];
            let (weights, experts) = (&mut self.weights[i * used..][..used], &mut self.experts[i * used..][..used]);
            for (weight, expert) in weights.iter_mut().zip(experts) {
                let best = (0..count).fold(0, |best, e| if scores[e] > scores[best] { e } else { best });
                (*weight, *expert) = (scores[best], best as u32);
                scores[best] = f32::NEG_INFINITY;
                self.starts[best + 1] += 1;
            }
            softmax(weights);
        }
        (0..count).for_each(|e| self.starts[e + 1] += self.starts[e]);
        // Each start moves to its end, which is the next one's start, and all are put back by one.
        for pair in 0..m * used {
            let start = &mut self.starts[self.experts[pair] as usize];
            self.rows[pair] = *start;
            self.tokens[*start as usize] = (pair / used) as u32;
            *start += 1;
        }
        self.starts.copy_within(..count, 1);
        self.starts[0] = 0;
    }

    /// The pairs of an expert.
    fn of(&self, expert: usize) -> Range<usize> {
        self.starts[expert] as usize..self.starts[expert + 1] as usize
    }
}

impl Step<'_> {
    /// Adds to `x` what the experts say. Of `gate`, `up` and `out` there is a row for each pair.
    #[allow(clippy::too_many_arguments, reason = "the buffers of one step")]
    pub(super) fn experts(
        &mut self,
        pass: &mut Pass<'_>,
        (router, w): (&Matrix, &LayerWeights),
        shared: &mut Prepared<'_>,
        own: &mut [Prepared<'_>],
        (gate, up, out, x): (&mut [f32], &mut [f32], &mut [f32], &mut [f32]),
        routed: &mut Routed<'_>,
    ) {
        let Config { d_model, d_ff, .. } = *self.config;
        let m = self.m;
        let experts = self.config.experts.expect("a router has experts");
        let (n_pairs, norm) = (m * experts.used, w.ffn_norm.as_deref());

        // norm, quantize, router
        let input = self.prepare_whole(pass, shared, x, self.wanted(d_model, norm, &[router]));
        let tiles = in_tiles(&mut routed.scores[..m * experts.count], m, router, self.grid(m, &[router], pass));
        self.product(pass, &input, shared, own, tiles, |s, prepared, mut tile| s.multiply(router, prepared, &input, &mut tile));
        routed.choose(m, experts, self.table.softmax.get());

        // rows of pairs, norm, quantize, gate and up, activation
        let alone = m == 1; // All experts multiply the same row.
        if !alone {
            let (x, tokens) = (&*x, &routed.tokens[..n_pairs]);
            pass.each(Chunks::new(&mut routed.x[..n_pairs * d_model], d_model), |_, pair, row| {
                row.copy_from_slice(&x[tokens[pair] as usize * d_model..][..d_model]);
            });
        }
        let routed = &*routed;
        let first = &w.ffn[0];
        let rows = if alone { &*x } else { &routed.x[..n_pairs * d_model] };
        let input = self.prepare_whole(pass, shared, rows, self.wanted(d_model, norm, &[&first.gate, &first.up]));
        let (gate, up) = (&mut gate[..n_pairs * d_ff], &mut up[..n_pairs * d_ff]);
        self.trace_rows(self.gate().0, self.gate().1, d_ff);
        let tiles = gate_tiles((&mut *gate, up), n_pairs, first, self.strips(n_pairs, &[&first.gate, &first.up], pass));
        self.product(pass, &input, shared, own, tiles, |s, prepared, (mut gate, mut up)| {
            for (e, f) in w.ffn.iter().enumerate() {
                let pairs = routed.of(e);
                let rows = if alone { 0..pairs.len().min(1) } else { pairs.clone() };
                s.multiply_rows(&f.gate, prepared, &input, rows.clone(), &mut gate.rows(pairs.clone()));
                s.multiply_rows(&f.up, prepared, &input, rows, &mut up.rows(pairs));
            }
            s.activate(&mut gate, &mut up);
        });

        // down, sum, residual
        let input = self.prepare_whole(pass, shared, gate, self.wanted(d_ff, None, &[&first.down]));
        let grid = self.strips(n_pairs, &[&first.down], pass);
        let tiles = (in_tiles(out, n_pairs, &first.down, grid), in_tiles(x, m, &first.down, grid));
        self.product(pass, &input, shared, own, tiles, |s, prepared, (mut out, mut x)| {
            for (e, f) in w.ffn.iter().enumerate() {
                let pairs = routed.of(e);
                s.multiply_rows(&f.down, prepared, &input, pairs.clone(), &mut out.rows(pairs));
            }
            for i in 0..m {
                let of_token = i * experts.used..(i + 1) * experts.used;
                let (rows, weights) = (&routed.rows[of_token.clone()], &routed.weights[of_token]);
                let sum = rows[0] as usize;
                for (&row, &weight) in rows.iter().zip(weights) {
                    scale(out.row(row as usize), weight);
                }
                for &row in &rows[1..] {
                    let (sum, row) = out.two_rows(sum, row as usize);
                    s.table.add.get()(sum, row);
                }
                s.add(x.row(i), out.row(sum));
            }
        });
    }

    /// The product of some rows of an input; of none, nothing.
    fn multiply_rows(
        &self,
        w: &Matrix,
        prepared: &Prepared<'_>,
        input: &Input<'_>,
        rows: Range<usize>,
        out: &mut rml_backends::TileMut<'_>,
    ) {
        if !rows.is_empty() {
            self.multiply_by(w, &prepared.view(input, w.kernel.activation()).rows(rows), out);
        }
    }
}
