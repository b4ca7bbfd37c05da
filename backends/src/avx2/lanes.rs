//! Sixteen virtual lanes in two registers, and the ends of rows.
//!
//! The order of every sum is that of `rml_kernels_ref::lanes`.

use std::arch::x86_64::*;

/// Numbers in a register.
pub(super) const WIDTH: usize = 8;

/// The first 8 of `x`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load(x: &[f32]) -> __m256 {
    let x: &[f32; WIDTH] = x.first_chunk().expect("8 numbers");
    // SAFETY: 8 readable numbers; the load needs no alignment.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

/// Stores to the first 8 of `x`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store(v: __m256, x: &mut [f32]) {
    let x: &mut [f32; WIDTH] = x.first_chunk_mut().expect("8 numbers");
    // SAFETY: 8 writable numbers; the store needs no alignment.
    unsafe { _mm256_storeu_ps(x.as_mut_ptr(), v) }
}

/// At most 8 numbers, zeros behind them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn load_tail(x: &[f32]) -> __m256 {
    let mut padded = [0.0; WIDTH];
    padded[..x.len()].copy_from_slice(x);
    load(&padded)
}

/// As many numbers as `x` has, at most 8.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store_tail(v: __m256, x: &mut [f32]) {
    let mut padded = [0.0; WIDTH];
    store(v, &mut padded);
    let n = x.len();
    x.copy_from_slice(&padded[..n]);
}

/// The sum of 16 lanes by halving.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn reduce(l: [__m256; 2]) -> f32 {
    let l8 = _mm256_add_ps(l[0], l[1]);
    let l4 = _mm_add_ps(_mm256_castps256_ps128(l8), _mm256_extractf128_ps::<1>(l8));
    let l2 = _mm_add_ps(l4, _mm_movehl_ps(l4, l4));
    _mm_cvtss_f32(_mm_add_ss(l2, _mm_movehdup_ps(l2)))
}

/// The largest of 8 lanes, none of them NaN.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn largest(l: __m256) -> f32 {
    let l4 = _mm_max_ps(_mm256_castps256_ps128(l), _mm256_extractf128_ps::<1>(l));
    let l2 = _mm_max_ps(l4, _mm_movehl_ps(l4, l4));
    _mm_cvtss_f32(_mm_max_ss(l2, _mm_movehdup_ps(l2)))
}

/// `x = f(x)`, element by element.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn map(x: &mut [f32], f: impl Fn(__m256) -> __m256) {
    let (whole, tail) = x.as_chunks_mut::<WIDTH>();
    for x in whole {
        store(f(load(x)), x);
    }
    if !tail.is_empty() {
        store_tail(f(load_tail(tail)), tail);
    }
}

/// `x = f(x, y)`, element by element; `y` is as long as `x`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn zip(x: &mut [f32], y: &[f32], f: impl Fn(__m256, __m256) -> __m256) {
    let ((whole, tail), (whole_y, tail_y)) = (x.as_chunks_mut::<WIDTH>(), y.as_chunks::<WIDTH>());
    for (x, y) in whole.iter_mut().zip(whole_y) {
        store(f(load(x), load(y)), x);
    }
    if !tail.is_empty() {
        store_tail(f(load_tail(tail), load_tail(tail_y)), tail);
    }
}

/// The 16 lanes after `f(lanes, x)` on each 16 of `x` in turn; a row's end is filled with zeros.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fold(x: &[f32], mut lanes: [__m256; 2], f: impl Fn(__m256, __m256) -> __m256) -> [__m256; 2] {
    let (whole, tail) = x.as_chunks::<{ 2 * WIDTH }>();
    for x in whole {
        lanes = [f(lanes[0], load(x)), f(lanes[1], load(&x[WIDTH..]))];
    }
    let (low, high) = tail.split_at(tail.len().min(WIDTH));
    if !low.is_empty() {
        lanes = [f(lanes[0], load_tail(low)), f(lanes[1], load_tail(high))];
    }
    lanes
}
