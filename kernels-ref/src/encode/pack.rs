//! Whole numbers and scales put where [`crate::blocks`] looks for them.

use half::f16;

/// Writes an f16 and returns what it stands for.
pub(super) fn put_half(x: f32, out: &mut [u8]) -> f32 {
    let half = f16::from_f32(x);
    out[..2].copy_from_slice(&half.to_le_bytes());
    half.to_f32()
}

/// Two bits of each of 256 numbers in 64 bytes: of 128 numbers, those 32 apart share a byte.
pub(super) fn put_two_bits(q: &[u8; 256], from: u32, out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        let first = i / 32 * 128 + i % 32;
        *out = (0..4).fold(0, |byte, j| byte | (q[first + 32 * j] >> from & 3) << (2 * j));
    }
}

/// One bit of each of 256 numbers in 32 bytes: numbers 32 apart share a byte.
pub(super) fn put_one_bit(q: &[u8; 256], bit: u32, out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = (0..8).fold(0, |byte, j| byte | (q[i + 32 * j] >> bit & 1) << j);
    }
}

/// The low nibbles of 256 numbers in 128 bytes: of `2 * apart` numbers, those `apart` apart share a byte.
pub(super) fn put_nibbles(q: &[u8; 256], apart: usize, out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        let first = i / apart * 2 * apart + i % apart;
        *out = (q[first] & 15) | (q[first + apart] & 15) << 4;
    }
}

/// The 6-bit scales and minima of 8 groups in 12 bytes, as Q4_K and Q5_K have them.
pub(super) fn put_scale_min(scales: &[u8; 8], mins: &[u8; 8], out: &mut [u8]) {
    for j in 0..4 {
        out[j] = scales[j] | scales[j + 4] >> 4 << 6;
        out[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        out[j + 8] = (scales[j + 4] & 15) | (mins[j + 4] & 15) << 4;
    }
}

/// The 6-bit scales of 16 groups in 12 bytes, as Q3_K has them, their offset added.
pub(super) fn put_scales_q3(scales: &[u8; 16], out: &mut [u8]) {
    for j in 0..8 {
        out[j] = (scales[j] & 15) | (scales[j + 8] & 15) << 4;
    }
    for j in 0..4 {
        out[8 + j] = (0..4).fold(0, |byte, i| byte | (scales[j + 4 * i] >> 4) << (2 * i));
    }
}
