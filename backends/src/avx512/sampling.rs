//! What sampling asks of the vocabulary. The maxima of blocks are left to AVX2: they wait for memory, and a load of 512 bits
//! that is not aligned takes two lines of it.

use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;

use rml_kernels_ref::exp::{HI, LN2_HI, LN2_LO, LO, POLYNOMIAL};
use rml_kernels_ref::sampling::{BLOCK, FIXED_BITS};

use crate::KernelTable;

/// Puts these kernels into the table. Called by [`Avx512::install`](super::Avx512) alone, which has seen the features.
pub(super) fn install(owner: &'static str, table: &mut KernelTable) {
    table.at_least.put(owner, at_least);
    table.exp_weights.put(owner, exp_weights);
    table.weight_sum.put(owner, weight_sum);
}

/// Numbers in a register.
const WIDTH: usize = 16;
/// Up to so many of a block are found faster one by one than by registers.
const FEW: usize = 6;

fn at_least(x: &[f32], threshold: f32, out: &mut [u32]) -> usize {
    assert!(out.len() >= x.len(), "room for every index");
    // SAFETY: installed.
    unsafe { at_least_avx512(x, threshold, out) }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn at_least_avx512(x: &[f32], threshold: f32, out: &mut [u32]) -> usize {
    let limit = _mm512_set1_ps(threshold);
    let first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let (whole, tail) = x.as_chunks::<BLOCK>();
    let mut n_found = 0;
    for (i, x) in whole.iter().enumerate() {
        let mut reached = 0_u64; // by bit
        for (j, x) in x.as_chunks().0.iter().enumerate() {
            reached |= u64::from(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(load(x), limit)) << (j * WIDTH);
        }
        if reached == 0 {
            continue;
        }
        let counts = running_counts(reached);
        let n = (counts >> 56) as usize;
        if n <= FEW {
            let mut left = reached;
            for out in &mut out[n_found..][..n] {
                *out = (i * BLOCK) as u32 + left.trailing_zeros();
                left &= left - 1;
            }
            n_found += n;
            continue;
        }
        // No more than i blocks were found so far.
        let room: &mut [u32; BLOCK] = out[n_found..].first_chunk_mut().expect("room for a block");
        for j in 0..BLOCK / WIDTH {
            let ids = _mm512_add_epi32(first, _mm512_set1_epi32((i * BLOCK + j * WIDTH) as i32));
            let front = _mm512_maskz_compress_epi32((reached >> (j * WIDTH)) as u16, ids);
            // In the j registers before this one, no more than those were found: room for a whole one is left, of which
            // the front counts. To store that alone is slow on Zen 4.
            let start = (counts << 8 >> (j * WIDTH)) as u8;
            let room: &mut [u32; WIDTH] = room[usize::from(start)..].first_chunk_mut().expect("room for a register");
            // SAFETY: 16 writable numbers; the store needs no alignment.
            unsafe { _mm512_storeu_si512(room.as_mut_ptr().cast(), front) };
        }
        n_found += n;
    }
    for (i, &x) in tail.iter().enumerate() {
        if x >= threshold {
            out[n_found] = (whole.len() * BLOCK + i) as u32;
            n_found += 1;
        }
    }
    n_found
}

/// How many bits are set in each byte and those below it, by byte.
#[inline]
fn running_counts(bits: u64) -> u64 {
    let pairs = bits - (bits >> 1 & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let bytes = (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    bytes.wrapping_mul(0x0101_0101_0101_0101)
}

fn exp_weights(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "a weight for each logit");
    // SAFETY: installed.
    unsafe { exp_weights_avx512(x, best, sharpness, out) }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn exp_weights_avx512(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]) {
    let (best, sharpness) = (_mm512_set1_ps(best), _mm512_set1_ps(sharpness));
    let ((x, x_tail), (out, out_tail)) = (x.as_chunks(), out.as_chunks_mut());
    for (x, out) in x.iter().zip(out) {
        store(weight(load(x), best, sharpness), out);
    }
    if !x_tail.is_empty() {
        let mut padded = [0.0; WIDTH];
        padded[..x_tail.len()].copy_from_slice(x_tail);
        let x = load(&padded);
        store(weight(x, best, sharpness), &mut padded);
        out_tail.copy_from_slice(&padded[..out_tail.len()]);
    }
}

/// The exponential of `(x - best) * sharpness`: the polynomial of `rml_kernels_ref::exp`, operation for operation.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn weight(x: __m512, best: __m512, sharpness: __m512) -> __m512 {
    let x = _mm512_mul_ps(_mm512_sub_ps(x, best), sharpness);
    // min and max yield their second operand where it is NaN.
    let x = _mm512_max_ps(_mm512_set1_ps(LO), _mm512_min_ps(_mm512_set1_ps(HI), x));
    let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm512_mul_ps(x, _mm512_set1_ps(LOG2_E)));
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HI), x);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LO), r);
    let mut p = _mm512_set1_ps(POLYNOMIAL[0]);
    for c in &POLYNOMIAL[1..] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*c));
    }
    let p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0));
    // The result is normal, so this is the product with 2^n.
    _mm512_scalef_ps(p, n)
}

fn weight_sum(x: &[f32], scale: f32) -> u64 {
    // SAFETY: installed.
    unsafe { weight_sum_avx512(x, scale) }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn weight_sum_avx512(x: &[f32], scale: f32) -> u64 {
    let (scale, units) = (_mm512_set1_ps(scale), _mm512_set1_ps((1_u64 << FIXED_BITS) as f32));
    let mut sums = [_mm512_setzero_si512(); 2];
    let (whole, tail) = x.as_chunks();
    for x in whole {
        // Two products: the first is rounded as the reference rounds it, the second is exact.
        add_whole(_mm512_mul_ps(_mm512_mul_ps(load(x), scale), units), &mut sums);
    }
    if !tail.is_empty() {
        let mut padded = [0.0; WIDTH];
        padded[..tail.len()].copy_from_slice(tail);
        add_whole(_mm512_mul_ps(_mm512_mul_ps(load(&padded), scale), units), &mut sums);
    }
    _mm512_reduce_add_epi64(_mm512_add_epi64(sums[0], sums[1])) as u64
}

/// Adds the whole numbers nearest to `x`, ties to even.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn add_whole(x: __m512, sums: &mut [__m512i; 2]) {
    sums[0] = _mm512_add_epi64(sums[0], _mm512_cvtps_epi64(_mm512_castps512_ps256(x)));
    sums[1] = _mm512_add_epi64(sums[1], _mm512_cvtps_epi64(_mm512_extractf32x8_ps::<1>(x)));
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn load(x: &[f32; WIDTH]) -> __m512 {
    // SAFETY: 16 readable numbers; the load needs no alignment.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn store(v: __m512, x: &mut [f32; WIDTH]) {
    // SAFETY: 16 writable numbers; the store needs no alignment.
    unsafe { _mm512_storeu_ps(x.as_mut_ptr(), v) }
}
