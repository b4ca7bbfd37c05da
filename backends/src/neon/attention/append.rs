//! Keys and values into the cache.

use std::arch::aarch64::*;

use half::f16;
use rml_kernels_ref::append::{group_scale, quantize_group};
use rml_kernels_ref::attention;
use rml_kernels_ref::kv::{KEY_PANEL, KV_GROUP, KvHeadMut, kv_groups};

use crate::neon::half::to_halves;
use crate::neon::lanes::{WIDTH, load};
use crate::neon::quantize::{largest_magnitude, load_group, narrow, store_bytes};

pub(in crate::neon) fn append(kv: &mut KvHeadMut<'_>, position: usize, key: &[f32], value: &[f32]) {
    let d = key.len();
    assert_eq!(d, value.len(), "append");
    match kv {
        KvHeadMut::F16 { k, v } => {
            let panel = &mut k[position / KEY_PANEL * KEY_PANEL * d..][..KEY_PANEL * d];
            let (keys, _) = panel.as_chunks_mut::<KEY_PANEL>();
            // SAFETY: every CPU of this architecture has NEON.
            unsafe { append_f16(keys, position % KEY_PANEL, &mut v[position * d..][..d], key, value) }
        }
        KvHeadMut::F32 { .. } => attention::append(kv, position, key, value),
        KvHeadMut::I8 { k, v, k_scale, v_scale } => {
            let panel = position / KEY_PANEL * KEY_PANEL;
            let (keys, _) = k[panel * d..][..KEY_PANEL * d].as_chunks_mut::<KEY_PANEL>();
            let (first, n) = (panel * kv_groups(d), KEY_PANEL * kv_groups(d));
            let (k_scales, _) = k_scale[first..][..n].as_chunks_mut::<KEY_PANEL>();
            let (v_scales, _) = v_scale[first..][..n].as_chunks_mut::<KEY_PANEL>();
            // SAFETY: every CPU of this architecture has NEON.
            unsafe {
                append_i8(keys, k_scales, position % KEY_PANEL, key);
                append_row_i8(&mut v[position * d..][..d], v_scales, position % KEY_PANEL, value);
            }
        }
    }
}

/// Key `t` of a panel, and its scales.
#[target_feature(enable = "neon")]
fn append_i8(keys: &mut [[i8; KEY_PANEL]], scales: &mut [[f16; KEY_PANEL]], t: usize, key: &[f32]) {
    for ((x, keys), scale) in key.chunks(KV_GROUP).zip(keys.chunks_mut(KV_GROUP)).zip(scales) {
        let mut q = [0; KV_GROUP];
        scale[t] = quantize(x, &mut q);
        for (q, key) in q.into_iter().zip(keys) {
            key[t] = q;
        }
    }
}

/// A row of values, and its scales at `t` of their panel.
#[target_feature(enable = "neon")]
fn append_row_i8(values: &mut [i8], scales: &mut [[f16; KEY_PANEL]], t: usize, value: &[f32]) {
    for ((x, values), scale) in value.chunks(KV_GROUP).zip(values.chunks_mut(KV_GROUP)).zip(scales) {
        let mut q = [0; KV_GROUP];
        scale[t] = quantize(x, &mut q);
        values.copy_from_slice(&q[..x.len()]);
    }
}

/// Quantizes a group, as `rml_kernels_ref::append::quantize_group` does.
#[inline]
#[target_feature(enable = "neon")]
fn quantize(x: &[f32], q: &mut [i8; KV_GROUP]) -> f16 {
    let Ok(x) = <&[f32; KV_GROUP]>::try_from(x) else { return quantize_group(x, q) };
    let x = load_group(x);
    let (scale, inverse) = group_scale(largest_magnitude(&x));
    let bytes = narrow(&x, inverse);
    store_bytes([vmaxq_s8(bytes[0], vdupq_n_s8(-127)), vmaxq_s8(bytes[1], vdupq_n_s8(-127))], q);
    scale
}

/// Key `t` of a panel, and a row of values.
#[target_feature(enable = "neon")]
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
#[target_feature(enable = "neon")]
fn halves(x: &[f32; WIDTH]) -> [f16; WIDTH] {
    let mut halves = [f16::ZERO; WIDTH];
    // SAFETY: 8 writable bytes.
    unsafe { vst1_u16(halves.as_mut_ptr().cast(), to_halves(load(x))) };
    halves
}
