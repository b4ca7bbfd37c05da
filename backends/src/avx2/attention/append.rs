//! Keys and values into the cache.

use std::arch::x86_64::*;

use half::f16;
use rml_kernels_ref::attention;
use rml_kernels_ref::kv::{KEY_PANEL, KvHeadMut};

use crate::avx2::lanes::{WIDTH, load};

pub(crate) fn append(kv: &mut KvHeadMut<'_>, position: usize, key: &[f32], value: &[f32]) {
    let d = key.len();
    assert_eq!(d, value.len(), "append");
    match kv {
        KvHeadMut::F16 { k, v } => {
            let panel = &mut k[position / KEY_PANEL * KEY_PANEL * d..][..KEY_PANEL * d];
            let (keys, _) = panel.as_chunks_mut::<KEY_PANEL>();
            // SAFETY: installed.
            unsafe { append_f16(keys, position % KEY_PANEL, &mut v[position * d..][..d], key, value) }
        }
        KvHeadMut::F32 { .. } => attention::append(kv, position, key, value),
    }
}

/// Key `t` of a panel, and a row of values.
#[target_feature(enable = "avx2,fma,f16c")]
fn append_f16(keys: &mut [[f16; KEY_PANEL]], t: usize, values: &mut [f16], key: &[f32], value: &[f32]) {
    let ((whole, tail), (values, values_tail)) = (value.as_chunks::<WIDTH>(), values.as_chunks_mut::<WIDTH>());
    for (x, out) in whole.iter().zip(values) {
        *out = halves(x);
    }
    for (x, out) in tail.iter().zip(values_tail) {
        *out = f16::from_f32(*x);
    }
    let ((whole, tail), (keys, keys_tail)) = (key.as_chunks::<WIDTH>(), keys.as_chunks_mut::<WIDTH>());
    for (x, keys) in whole.iter().zip(keys) {
        for (x, key) in halves(x).into_iter().zip(keys) {
            key[t] = x;
        }
    }
    for (x, key) in tail.iter().zip(keys_tail) {
        key[t] = f16::from_f32(*x);
    }
}

/// Rounds to f16, ties to even.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves(x: &[f32; WIDTH]) -> [f16; WIDTH] {
    let mut halves = [f16::ZERO; WIDTH];
    // SAFETY: 16 writable bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(halves.as_mut_ptr().cast(), _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(load(x))) };
    halves
}
