//! What the tile loops read of quantized activations.

use std::arch::x86_64::*;

use crate::panels::{BLOCK, Tokens};

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
