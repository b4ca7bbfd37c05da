//! Scales of 16 rows by 32 columns, and how they turn an exact integer sum into a contribution to the result.

use std::arch::x86_64::*;

use super::tokens::TokenBlock;
use crate::panels::ROWS;

/// Scales of 16 rows by 32 columns.
pub(crate) trait Head: Copy {
    /// What was added to quants to store them unsigned.
    const OFFSET: i16;
    /// Whether 16 columns have a whole scale of their own.
    const GROUPED: bool;

    /// What 16-bit sums over columns `16 * columns ..` are multiplied with when they are widened, rows by `half`.
    ///
    /// # Safety
    /// The CPU has the features; `half < 2`, `columns < 2`.
    unsafe fn widener(&self, half: usize, columns: usize) -> __m256i;

    /// A sum of (quant as stored) * (activation), widened, less what the offset added to it.
    ///
    /// # Safety
    /// The CPU has the features; `half < 2`.
    unsafe fn less_offset(&self, _half: usize, sum: __m256i, _x: &TokenBlock) -> __m256i {
        sum
    }

    /// `acc` with this block added, given the integer sum of (quant) * (activation), times whole scales where there are any.
    ///
    /// # Safety
    /// The CPU has the features; `half < 2`.
    unsafe fn finish(&self, half: usize, acc: __m256, sum: __m256i, x: &TokenBlock) -> __m256;
}

/// One scale for 32 columns; quants are stored with `OFFSET` added.
#[derive(Clone, Copy)]
pub(crate) struct Scale<const OFFSET: i16> {
    /// By half of the rows.
    pub(super) d: [__m256; 2],
}

impl<const OFFSET: i16> Head for Scale<OFFSET> {
    const OFFSET: i16 = OFFSET;
    const GROUPED: bool = false;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widener(&self, _: usize, _: usize) -> __m256i {
        _mm256_set1_epi16(1)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn less_offset(&self, _: usize, sum: __m256i, x: &TokenBlock) -> __m256i {
        if OFFSET == 0 { sum } else { _mm256_add_epi32(sum, _mm256_madd_epi16(x.sums, _mm256_set1_epi16(-OFFSET))) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, half: usize, acc: __m256, sum: __m256i, x: &TokenBlock) -> __m256 {
        _mm256_fmadd_ps(_mm256_mul_ps(self.d[half], x.scale), _mm256_cvtepi32_ps(sum), acc)
    }
}

/// One scale and one minimum for 32 columns.
#[derive(Clone, Copy)]
pub(crate) struct ScaleMin {
    /// By half of the rows.
    pub(super) d: [__m256; 2],
    /// What is added for each column, by half of the rows.
    pub(super) m: [__m256; 2],
}

impl Head for ScaleMin {
    const OFFSET: i16 = 0;
    const GROUPED: bool = false;

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

/// A whole scale for 16 columns and one scale of scales; quants are stored with `2^OFFSET_BITS` added.
#[derive(Clone, Copy)]
pub(crate) struct Grouped<const OFFSET_BITS: i32> {
    d: [__m256; 2],
    /// Whole scales twice in every lane, 16 bits each, by halves of the columns and then of the rows.
    twice: [[__m256i; 2]; 2],
    /// Whole scales of both halves of the columns, 16 bits each, by halves of the rows.
    both: [__m256i; 2],
}

impl<const OFFSET_BITS: i32> Grouped<OFFSET_BITS> {
    /// From the scale of scales and the whole scales of the first and the last 16 columns.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn new(d: [__m256; 2], scales: [&[i8; ROWS]; 2]) -> Self {
        let twice = [twice(scales[0]), twice(scales[1])];
        Grouped { d, twice, both: interleave(&twice) }
    }
}

impl<const OFFSET_BITS: i32> Head for Grouped<OFFSET_BITS> {
    const OFFSET: i16 = 1 << OFFSET_BITS;
    const GROUPED: bool = true;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widener(&self, half: usize, columns: usize) -> __m256i {
        self.twice[columns][half]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn less_offset(&self, half: usize, sum: __m256i, x: &TokenBlock) -> __m256i {
        _mm256_sub_epi32(sum, _mm256_slli_epi32::<OFFSET_BITS>(_mm256_madd_epi16(x.sums, self.both[half])))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, half: usize, acc: __m256, sum: __m256i, x: &TokenBlock) -> __m256 {
        _mm256_fmadd_ps(_mm256_mul_ps(self.d[half], x.scale), _mm256_cvtepi32_ps(sum), acc)
    }
}

/// A whole scale for 16 columns and one scale of scales; quants are signed bytes.
#[derive(Clone, Copy)]
pub(crate) struct SignedGroups {
    d: [__m256; 2],
    /// As in [`Grouped`].
    twice: [[__m256i; 2]; 2],
}

impl SignedGroups {
    /// From the scale of scales and the whole scales of the first and the last 16 columns.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn new(d: [__m256; 2], scales: [&[i8; ROWS]; 2]) -> Self {
        SignedGroups { d, twice: [twice(scales[0]), twice(scales[1])] }
    }
}

impl Head for SignedGroups {
    const OFFSET: i16 = 0;
    const GROUPED: bool = true;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widener(&self, half: usize, columns: usize) -> __m256i {
        self.twice[columns][half]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, half: usize, acc: __m256, sum: __m256i, x: &TokenBlock) -> __m256 {
        _mm256_fmadd_ps(_mm256_mul_ps(self.d[half], x.scale), _mm256_cvtepi32_ps(sum), acc)
    }
}

/// A whole scale and a whole minimum for 16 columns, and a scale of each.
#[derive(Clone, Copy)]
pub(crate) struct GroupedMin {
    d: [__m256; 2],
    dmin: [__m256; 2],
    /// As in [`Grouped`].
    twice: [[__m256i; 2]; 2],
    /// Whole minima of both halves of the columns, 16 bits each, by halves of the rows.
    minima: [__m256i; 2],
}

impl GroupedMin {
    /// From scales and minima, each the scale of scales and the whole ones of the first and the last 16 columns.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn new(d: [__m256; 2], scales: [&[i8; ROWS]; 2], dmin: [__m256; 2], minima: [&[i8; ROWS]; 2]) -> Self {
        let minima = interleave(&[twice(minima[0]), twice(minima[1])]);
        GroupedMin { d, dmin, twice: [twice(scales[0]), twice(scales[1])], minima }
    }
}

impl Head for GroupedMin {
    const OFFSET: i16 = 0;
    const GROUPED: bool = true;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widener(&self, half: usize, columns: usize) -> __m256i {
        self.twice[columns][half]
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, half: usize, acc: __m256, sum: __m256i, x: &TokenBlock) -> __m256 {
        let acc = _mm256_fmadd_ps(_mm256_mul_ps(self.d[half], x.scale), _mm256_cvtepi32_ps(sum), acc);
        let minima = _mm256_madd_epi16(x.sums, self.minima[half]);
        _mm256_fnmadd_ps(_mm256_mul_ps(self.dmin[half], x.scale), _mm256_cvtepi32_ps(minima), acc)
    }
}

/// Each row's number twice in its lane, 16 bits each, rows by halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn twice(bytes: &[i8; ROWS]) -> [__m256i; 2] {
    // SAFETY: 16 readable bytes.
    let short = _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
    let wide = [_mm256_cvtepu16_epi32(_mm256_castsi256_si128(short)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(short))];
    [_mm256_or_si256(wide[0], _mm256_slli_epi32::<16>(wide[0])), _mm256_or_si256(wide[1], _mm256_slli_epi32::<16>(wide[1]))]
}

/// The lower 16 bits of each lane from the first, the upper from the last, rows by halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn interleave(&[first, last]: &[[__m256i; 2]; 2]) -> [__m256i; 2] {
    [_mm256_blend_epi16::<0b1010_1010>(first[0], last[0]), _mm256_blend_epi16::<0b1010_1010>(first[1], last[1])]
}
