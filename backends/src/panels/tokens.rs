//! Quantized activations as the tile loops read them.

use rml_kernels_ref::activation::Q8;

use super::BLOCK;

/// Activations of successive tokens, from some token and block on.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) q: *const i8,
    pub(crate) scale: *const f32,
    pub(crate) scaled_sum: *const f32,
    pub(crate) sum: *const i16,
    pub(crate) k: usize,
}

impl Tokens {
    /// All tokens of `x`, whose rows have `k` columns.
    ///
    /// # Panics
    /// If `x` does not hold `m` rows.
    pub(crate) fn new(x: &Q8<'_>, m: usize, k: usize) -> Self {
        let blocks = m * (k / BLOCK);
        let fits = x.q.len() >= blocks * BLOCK && x.scale.len() >= blocks && x.scaled_sum.len() >= blocks && x.sum.len() >= 2 * blocks;
        assert!(fits, "activations hold less than {m} rows of {k}");
        Tokens { q: x.q.as_ptr(), scale: x.scale.as_ptr(), scaled_sum: x.scaled_sum.as_ptr(), sum: x.sum.as_ptr(), k }
    }

    /// From `t` tokens and `b` blocks further on.
    #[inline]
    pub(crate) fn at(self, t: usize, b: usize) -> Self {
        let blocks = t * (self.k / BLOCK) + b;
        // The address may be one past the last token or block; it is read only where there is one.
        Tokens {
            q: self.q.wrapping_add(t * self.k + b * BLOCK),
            scale: self.scale.wrapping_add(blocks),
            scaled_sum: self.scaled_sum.wrapping_add(blocks),
            sum: self.sum.wrapping_add(2 * blocks),
            k: self.k,
        }
    }
}
