//! Numbers to measure with.

use rml_backends::KernelTable;
use rml_kernels_ref::activation::{Q8, Q8_BLOCK, Q8RowMut};
use rml_kernels_ref::exam::fills::Random;

/// More than any cache holds. What is read from memory in use goes round in so many bytes.
pub(crate) const BEYOND_CACHE: usize = 256 << 20;

/// `n` numbers, close to normally distributed.
pub(crate) fn normal(n: usize, deviation: f32, random: &mut Random) -> Vec<f32> {
    (0..n).map(|_| deviation * random.gaussian()).collect()
}

/// Quantized rows.
pub(crate) struct Quantized {
    q: Vec<i8>,
    scale: Vec<f32>,
    scaled_sum: Vec<f32>,
    sum: Vec<i16>,
}

impl Quantized {
    /// Room for `n` numbers, whole blocks.
    pub(crate) fn room(n: usize) -> Self {
        let blocks = n / Q8_BLOCK;
        Quantized { q: vec![0; n], scale: vec![0.0; blocks], scaled_sum: vec![0.0; blocks], sum: vec![0; 2 * blocks] }
    }

    /// Rows, one behind the other.
    pub(crate) fn of(x: &[f32]) -> Self {
        let mut quantized = Self::room(x.len());
        KernelTable::reference().quantize.get()(x, &mut quantized.row_mut());
        quantized
    }

    /// All of it, to be written as one row.
    pub(crate) fn row_mut(&mut self) -> Q8RowMut<'_> {
        Q8RowMut { q: &mut self.q, scale: &mut self.scale, scaled_sum: &mut self.scaled_sum, sum: &mut self.sum }
    }

    pub(crate) fn view(&self) -> Q8<'_> {
        Q8 { q: &self.q, scale: &self.scale, scaled_sum: &self.scaled_sum, sum: &self.sum }
    }
}
