//! Quantized activations as the tile loops read them.

use std::arch::x86_64::*;

use rml_kernels_ref::activation::Q8;

use super::codec::BLOCK;

/// Activations of successive tokens, from some token and block on.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) q: *const i8,
    pub(crate) scale: *const f32,
    pub(crate) scaled_sum: *const f32,
    pub(crate) sum: *const i16,
    pub(crate) k: usize,
}

/// What is known of a token's block besides its quants, each broadcast to all lanes.
#[derive(Clone, Copy)]
pub(crate) struct TokenBlock {
    /// Scale.
    pub(crate) scale: __m256,
    /// Scale times sum.
    pub(crate) scaled_sum: __m256,
    /// Sums of the two halves, 16 bits each.
    pub(crate) sums: __m256i,
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

    /// Four quants of token `t`, repeated in every dword: columns `4 * group ..` of the first block.
    ///
    /// # Safety
    /// There is such a token and a block; `group < 8`; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn group(&self, t: usize, group: usize) -> __m256i {
        // SAFETY: 4 of the block's 32 bytes.
        _mm256_set1_epi32(unsafe { self.q.add(t * self.k + 4 * group).cast::<i32>().read_unaligned() })
    }

    /// Scale and sums of token `t`'s first block.
    ///
    /// # Safety
    /// There is such a token and a block; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn block(&self, t: usize) -> TokenBlock {
        let i = t * (self.k / BLOCK);
        // SAFETY: a block has one scale, one scaled sum and two sums.
        unsafe {
            TokenBlock {
                scale: _mm256_set1_ps(*self.scale.add(i)),
                scaled_sum: _mm256_set1_ps(*self.scaled_sum.add(i)),
                sums: _mm256_set1_epi32(self.sum.add(2 * i).cast::<i32>().read_unaligned()),
            }
        }
    }
}
