//! Embedding rows.

use std::arch::aarch64::*;

use half::f16;
use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::format::Format;

use super::lanes::{all, store};

pub(super) fn embed_row(format: Format, row: &[u8], out: &mut [f32]) {
    assert_eq!(format.row_bytes(out.len()), Some(row.len()), "a row of {} in {format}", out.len());
    // SAFETY: every CPU of this architecture has NEON.
    unsafe {
        match format {
            Format::Q8_0 => q8_0(row, out),
            Format::Q4_0 => q4::<2>(row, out),
            Format::Q4_1 => q4::<4>(row, out),
            // A row a token is a trifle beside its products, so the rarer formats are left to the reference.
            _ => dequantize_row(format, row, out),
        }
    }
}

#[target_feature(enable = "neon")]
fn q8_0(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.as_chunks::<34>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let d = all(half(block));
        for (q, out) in block[2..].as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0) {
            // SAFETY: 16 readable bytes.
            for (i, q) in widen(unsafe { vld1q_s8(q.as_ptr().cast()) }).into_iter().enumerate() {
                store(vmulq_f32(d, q), &mut out[4 * i..]);
            }
        }
    }
}

/// `Q4_0` and `Q4_1`, told apart by the bytes before the quants.
#[target_feature(enable = "neon")]
fn q4<const HEAD: usize>(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(HEAD + 16).zip(out.as_chunks_mut::<32>().0) {
        let d = all(half(block));
        let quants: &[u8; 16] = block[HEAD..].first_chunk().expect("16 bytes");
        // SAFETY: 16 readable bytes.
        let quants = unsafe { vld1q_u8(quants.as_ptr()) };
        for (at, q) in [(0, vandq_u8(quants, vdupq_n_u8(15))), (16, vshrq_n_u8::<4>(quants))] {
            let q = vreinterpretq_s8_u8(q);
            let q = if HEAD == 4 { q } else { vsubq_s8(q, vdupq_n_s8(8)) };
            for (i, q) in widen(q).into_iter().enumerate() {
                let weight = vmulq_f32(d, q);
                store(if HEAD == 4 { vaddq_f32(weight, all(half(&block[2..]))) } else { weight }, &mut out[at + 4 * i..]);
            }
        }
    }
}

/// 16 bytes as numbers.
#[inline]
#[target_feature(enable = "neon")]
fn widen(q: int8x16_t) -> [float32x4_t; 4] {
    let (low, high) = (vmovl_s8(vget_low_s8(q)), vmovl_high_s8(q));
    [
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
        vcvtq_f32_s32(vmovl_high_s16(low)),
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
        vcvtq_f32_s32(vmovl_high_s16(high)),
    ]
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}
