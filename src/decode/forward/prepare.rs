//! What goes into products: rows are given what they lack, then normalized and quantized as kernels want it.

use rml_kernels_ref::gate::scale;

use super::super::activations::{Input, Kinds, Prepared, ROWS, Wanted, strip};
use super::Step;
use super::buffers::ALONE;
use crate::exec::{Chunks, Nothing, Pass};
use crate::model::weights::Matrix;

/// What rows lack: it is done row by row with what is made of them, so that it needs no pass over memory of its own.
#[derive(Debug)]
pub(super) struct Lacking<'a> {
    what: Lack,
    other: &'a mut [f32], // (m, k)
}

#[derive(Clone, Copy, Debug)]
enum Lack {
    /// The other rows are to be added.
    Sum,
    /// The rows are gates, the others their ups.
    Activation,
}

impl<'a> Lacking<'a> {
    /// `other`, which is to be added.
    pub(super) fn sum(other: &'a mut [f32]) -> Self {
        Lacking { what: Lack::Sum, other }
    }

    /// Of gates: their activation with `ups`.
    pub(super) fn activation(ups: &'a mut [f32]) -> Self {
        Lacking { what: Lack::Activation, other: ups }
    }

    /// The same for what comes behind the first `n` numbers.
    pub(super) fn without(self, n: usize) -> Self {
        Lacking { other: &mut self.other[n..], ..self }
    }
}

impl Step<'_> {
    /// What these matrices want of rows of `k` numbers, which are normalized first where there are weights for that.
    pub(super) fn wanted<'w>(&self, k: usize, norm: Option<&'w [f32]>, matrices: &[&Matrix]) -> Wanted<'w> {
        let kinds = matrices.iter().fold(Kinds::default(), |kinds, w| kinds.and(w.kernel.activation()));
        Wanted { k, norm: norm.map(|weight| (weight, self.config.rms_eps)), kinds, fine: false }
    }

    /// Gives the rows `x` what they lack, and makes of them what is wanted.
    pub(super) fn prepare<'x>(
        &mut self,
        pass: &mut Pass<'_>,
        shared: &mut Prepared<'_>,
        x: &'x mut [f32],
        lacking: Option<Lacking<'_>>,
        wanted: Wanted<'x>,
    ) -> Input<'x> {
        let m = x.len() / wanted.k;
        let Some(Lacking { what, other }) = lacking else { return self.prepare_whole(pass, shared, x, wanted) };
        if m <= ALONE {
            self.complete(what, x, other);
            return self.prepare_whole(pass, shared, x, wanted);
        }
        self.trace_input(&wanted);
        let (this, len, strip) = (&*self, ROWS * wanted.k, strip(wanted.k));
        shared.fill_shared(pass, this.table, (m, &wanted), (Chunks::new(&mut *x, len), Chunks::new(other, len)), |_, (x, other)| {
            x.chunks_mut(strip).zip(other.chunks_mut(strip)).map(|(x, other)| {
                this.complete(what, x, other);
                &*x
            })
        });
        Input { ready: true, ..self.input(x, wanted) }
    }

    /// Gives the rows `x` what they lack.
    pub(super) fn finish(&self, pass: &mut Pass<'_>, x: &mut [f32], lacking: Option<Lacking<'_>>) {
        /// Numbers a task.
        const PIECE: usize = 4096;
        if let Some(Lacking { what, other }) = lacking {
            pass.each((Chunks::new(x, PIECE), Chunks::new(other, PIECE)), |_, _, (x, other)| self.complete(what, x, other));
        }
    }

    fn complete(&self, what: Lack, x: &mut [f32], other: &mut [f32]) {
        match what {
            Lack::Sum => self.add(x, other),
            Lack::Activation => self.gate().1.get()(x, other),
        }
    }

    /// Makes of rows that lack nothing what is wanted.
    pub(super) fn prepare_whole<'x>(&self, pass: &mut Pass<'_>, shared: &mut Prepared<'_>, x: &'x [f32], wanted: Wanted<'x>) -> Input<'x> {
        let input = self.input(x, wanted);
        if input.m <= ALONE {
            return input;
        }
        self.trace_input(&wanted);
        if wanted.norm.is_some() || wanted.kinds.q8 {
            let len = ROWS * wanted.k;
            let rows = |task, ()| x[task * len..x.len().min((task + 1) * len)].chunks(strip(wanted.k));
            shared.fill_shared(pass, self.table, (input.m, &wanted), Nothing(input.m.div_ceil(ROWS)), rows);
        }
        Input { ready: true, ..input }
    }

    fn input<'x>(&self, x: &'x [f32], wanted: Wanted<'x>) -> Input<'x> {
        Input { x, m: x.len() / wanted.k, wanted, ready: false }
    }

    /// Adds to the residual stream. `out` is left in disorder.
    pub(super) fn add(&self, x: &mut [f32], out: &mut [f32]) {
        if self.config.residual_scale != 1.0 {
            scale(out, self.config.residual_scale);
        }
        self.table.add.get()(x, out);
    }
}
