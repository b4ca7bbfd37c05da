//! Scales of 16 rows by 32 columns, and how they turn exact integer sums into a contribution to the result.
//!
//! Quants are multiplied unsigned. What their offset adds is known beforehand from the sums of the activations: the integer
//! sums start from its negative.

use std::arch::x86_64::*;

/// Scales of 16 rows by 32 columns.
pub(super) trait Scales: Copy {
    /// Whether 16 columns have a whole scale of their own: then the two halves are summed apart.
    const HALVED: bool = false;
    /// Whether [`finish`](Self::finish) reads the scaled sum of the activations.
    const MIN: bool = false;
    /// Whether a token's block needs whole numbers besides its quants.
    const WHOLE: bool;

    /// From the sums of both halves of 16 blocks, 16 bits each, the whole numbers that a block needs.
    ///
    /// # Safety
    /// The CPU has the features.
    unsafe fn whole(sums: __m512i) -> [__m512i; 2];

    /// What a sum over the columns starts from, `whole` being the token's numbers; `half` counts where halves are apart.
    ///
    /// # Safety
    /// The CPU has the features; `half < 2`.
    unsafe fn start(half: usize, whole: [i32; 2]) -> __m512i;

    /// The sum of the first half, times its whole scale.
    ///
    /// # Safety
    /// The CPU has the features.
    unsafe fn weigh(&self, sum: __m512i) -> __m512i {
        sum
    }

    /// `acc` with this block added. `weighed` is the first half's, `sum` that of the second half or of all columns.
    ///
    /// # Safety
    /// The CPU has the features.
    unsafe fn finish(&self, acc: __m512, weighed: __m512i, sum: __m512i, x: TokenBlock) -> __m512;
}

/// What is known of a token's block of 32 columns besides its quants.
#[derive(Clone, Copy)]
pub(super) struct TokenBlock {
    pub(super) scale: f32,
    pub(super) scaled_sum: f32,
    pub(super) whole: [i32; 2],
}

/// One scale for 32 columns; quants have `OFFSET` added.
#[derive(Clone, Copy)]
pub(super) struct Scale<const OFFSET: i16>(pub(super) __m512);

impl<const OFFSET: i16> Scales for Scale<OFFSET> {
    const WHOLE: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn whole(sums: __m512i) -> [__m512i; 2] {
        [_mm512_madd_epi16(sums, _mm512_set1_epi16(-OFFSET)); 2]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn start(_: usize, whole: [i32; 2]) -> __m512i {
        _mm512_set1_epi32(whole[0])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn finish(&self, acc: __m512, _: __m512i, sum: __m512i, x: TokenBlock) -> __m512 {
        scaled(self.0, acc, sum, x)
    }
}

/// One scale and one minimum for 32 columns.
#[derive(Clone, Copy)]
pub(super) struct ScaleMin {
    pub(super) d: __m512,
    pub(super) m: __m512,
}

impl Scales for ScaleMin {
    const MIN: bool = true;
    const WHOLE: bool = false;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn whole(_: __m512i) -> [__m512i; 2] {
        [_mm512_setzero_si512(); 2]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn start(_: usize, _: [i32; 2]) -> __m512i {
        _mm512_setzero_si512()
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn finish(&self, acc: __m512, _: __m512i, sum: __m512i, x: TokenBlock) -> __m512 {
        _mm512_fmadd_ps(self.m, _mm512_set1_ps(x.scaled_sum), scaled(self.d, acc, sum, x))
    }
}

/// A whole scale for 16 columns and one scale of scales; quants have `2^OFFSET_BITS` added.
#[derive(Clone, Copy)]
pub(super) struct Grouped<const OFFSET_BITS: u32> {
    pub(super) d: __m512,
    pub(super) groups: [__m512i; 2],
}

impl<const OFFSET_BITS: u32> Scales for Grouped<OFFSET_BITS> {
    const HALVED: bool = true;
    const WHOLE: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn whole(sums: __m512i) -> [__m512i; 2] {
        let zero = _mm512_setzero_si512();
        let (low, high) = (_mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(sums)), _mm512_srai_epi32::<16>(sums));
        [_mm512_sub_epi32(zero, _mm512_slli_epi32::<OFFSET_BITS>(low)), _mm512_sub_epi32(zero, _mm512_slli_epi32::<OFFSET_BITS>(high))]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn start(half: usize, whole: [i32; 2]) -> __m512i {
        _mm512_set1_epi32(whole[half])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn weigh(&self, sum: __m512i) -> __m512i {
        _mm512_mullo_epi32(sum, self.groups[0])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn finish(&self, acc: __m512, weighed: __m512i, sum: __m512i, x: TokenBlock) -> __m512 {
        scaled(self.d, acc, _mm512_add_epi32(weighed, _mm512_mullo_epi32(sum, self.groups[1])), x)
    }
}

/// A whole scale and a whole minimum for 16 columns, and a scale of each.
#[derive(Clone, Copy)]
pub(super) struct GroupedMin {
    pub(super) d: __m512,
    pub(super) dmin: __m512,
    pub(super) groups: [__m512i; 2],
    /// Whole minima of both halves, 16 bits each.
    pub(super) minima: __m512i,
}

impl Scales for GroupedMin {
    const HALVED: bool = true;
    const WHOLE: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn whole(sums: __m512i) -> [__m512i; 2] {
        [sums; 2]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn start(_: usize, _: [i32; 2]) -> __m512i {
        _mm512_setzero_si512()
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn weigh(&self, sum: __m512i) -> __m512i {
        _mm512_mullo_epi32(sum, self.groups[0])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn finish(&self, acc: __m512, weighed: __m512i, sum: __m512i, x: TokenBlock) -> __m512 {
        let acc = scaled(self.d, acc, _mm512_add_epi32(weighed, _mm512_mullo_epi32(sum, self.groups[1])), x);
        let minima = _mm512_madd_epi16(_mm512_set1_epi32(x.whole[0]), self.minima);
        _mm512_fnmadd_ps(_mm512_mul_ps(self.dmin, _mm512_set1_ps(x.scale)), _mm512_cvtepi32_ps(minima), acc)
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn scaled(d: __m512, acc: __m512, sum: __m512i, x: TokenBlock) -> __m512 {
    _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x.scale)), _mm512_cvtepi32_ps(sum), acc)
}
