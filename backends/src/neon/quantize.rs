//! Quantization of activations.

use std::arch::aarch64::*;

use rml_kernels_ref::activation::{Q8_BLOCK, Q8RowMut};
use rml_kernels_ref::quantize::ZERO_BELOW;

use super::lanes::load;

/// 32 numbers.
pub(super) type Group = [float32x4_t; 8];

pub(super) fn quantize(x: &[f32], out: &mut Q8RowMut<'_>) {
    let blocks = x.len() / Q8_BLOCK;
    assert!(
        x.len().is_multiple_of(Q8_BLOCK)
            && out.q.len() == x.len()
            && out.scale.len() == blocks
            && out.scaled_sum.len() == blocks
            && out.sum.len() == 2 * blocks,
        "quantize: a row of {}",
        x.len()
    );
    // SAFETY: every CPU of this architecture has NEON.
    unsafe { quantize_neon(x, out) }
}

#[target_feature(enable = "neon")]
fn quantize_neon(x: &[f32], out: &mut Q8RowMut<'_>) {
    let (x, _) = x.as_chunks::<Q8_BLOCK>();
    let (q, _) = out.q.as_chunks_mut::<Q8_BLOCK>();
    let (sum, _) = out.sum.as_chunks_mut::<2>();
    for ((((x, q), scale), scaled_sum), sum) in x.iter().zip(q).zip(&mut *out.scale).zip(&mut *out.scaled_sum).zip(sum) {
        let v = load_group(x);
        let max = largest_magnitude(&v);
        let inverse;
        (*scale, inverse) = match max {
            _ if !max.is_finite() => (f32::NAN, 0.0),
            _ if max < ZERO_BELOW => (0.0, 0.0),
            _ => (max / 127.0, 127.0 / max),
        };
        let bytes = narrow(&v, inverse);
        store_bytes(bytes, q);
        *sum = [vaddlvq_s8(bytes[0]), vaddlvq_s8(bytes[1])];
        *scaled_sum = *scale * f32::from(sum[0] + sum[1]);
    }
}

/// 32 numbers.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load_group(x: &[f32; 32]) -> Group {
    [load(x), load(&x[4..]), load(&x[8..]), load(&x[12..]), load(&x[16..]), load(&x[20..]), load(&x[24..]), load(&x[28..])]
}

/// 32 bytes.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store_bytes(bytes: [int8x16_t; 2], q: &mut [i8; 32]) {
    // SAFETY: twice 16 writable bytes.
    unsafe {
        vst1q_s8(q.as_mut_ptr(), bytes[0]);
        vst1q_s8(q.as_mut_ptr().add(16), bytes[1]);
    }
}

/// 32 numbers times `inverse` as signed bytes: rounded, ties to even, and kept within -128 and 127. Where the inverse is 0 so
/// are the bytes, even of what is not finite.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn narrow(v: &Group, inverse: f32) -> [int8x16_t; 2] {
    if inverse == 0.0 {
        return [vdupq_n_s8(0); 2];
    }
    [narrow_16(v[0], v[1], v[2], v[3], inverse), narrow_16(v[4], v[5], v[6], v[7], inverse)]
}

#[inline]
#[target_feature(enable = "neon")]
fn narrow_16(a: float32x4_t, b: float32x4_t, c: float32x4_t, d: float32x4_t, inverse: f32) -> int8x16_t {
    let whole = |x| vcvtnq_s32_f32(vmulq_n_f32(x, inverse));
    let low = vqmovn_high_s32(vqmovn_s32(whole(a)), whole(b));
    let high = vqmovn_high_s32(vqmovn_s32(whole(c)), whole(d));
    vqmovn_high_s16(vqmovn_s16(low), high)
}

/// The largest magnitude, NaN being the largest of all: the order of magnitudes is that of their bits.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn largest_magnitude(v: &Group) -> f32 {
    let mut max = vdupq_n_u32(0);
    for &v in v {
        max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(v)));
    }
    f32::from_bits(vmaxvq_u32(max))
}
