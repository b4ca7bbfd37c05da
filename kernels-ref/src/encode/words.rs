//! Blocks of 32.

use super::pack::put_half;

/// The number of largest magnitude, the first of equals.
fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0_f32, |largest, &x| if x.abs() > largest.abs() { x } else { largest })
}

/// `1 / d`, and 0 for 0.
fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Nibbles of 32 whole numbers: the first 16 low, the others high.
fn put_nibbles(q: &[u8; 32], out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = (q[i] & 15) | (q[i + 16] & 15) << 4;
    }
}

/// The fifth bits of 32 whole numbers.
fn put_fifth_bits(q: &[u8; 32], out: &mut [u8]) {
    let bits = q.iter().enumerate().fold(0_u32, |bits, (i, &q)| bits | u32::from(q >> 4) << i);
    out.copy_from_slice(&bits.to_le_bytes());
}

/// Whole numbers from 0 to `2 * half - 1`, and their scale: the largest weight is `-half` scales.
fn around_zero(x: &[f32], half: f32) -> ([u8; 32], f32) {
    let d = largest(x) / -half;
    let id = inverse(d);
    let mut q = [0; 32];
    for (q, &x) in q.iter_mut().zip(x) {
        *q = ((x * id + (half + 0.5)) as u8).min(2 * half as u8 - 1);
    }
    (q, d)
}

/// Whole numbers from 0 to `steps`, their scale and the least weight.
fn from_least(x: &[f32], steps: u8) -> ([u8; 32], f32, f32) {
    let (min, max) = x.iter().fold((f32::MAX, -f32::MAX), |(min, max), &x| (min.min(x), max.max(x)));
    let d = (max - min) / f32::from(steps);
    let id = inverse(d);
    let mut q = [0; 32];
    for (q, &x) in q.iter_mut().zip(x) {
        *q = (((x - min) * id + 0.5) as u8).min(steps);
    }
    (q, d, min)
}

pub(super) fn q4_0(x: &[f32], block: &mut [u8]) {
    let (q, d) = around_zero(x, 8.0);
    put_half(d, block);
    put_nibbles(&q, &mut block[2..]);
}

pub(super) fn q4_1(x: &[f32], block: &mut [u8]) {
    let (q, d, min) = from_least(x, 15);
    put_half(d, block);
    put_half(min, &mut block[2..]);
    put_nibbles(&q, &mut block[4..]);
}

pub(super) fn q5_0(x: &[f32], block: &mut [u8]) {
    let (q, d) = around_zero(x, 16.0);
    put_half(d, block);
    put_fifth_bits(&q, &mut block[2..6]);
    put_nibbles(&q, &mut block[6..]);
}

pub(super) fn q5_1(x: &[f32], block: &mut [u8]) {
    let (q, d, min) = from_least(x, 31);
    put_half(d, block);
    put_half(min, &mut block[2..]);
    put_fifth_bits(&q, &mut block[4..8]);
    put_nibbles(&q, &mut block[8..]);
}

pub(super) fn q8_0(x: &[f32], block: &mut [u8]) {
    let d = largest(x).abs() / 127.0;
    let id = inverse(d);
    put_half(d, block);
    for (out, &x) in block[2..].iter_mut().zip(x) {
        *out = (x * id).round() as i8 as u8;
    }
}
