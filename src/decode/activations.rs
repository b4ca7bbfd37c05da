//! Activations on their way into a matrix product: normalized, then quantized if a kernel wants that.

use rml_backends::KernelTable;
use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations, Q8, Q8_BLOCK, Q8RowMut};

use crate::exec::{Arena, Chunks, Pass};

/// What goes into a product: `m` rows of `k` numbers, and the norm that comes first, if one does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    pub(super) x: &'a [f32], // (m, k)
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) norm: Option<(&'a [f32], f32)>, // weight (k) and epsilon
    pub(super) kinds: Kinds,
}

/// Which kinds of activations the kernels of a phase want.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    pub(super) q8: bool,
}

impl Kinds {
    /// Adds a kind.
    pub(super) fn and(self, kind: ActivationKind) -> Self {
        Kinds { q8: self.q8 || kind == ActivationKind::Q8 }
    }
}

/// Room for the prepared rows of one input.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    normed: &'a mut [f32],     // (m, k)
    q: &'a mut [i8],           // (m, k)
    scale: &'a mut [f32],      // (m, k / 32)
    scaled_sum: &'a mut [f32], // (m, k / 32)
    sum: &'a mut [i16],        // (m, k / 16)
    phase: usize,              // the phase it was prepared for, 0 at first
}

impl<'a> Prepared<'a> {
    /// Room for `m` rows of up to `k` numbers.
    pub(super) fn new(arena: &'a Arena, m: usize, k: usize) -> Self {
        let blocks = k.div_ceil(Q8_BLOCK);
        Prepared {
            normed: arena.slice(m * k),
            q: arena.slice(m * k),
            scale: arena.slice(m * blocks),
            scaled_sum: arena.slice(m * blocks),
            sum: arena.slice(m * 2 * blocks),
            phase: 0,
        }
    }

    /// Prepares all rows on this thread, unless that was done for this `phase` already.
    pub(super) fn fill_once(&mut self, phase: usize, table: &KernelTable, input: &Input<'_>) {
        if self.phase == phase {
            return;
        }
        self.phase = phase;
        let (k, b) = (input.k, input.k / Q8_BLOCK);
        for i in 0..input.m {
            let out = Q8RowMut {
                q: &mut self.q[i * k..][..k],
                scale: &mut self.scale[i * b..][..b],
                scaled_sum: &mut self.scaled_sum[i * b..][..b],
                sum: &mut self.sum[i * 2 * b..][..2 * b],
            };
            prepare_row(table, input, i, &mut self.normed[i * k..][..k], out);
        }
    }

    /// Prepares the rows on all threads, some rows a task.
    pub(super) fn fill_shared(&mut self, pass: &mut Pass<'_>, table: &KernelTable, input: &Input<'_>) {
        const ROWS: usize = 8;
        let (k, b) = (input.k, input.k / Q8_BLOCK);
        let rows = |width: usize| ROWS * width.max(1);
        let n = input.m;
        let normed = Chunks::new(&mut self.normed[..n * k], rows(k));
        if !input.kinds.q8 {
            if input.norm.is_some() {
                pass.each(normed, |_, task, normed| {
                    for (j, row) in normed.chunks_exact_mut(k).enumerate() {
                        normalize(table, input, task * ROWS + j, row);
                    }
                });
            }
            return;
        }
        let q8 = (
            (Chunks::new(&mut self.q[..n * k], rows(k)), Chunks::new(&mut self.sum[..n * 2 * b], rows(2 * b))),
            (Chunks::new(&mut self.scale[..n * b], rows(b)), Chunks::new(&mut self.scaled_sum[..n * b], rows(b))),
        );
        pass.each((normed, q8), |_, task, (normed, ((q, sum), (scale, scaled_sum)))| {
            let parts = q.chunks_exact_mut(k).zip(sum.chunks_exact_mut(2 * b));
            let scales = scale.chunks_exact_mut(b).zip(scaled_sum.chunks_exact_mut(b));
            for (j, ((normed, (q, sum)), (scale, scaled_sum))) in normed.chunks_exact_mut(k).zip(parts).zip(scales).enumerate() {
                prepare_row(table, input, task * ROWS + j, normed, Q8RowMut { q, scale, scaled_sum, sum });
            }
        });
    }

    /// The prepared rows, as a kernel takes them.
    pub(super) fn view<'s>(&'s self, input: &Input<'s>, kind: ActivationKind) -> Activations<'s> {
        let (m, k, b) = (input.m, input.k, input.k / Q8_BLOCK);
        let data = match kind {
            ActivationKind::F32 if input.norm.is_some() => ActivationData::F32(&self.normed[..m * k]),
            ActivationKind::F32 => ActivationData::F32(&input.x[..m * k]),
            ActivationKind::Q8 => ActivationData::Q8(Q8 {
                q: &self.q[..m * k],
                scale: &self.scale[..m * b],
                scaled_sum: &self.scaled_sum[..m * b],
                sum: &self.sum[..m * 2 * b],
            }),
        };
        Activations { m, k, data }
    }
}

/// Row `i` of the input after its norm.
fn normalize<'r>(table: &KernelTable, input: &Input<'r>, i: usize, normed: &'r mut [f32]) -> &'r [f32] {
    let x = &input.x[i * input.k..][..input.k];
    match input.norm {
        None => x,
        Some((weight, eps)) => {
            table.rms_norm.get()(x, weight, eps, normed);
            normed
        }
    }
}

fn prepare_row<'r>(table: &KernelTable, input: &Input<'r>, i: usize, normed: &'r mut [f32], mut out: Q8RowMut<'_>) {
    let x = normalize(table, input, i, normed);
    if input.kinds.q8 {
        table.quantize.get()(x, &mut out);
    }
}
