//! Scales of 16 rows by 32 columns, and how they turn an exact integer sum into a contribution to the result.

use std::arch::x86_64::*;

use super::tokens::TokenBlock;

/// Scales of 16 rows by 32 columns.
pub(super) trait Head: Copy {
    /// What 16-bit sums over columns `16 * columns ..` are multiplied with when they are widened, rows by `half`.
    ///
    /// # Safety
    /// The CPU has the features; `half < 2`, `columns < 2`.
    unsafe fn widener(&self, half: usize, columns: usize) -> __m256i;

    /// `acc` with this block added, given the integer sum of (quant as stored) * (activation), widened.
    ///
    /// # Safety
    /// The CPU has the features; `half < 2`.
    unsafe fn finish(&self, half: usize, acc: __m256, sum: __m256i, x: &TokenBlock) -> __m256;
}

/// One scale for 32 columns; quants are stored with `OFFSET` added.
#[derive(Clone, Copy)]
pub(super) struct Scale<const OFFSET: i16> {
    /// By half of the rows.
    pub(super) d: [__m256; 2],
}

impl<const OFFSET: i16> Head for Scale<OFFSET> {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widener(&self, _: usize, _: usize) -> __m256i {
        _mm256_set1_epi16(1)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, half: usize, acc: __m256, mut sum: __m256i, x: &TokenBlock) -> __m256 {
        if OFFSET != 0 {
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x.sums, _mm256_set1_epi16(-OFFSET)));
        }
        _mm256_fmadd_ps(_mm256_mul_ps(self.d[half], x.scale), _mm256_cvtepi32_ps(sum), acc)
    }
}

/// One scale and one minimum for 32 columns.
#[derive(Clone, Copy)]
pub(super) struct ScaleMin {
    /// By half of the rows.
    pub(super) d: [__m256; 2],
    /// What is added for each column, by half of the rows.
    pub(super) m: [__m256; 2],
}

impl Head for ScaleMin {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widener(&self, _: usize, _: usize) -> __m256i {
        _mm256_set1_epi16(1)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, half: usize, acc: __m256, sum: __m256i, x: &TokenBlock) -> __m256 {
        let acc = _mm256_fmadd_ps(_mm256_mul_ps(self.d[half], x.scale), _mm256_cvtepi32_ps(sum), acc);
        _mm256_fmadd_ps(self.m[half], x.scaled_sum, acc)
    }
}
