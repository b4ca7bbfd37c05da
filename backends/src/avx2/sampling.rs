//! What sampling asks of the vocabulary.

use std::arch::x86_64::*;

use rml_kernels_ref::sampling::{BLOCK, FIXED_SHIFT};

use super::exp::exp;
use super::lanes::{WIDTH, largest, load, load_tail, store, store_tail};
use crate::KernelTable;

/// Puts these kernels into the table. Called by [`Avx2::install`](super::Avx2) alone, which has seen the features.
pub(super) fn install(owner: &'static str, table: &mut KernelTable) {
    table.block_max.put(owner, block_max);
    table.at_least.put(owner, at_least);
    table.exp_weights.put(owner, exp_weights);
    table.weight_sum.put(owner, weight_sum);
}

fn block_max(x: &[f32], out: &mut [f32]) -> bool {
    assert_eq!(out.len(), x.len().div_ceil(BLOCK), "a maximum for each block");
    // SAFETY: installed.
    unsafe { block_max_avx2(x, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn block_max_avx2(x: &[f32], out: &mut [f32]) -> bool {
    let (whole, tail) = x.as_chunks::<BLOCK>();
    let mut sums = [_mm256_setzero_ps(); 4];
    for (x, out) in whole.iter().zip(&mut *out) {
        *out = max_of(x, &mut sums);
    }
    if let ([first, ..], Some(out)) = (tail, out.last_mut()) {
        // Filled up with a number of its own, which changes neither answer.
        let mut padded = [*first; BLOCK];
        padded[..tail.len()].copy_from_slice(tail);
        *out = max_of(&padded, &mut sums);
    }
    let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
    // Times zero, what is infinite or NaN is NaN, which equals nothing.
    let finite = _mm256_cmp_ps::<_CMP_EQ_OQ>(_mm256_mul_ps(sum, _mm256_setzero_ps()), _mm256_setzero_ps());
    _mm256_movemask_ps(finite) == 0xff || all_finite(x)
}

/// The largest of a block, whose numbers are added to `sums`: these tell whether all are finite, on ports that maxima leave
/// free. A sum of what is finite may still overflow, so one that is not finite proves nothing.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn max_of(block: &[f32; BLOCK], sums: &mut [__m256; 4]) -> f32 {
    let mut max = [_mm256_set1_ps(f32::NEG_INFINITY); 4];
    for (i, x) in block.as_chunks::<WIDTH>().0.iter().enumerate() {
        let x = load(x);
        // max yields its second operand where one is NaN.
        max[i % 4] = _mm256_max_ps(x, max[i % 4]);
        sums[i % 4] = _mm256_add_ps(sums[i % 4], x);
    }
    let max = _mm256_max_ps(_mm256_max_ps(max[0], max[1]), _mm256_max_ps(max[2], max[3]));
    // Where both zeros meet, max may yield either; the sum is the positive one.
    largest(max) + 0.0
}

/// Whether each number is finite, one by one.
#[cold]
fn all_finite(x: &[f32]) -> bool {
    // No early end, so that the loop becomes one of vectors.
    x.iter().fold(true, |ok, x| ok & x.is_finite())
}

fn at_least(x: &[f32], threshold: f32, out: &mut [u32]) -> usize {
    assert!(out.len() >= x.len(), "room for every index");
    // SAFETY: installed.
    unsafe { at_least_avx2(x, threshold, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn at_least_avx2(x: &[f32], threshold: f32, out: &mut [u32]) -> usize {
    let limit = _mm256_set1_ps(threshold);
    let (whole, tail) = x.as_chunks::<STEP>();
    let mut n_found = 0;
    for (i, x) in whole.iter().enumerate() {
        let mut left = reached(x, limit);
        while left != 0 {
            out[n_found] = (i * STEP) as u32 + left.trailing_zeros();
            n_found += 1;
            left &= left - 1;
        }
    }
    for (i, &x) in tail.iter().enumerate() {
        if x >= threshold {
            out[n_found] = (whole.len() * STEP + i) as u32;
            n_found += 1;
        }
    }
    n_found
}

/// Numbers to a bit each in a mask.
const STEP: usize = 4 * WIDTH;

/// Which of `x` are at least `limit`, by bit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn reached(x: &[f32; STEP], limit: __m256) -> u32 {
    let mut bits = 0;
    for (i, x) in x.as_chunks::<WIDTH>().0.iter().enumerate() {
        let reached = _mm256_cmp_ps::<_CMP_GE_OQ>(load(x), limit);
        bits |= (_mm256_movemask_ps(reached) as u32) << (i * WIDTH);
    }
    bits
}

fn exp_weights(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "a weight for each logit");
    // SAFETY: installed.
    unsafe { exp_weights_avx2(x, best, sharpness, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn exp_weights_avx2(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]) {
    let (best, sharpness) = (_mm256_set1_ps(best), _mm256_set1_ps(sharpness));
    let ((x, x_tail), (out, out_tail)) = (x.as_chunks::<WIDTH>(), out.as_chunks_mut::<WIDTH>());
    for (x, out) in x.iter().zip(out) {
        store(weight(load(x), best, sharpness), out);
    }
    if !x_tail.is_empty() {
        store_tail(weight(load_tail(x_tail), best, sharpness), out_tail);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn weight(x: __m256, best: __m256, sharpness: __m256) -> __m256 {
    exp(_mm256_mul_ps(_mm256_sub_ps(x, best), sharpness))
}

fn weight_sum(x: &[f32], scale: f32) -> u64 {
    // SAFETY: installed.
    unsafe { weight_sum_avx2(x, scale) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn weight_sum_avx2(x: &[f32], scale: f32) -> u64 {
    let scale = _mm256_set1_ps(scale);
    let mut sums = [_mm256_setzero_si256(); 2]; // of the bits of weight + FIXED_SHIFT
    let (whole, tail) = x.as_chunks::<WIDTH>();
    for x in whole {
        add_fixed(_mm256_mul_ps(load(x), scale), &mut sums);
    }
    if !tail.is_empty() {
        add_fixed(_mm256_mul_ps(load_tail(tail), scale), &mut sums);
    }
    let sum = _mm256_add_epi64(sums[0], sums[1]);
    let sum = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let sum = (_mm_cvtsi128_si64(sum) as u64).wrapping_add(_mm_extract_epi64::<1>(sum) as u64);
    // The bits of FIXED_SHIFT were added once for each number, those that fill the end included.
    let n_added = (x.len().div_ceil(WIDTH) * WIDTH) as u64;
    sum.wrapping_sub(FIXED_SHIFT.to_bits().wrapping_mul(n_added))
}

/// Adds the bits of `x + FIXED_SHIFT`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_fixed(x: __m256, sums: &mut [__m256i; 2]) {
    let shift = _mm256_set1_pd(FIXED_SHIFT);
    for (sum, half) in sums.iter_mut().zip([_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)]) {
        *sum = _mm256_add_epi64(*sum, _mm256_castpd_si256(_mm256_add_pd(_mm256_cvtps_pd(half), shift)));
    }
}
