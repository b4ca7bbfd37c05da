//! Activations on their way into a matrix product: normalized, then quantized if a kernel wants that.
//!
//! Eight bits are few for keys and values, which stay in the cache and are seen by every later token. So their input is
//! *fine*: what the quantized row leaves of it is quantized again, into a second row, and the products of both are added.

use rml_backends::KernelTable;
use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations, Q8, Q8_BLOCK, Q8RowMut};

use crate::exec::{Arena, Chunks, Pass, Split};

/// What goes into a product: `m` rows of numbers, and what is made of them first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    pub(super) x: &'a [f32], // (m, k)
    pub(super) m: usize,
    pub(super) wanted: Wanted<'a>,
    pub(super) ready: bool, // the rows that all threads share are prepared
}

/// What kernels want to be made of rows of `k` numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) k: usize,
    pub(super) norm: Option<(&'a [f32], f32)>, // weight (k) and epsilon
    pub(super) kinds: Kinds,
    pub(super) fine: bool, // quantized rows have a second one
}

impl Wanted<'_> {
    /// As it is, but fine where it is quantized.
    pub(super) fn fine(self) -> Self {
        Wanted { fine: self.kinds.q8, ..self }
    }
}

/// Which kinds of activations the kernels of a phase want.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    pub(super) f32: bool,
    pub(super) q8: bool,
}

impl Kinds {
    /// Adds a kind.
    pub(super) fn and(self, kind: ActivationKind) -> Self {
        Kinds { f32: self.f32 || kind == ActivationKind::F32, q8: self.q8 || kind == ActivationKind::Q8 }
    }
}

/// Rows that one task prepares.
pub(super) const ROWS: usize = 8;

/// Numbers of whole rows of `k` that are prepared together: they stay in the first-level cache from one step to the next.
pub(super) fn strip(k: usize) -> usize {
    const NUMBERS: usize = 2048;
    (NUMBERS / k.max(1)).clamp(1, ROWS) * k.max(1)
}

/// Room for the prepared rows of one input.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    normed: &'a mut [f32], // (m, k)
    rows: Q8RowMut<'a>,    // (2 m, k): first the rows, then, if they are fine, what those leave
    phase: usize,          // the phase it was prepared for, 0 at first
}

impl<'a> Prepared<'a> {
    /// Room for `m` rows of up to `k` numbers.
    pub(super) fn new(arena: &'a Arena, m: usize, k: usize) -> Self {
        let blocks = k.div_ceil(Q8_BLOCK);
        let rows = Q8RowMut {
            q: arena.slice(2 * m * k),
            scale: arena.slice(2 * m * blocks),
            scaled_sum: arena.slice(2 * m * blocks),
            sum: arena.slice(2 * m * 2 * blocks),
        };
        Prepared { normed: arena.slice(m * k), rows, phase: 0 }
    }

    /// Prepares all rows on this thread, unless that was done for this `phase` already.
    pub(super) fn fill_once(&mut self, phase: usize, table: &KernelTable, input: &Input<'_>) {
        if self.phase == phase {
            return;
        }
        self.phase = phase;
        let (m, k) = (input.m, input.wanted.k);
        let (mut first, mut second) = halves(&mut self.rows, m, k);
        let strips = input.x[..m * k].chunks(strip(k));
        let quantized = input.wanted.kinds.q8.then_some([&mut first, &mut second]);
        prepare_rows(table, &input.wanted, strips, &mut self.normed[..m * k], quantized);
    }

    /// Prepares `m` rows on all threads, [`ROWS`] a task, which `load` finds by its number and its part of `rows`; they come in
    /// [strips](strip).
    pub(super) fn fill_shared<'r, R: Split, L: Iterator<Item = &'r [f32]>>(
        &mut self,
        pass: &mut Pass<'_>,
        table: &KernelTable,
        (m, wanted): (usize, &Wanted<'_>),
        rows: R,
        load: impl Fn(usize, R::Part) -> L + Sync,
    ) {
        let k = wanted.k;
        let (mut first, mut second) = halves(&mut self.rows, m, k);
        let normed = Chunks::new(&mut self.normed[..m * k], ROWS * k.max(1));
        if !wanted.kinds.q8 {
            pass.each((rows, normed), |_, task, (rows, normed)| prepare_rows(table, wanted, load(task, rows), normed, None));
            return;
        }
        let parts = (rows, normed, (tasks(&mut first, ROWS, k), tasks(&mut second, ROWS, k)));
        pass.each(parts, |_, task, (rows, normed, (first, second))| {
            prepare_rows(table, wanted, load(task, rows), normed, Some([&mut whole(first), &mut whole(second)]));
        });
    }

    /// The prepared rows, as a kernel takes them. (m, k)
    pub(super) fn view<'s>(&'s self, input: &Input<'s>, kind: ActivationKind) -> Activations<'s> {
        match kind {
            ActivationKind::F32 if input.wanted.norm.is_some() => self.floats(input, &self.normed[..input.m * input.wanted.k]),
            ActivationKind::F32 => self.floats(input, input.x),
            ActivationKind::Q8 => self.quantized(input.m, input.wanted.k),
        }
    }

    /// The prepared rows and, for a kernel that takes them quantized, the second ones. (m or 2 m, k)
    pub(super) fn fine_view<'s>(&'s self, input: &Input<'s>, kind: ActivationKind) -> Activations<'s> {
        match kind {
            ActivationKind::F32 => self.view(input, kind),
            ActivationKind::Q8 => self.quantized(2 * input.m, input.wanted.k),
        }
    }

    fn floats<'s>(&self, input: &Input<'s>, x: &'s [f32]) -> Activations<'s> {
        let (m, k) = (input.m, input.wanted.k);
        Activations { m, k, data: ActivationData::F32(&x[..m * k]) }
    }

    fn quantized(&self, m: usize, k: usize) -> Activations<'_> {
        let b = k / Q8_BLOCK;
        let Q8RowMut { q, scale, scaled_sum, sum } = &self.rows;
        let data = Q8 { q: &q[..m * k], scale: &scale[..m * b], scaled_sum: &scaled_sum[..m * b], sum: &sum[..m * 2 * b] };
        Activations { m, k, data: ActivationData::Q8(data) }
    }
}

/// The first `m` rows of `k` numbers, and the `m` after them.
fn halves<'r>(rows: &'r mut Q8RowMut<'_>, m: usize, k: usize) -> (Q8RowMut<'r>, Q8RowMut<'r>) {
    let b = k / Q8_BLOCK;
    let (q, q2) = rows.q[..2 * m * k].split_at_mut(m * k);
    let (scale, scale2) = rows.scale[..2 * m * b].split_at_mut(m * b);
    let (scaled_sum, scaled_sum2) = rows.scaled_sum[..2 * m * b].split_at_mut(m * b);
    let (sum, sum2) = rows.sum[..4 * m * b].split_at_mut(2 * m * b);
    (Q8RowMut { q, scale, scaled_sum, sum }, Q8RowMut { q: q2, scale: scale2, scaled_sum: scaled_sum2, sum: sum2 })
}

/// `n` blocks from block `first` on.
fn blocks<'r>(rows: &'r mut Q8RowMut<'_>, first: usize, n: usize) -> Q8RowMut<'r> {
    Q8RowMut {
        q: &mut rows.q[first * Q8_BLOCK..][..n * Q8_BLOCK],
        scale: &mut rows.scale[first..][..n],
        scaled_sum: &mut rows.scaled_sum[first..][..n],
        sum: &mut rows.sum[2 * first..][..2 * n],
    }
}

/// Quantized rows as a splitting takes them, and as its parts are.
type Parts<A, B, C, D> = ((A, B), (C, D));

/// Rows in parts of `n`, one for each task.
fn tasks<'r>(rows: &'r mut Q8RowMut<'_>, n: usize, k: usize) -> Parts<Chunks<'r, i8>, Chunks<'r, i16>, Chunks<'r, f32>, Chunks<'r, f32>> {
    let b = k / Q8_BLOCK;
    let len = |width: usize| n * width.max(1);
    let (q, sum) = (Chunks::new(&mut *rows.q, len(k)), Chunks::new(&mut *rows.sum, len(2 * b)));
    ((q, sum), (Chunks::new(&mut *rows.scale, len(b)), Chunks::new(&mut *rows.scaled_sum, len(b))))
}

fn whole<'r>(((q, sum), (scale, scaled_sum)): Parts<&'r mut [i8], &'r mut [i16], &'r mut [f32], &'r mut [f32]>) -> Q8RowMut<'r> {
    Q8RowMut { q, scale, scaled_sum, sum }
}

/// Normalizes rows, where that is wanted, and quantizes them where there is room for it, in the second row what the first leaves if
/// they are fine. `normed` has as many rows; they are kept if a kernel wants them.
fn prepare_rows<'r>(
    table: &KernelTable,
    wanted: &Wanted<'_>,
    strips: impl Iterator<Item = &'r [f32]>,
    normed: &mut [f32],
    mut quantized: Option<[&mut Q8RowMut<'_>; 2]>,
) {
    let Wanted { k, norm, kinds, fine } = *wanted;
    let mut at = 0;
    for mut x in strips {
        let len = x.len();
        if let Some((weight, eps)) = norm {
            let normed = &mut normed[if kinds.f32 { at } else { 0 }..][..len];
            for (x, normed) in x.chunks_exact(k).zip(normed.chunks_exact_mut(k)) {
                table.rms_norm.get()(x, weight, eps, normed);
            }
            x = normed;
        }
        if let Some([first, second]) = &mut quantized {
            let (b, n) = (at / Q8_BLOCK, len / Q8_BLOCK);
            let mut out = blocks(first, b, n);
            table.quantize.get()(x, &mut out);
            if fine {
                quantize_rest(table, x, out.q, out.scale, &mut blocks(second, b, n));
            }
        }
        at += len;
    }
}

/// Quantizes what quantizing `x` to `scale * q` has left.
///
/// A few blocks at a time, so that it needs no room; the rest of a number is two roundings, on every machine.
fn quantize_rest(table: &KernelTable, x: &[f32], q: &[i8], scale: &[f32], out: &mut Q8RowMut<'_>) {
    const BLOCKS: usize = 16;
    let mut rest = [0.0; BLOCKS * Q8_BLOCK];
    for (piece, (x, q)) in x.chunks(rest.len()).zip(q.chunks(rest.len())).enumerate() {
        let (first, rest) = (piece * BLOCKS, &mut rest[..x.len()]);
        let blocks_of = (rest.as_chunks_mut::<Q8_BLOCK>().0, x.as_chunks::<Q8_BLOCK>().0, q.as_chunks::<Q8_BLOCK>().0);
        for (((rest, x), q), scale) in blocks_of.0.iter_mut().zip(blocks_of.1).zip(blocks_of.2).zip(&scale[first..]) {
            for i in 0..Q8_BLOCK {
                rest[i] = x[i] - scale * f32::from(q[i]);
            }
        }
        table.quantize.get()(rest, &mut blocks(out, first, rest.len() / Q8_BLOCK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fine row keeps what a plain one loses beside a large number, and a second row of numbers that fit is 0.
    #[test]
    fn two_rows_keep_fifteen_bits() {
        let table = KernelTable::reference();
        let mut x: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin()).collect();
        x[5] = 100.0;
        let (mut q, mut scale, mut scaled_sum, mut sum) = ([1; 128], [1.0; 4], [1.0; 4], [1; 8]);
        let mut rows = Q8RowMut { q: &mut q, scale: &mut scale, scaled_sum: &mut scaled_sum, sum: &mut sum };
        let (mut first, mut second) = halves(&mut rows, 1, 64);
        table.quantize.get()(&x, &mut first);
        quantize_rest(&table, &x, first.q, first.scale, &mut second);
        let worst = |both: f32, b: usize| {
            let got = |i: usize| first.scale[b] * f32::from(first.q[i]) + both * second.scale[b] * f32::from(second.q[i]);
            (32 * b..32 * b + 32).map(|i| (x[i] - got(i)).abs()).fold(0.0, f32::max)
        };
        // Half a step of the first row is 100 / 254, of the second that over 254.
        assert!(worst(0.0, 0) > 0.3 && worst(1.0, 0) <= 100.0 / 254.0 / 254.0 * 1.01, "{} {}", worst(0.0, 0), worst(1.0, 0));
        assert!(worst(1.0, 1) <= 1.0 / 254.0 / 254.0 * 1.01, "{}", worst(1.0, 1));
        assert_eq!(second.scaled_sum[0], second.scale[0] * f32::from(second.sum[0] + second.sum[1]));
        let whole: Vec<f32> = (0..32).map(|i| (127 - 8 * i) as f32).collect();
        let (mut first, mut second) = (blocks(&mut first, 0, 1), blocks(&mut second, 0, 1));
        table.quantize.get()(&whole, &mut first);
        quantize_rest(&table, &whole, first.q, first.scale, &mut second);
        assert_eq!((second.scale[0], second.sum[0]), (0.0, 0));
    }
}
