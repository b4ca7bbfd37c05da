//! Activations as a matrix product takes them.
//!
//! Quantized weights meet activations quantized 32 wide: `x[i] ~ scale * q[i]`, with `scale = max|x| / 127` kept in f32
//! and `q` rounded to even. Integer sums are exact, so every backend gets the same bits whatever its order of adding.

use std::ops::Range;

/// Width of an activation block.
pub const Q8_BLOCK: usize = 32;

/// `m` rows of `k` activations in 8 bits. `k` is a multiple of [`Q8_BLOCK`].
#[derive(Clone, Copy, Debug)]
pub struct Q8<'a> {
    /// Quantized values. (m, k)
    pub q: &'a [i8],
    /// Scale of each block. (m, k / 32)
    pub scale: &'a [f32],
    /// `scale * (sum of the block's q)`, rounded once: what a weight's minimum is multiplied with. (m, k / 32)
    pub scaled_sum: &'a [f32],
    /// Sum of `q` over each half block of 16. (m, k / 16)
    pub sum: &'a [i16],
}

/// One row of [`Q8`], to be written.
#[derive(Debug)]
pub struct Q8RowMut<'a> {
    /// (k)
    pub q: &'a mut [i8],
    /// (k / 32)
    pub scale: &'a mut [f32],
    /// (k / 32)
    pub scaled_sum: &'a mut [f32],
    /// (k / 16)
    pub sum: &'a mut [i16],
}

impl<'a> Q8<'a> {
    /// Row `i` of rows of `k` activations.
    pub fn row(&self, i: usize, k: usize) -> Q8<'a> {
        self.rows(i..i + 1, k)
    }

    /// Some of the rows of `k` activations.
    pub fn rows(&self, rows: Range<usize>, k: usize) -> Q8<'a> {
        let of = |width: usize| rows.start * width..rows.end * width;
        let b = of(k / Q8_BLOCK);
        Q8 { q: &self.q[of(k)], scale: &self.scale[b.clone()], scaled_sum: &self.scaled_sum[b], sum: &self.sum[of(k / 16)] }
    }
}

/// How a kernel wants its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationKind {
    /// As they are.
    F32,
    /// Quantized 32 wide, see [`Q8`].
    Q8,
}

impl ActivationKind {
    /// The word used in a kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            ActivationKind::F32 => "f32",
            ActivationKind::Q8 => "q8",
        }
    }
}

/// `m` rows of `k` activations, in the kind that a kernel asked for.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    /// Rows (tokens).
    pub m: usize,
    /// Values a row.
    pub k: usize,
    /// The values.
    pub data: ActivationData<'a>,
}

impl<'a> Activations<'a> {
    /// Some of the rows.
    pub fn rows(&self, rows: Range<usize>) -> Activations<'a> {
        let data = match self.data {
            ActivationData::F32(x) => ActivationData::F32(&x[rows.start * self.k..rows.end * self.k]),
            ActivationData::Q8(q8) => ActivationData::Q8(q8.rows(rows.clone(), self.k)),
        };
        Activations { m: rows.len(), k: self.k, data }
    }
}

/// The values of [`Activations`].
#[derive(Clone, Copy, Debug)]
pub enum ActivationData<'a> {
    /// (m, k)
    F32(&'a [f32]),
    /// (m, k)
    Q8(Q8<'a>),
}
