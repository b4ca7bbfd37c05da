//! What each row of a tile has one of: its largest score, its sum, and how a block folds into them. Row `r` is in lane `r`.

use std::arch::x86_64::*;

use super::block::WIDTH;
use crate::avx512::exp::exp_each;

/// How a block folds into what the rows have so far; see `rml_kernels_ref::attention`. Rows in neither set stay as they are.
#[derive(Clone, Copy, Default)]
pub(super) struct Fold {
    /// Rows whose outputs are mixed with those of the block.
    pub(super) mix: u16,
    /// Rows that had none.
    pub(super) replace: u16,
    /// What outputs so far are multiplied with, where they are mixed.
    pub(super) older: [f32; WIDTH],
    /// What those of the block are multiplied with.
    pub(super) newer: [f32; WIDTH],
}

impl Fold {
    /// Whether all rows stay as they are.
    pub(super) fn is_none(&self) -> bool {
        self.mix | self.replace == 0
    }
}

/// The set of the first `n` rows.
pub(super) const fn first(n: usize) -> u16 {
    u16::MAX >> (WIDTH - n)
}

/// A register for each row of a tile, zeros for those that there are not.
pub(super) type Lanes = [__m512; WIDTH];

/// The largest lane of each of `N` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn largest<const N: usize>(lanes: Lanes) -> __m512 {
    halve::<N>(lanes, |a, b| _mm512_max_ps(a, b))
}

/// The sum of the lanes of each of `N` rows, by halving.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn sums<const N: usize>(lanes: Lanes) -> __m512 {
    halve::<N>(lanes, |a, b| _mm512_add_ps(a, b))
}

/// Joins lanes `i` and `i + 8` of each row, then `i` and `i + 4`, `i + 2`, `i + 1`. Each step leaves half the registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn halve<const N: usize>(mut l: Lanes, join: impl Fn(__m512, __m512) -> __m512) -> __m512 {
    for i in 0..N.div_ceil(2) {
        let (a, b) = (l[2 * i], l[2 * i + 1]);
        l[i] = join(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
    }
    for i in 0..N.div_ceil(4) {
        let (a, b) = (l[2 * i], l[2 * i + 1]);
        l[i] = join(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
    }
    for i in 0..N.div_ceil(8) {
        let (a, b) = (_mm512_castps_pd(l[2 * i]), _mm512_castps_pd(l[2 * i + 1]));
        l[i] = join(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    let joined = join(_mm512_shuffle_ps::<0x88>(l[0], l[1]), _mm512_shuffle_ps::<0xdd>(l[0], l[1]));
    // Now row `4 i + j` is in lane `4 j + i`.
    _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), joined)
}

/// Folds largest scores and sums of a block into those of `N` rows so far, and says what is to happen to their outputs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn fold<const N: usize>(max2: __m512, sum2: __m512, max: &mut [f32; N], sum: &mut [f32; N]) -> Fold {
    let zero = _mm512_setzero_ps();
    // SAFETY: `N` readable numbers each.
    let (max1, sum1) = unsafe { (_mm512_maskz_loadu_ps(first(N), max.as_ptr()), _mm512_maskz_loadu_ps(first(N), sum.as_ptr())) };
    let m = _mm512_mask_mov_ps(max1, _mm512_cmp_ps_mask::<_CMP_GT_OQ>(max2, max1), max2);
    let [older, newer] = exp_each([_mm512_sub_ps(max1, m), _mm512_sub_ps(max2, m)]);
    let some = first(N) & _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(sum2, zero);
    let replace = some & _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(sum1, zero);
    let mixed = _mm512_fmadd_ps(sum1, older, _mm512_mul_ps(sum2, newer));
    // SAFETY: `N` writable numbers.
    unsafe {
        _mm512_mask_storeu_ps(max.as_mut_ptr(), some, _mm512_mask_mov_ps(m, replace, max2));
        _mm512_mask_storeu_ps(sum.as_mut_ptr(), some, _mm512_mask_mov_ps(mixed, replace, sum2));
    }
    Fold { mix: some & !replace, replace, older: numbers(older), newer: numbers(newer) }
}

/// The lanes of a register.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn numbers(v: __m512) -> [f32; WIDTH] {
    // SAFETY: 16 numbers, in this order.
    unsafe { std::mem::transmute(v) }
}
