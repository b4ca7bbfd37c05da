//! Blocks of 256: groups whose scales, and minima, are whole numbers themselves.

use super::pack::{put_half, put_nibbles, put_one_bit, put_scale_min, put_scales_q3, put_two_bits};
use super::search::{Steps, ZERO_BELOW, nearest, scale, scale_by_turns, scale_min};

const Q2_K: Steps = Steps { most: 3, first: -0.5, step: 0.1, n: 15, magnitudes: true };
const Q4_K: Steps = Steps { most: 15, first: -1.0, step: 0.1, n: 20, magnitudes: false };
const Q5_K: Steps = Steps { most: 31, first: -0.5, step: 0.1, n: 15, magnitudes: false };

/// The largest of what is not negative.
fn most(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |most, &x| if x > most { x } else { most })
}

/// The scale of largest magnitude, the first of equals.
fn largest(scales: &[f32]) -> f32 {
    scales.iter().fold(0.0_f32, |largest, &x| if x.abs() > largest.abs() { x } else { largest })
}

pub(super) fn q2_k(x: &[f32], block: &mut [u8]) {
    let mut q = [0; 256];
    let (mut scales, mut mins) = ([0.0; 16], [0.0; 16]);
    for (j, (x, q)) in x.chunks_exact(16).zip(q.chunks_exact_mut(16)).enumerate() {
        let mut weights = [0.0; 16];
        weights.iter_mut().zip(x).for_each(|(w, x)| *w = x.abs());
        (scales[j], mins[j]) = scale_min(&Q2_K, x, &weights, q);
    }
    let (supers, groups) = block.split_at_mut(16);
    let (max_scale, max_min) = (most(&scales), most(&mins));
    let inverse = |max: f32| if max > 0.0 { 15.0 / max } else { 0.0 };
    let (of_scales, of_mins) = (inverse(max_scale), inverse(max_min));
    for (j, out) in supers.iter_mut().enumerate() {
        *out = nearest(of_scales * scales[j]) as u8 | (nearest(of_mins * mins[j]) << 4) as u8;
    }
    let d = put_half(max_scale / 15.0, &mut groups[64..]);
    let dmin = put_half(max_min / 15.0, &mut groups[66..]);
    let shared = |j: usize| (d * f32::from(supers[j] & 15), dmin * f32::from(supers[j] >> 4));
    again(x, &mut q, 16, shared, 0, 3);
    put_two_bits(&q, 0, &mut groups[..64]);
}

pub(super) fn q3_k(x: &[f32], block: &mut [u8]) {
    let mut q = [0; 256];
    let mut scales = [0.0; 16];
    for (scale, (x, q)) in scales.iter_mut().zip(x.chunks_exact(16).zip(q.chunks_exact_mut(16))) {
        *scale = scale_by_turns(4, x, q);
    }
    let largest = largest(&scales);
    let mut sixes = [0; 16];
    let d = if largest == 0.0 {
        block[96..108].fill(0);
        put_half(0.0, &mut block[108..])
    } else {
        let inverse = -32.0 / largest;
        // As llama.cpp does it, the number passes through eight bits before it is limited.
        sixes.iter_mut().zip(scales).for_each(|(six, s)| *six = (i32::from(nearest(inverse * s) as i8).clamp(-32, 31) + 32) as u8);
        put_scales_q3(&sixes, &mut block[96..108]);
        put_half(1.0 / inverse, &mut block[108..])
    };
    again(x, &mut q, 16, |j| (d * (f32::from(sixes[j]) - 32.0), 0.0), 4, 3);
    put_one_bit(&q, 2, &mut block[..32]);
    put_two_bits(&q, 0, &mut block[32..96]);
}

pub(super) fn q4_k(x: &[f32], block: &mut [u8]) {
    let q = scales_and_minima(&Q4_K, x, block);
    put_nibbles(&q, 32, &mut block[16..]);
}

pub(super) fn q5_k(x: &[f32], block: &mut [u8]) {
    let q = scales_and_minima(&Q5_K, x, block);
    put_one_bit(&q, 4, &mut block[16..48]);
    put_nibbles(&q, 32, &mut block[48..]);
}

/// Writes the head of a block of Q4_K or Q5_K and gives its whole numbers.
fn scales_and_minima(steps: &Steps, x: &[f32], block: &mut [u8]) -> [u8; 256] {
    let mut q = [0; 256];
    let (mut scales, mut mins) = ([0.0; 8], [0.0; 8]);
    for (j, (x, q)) in x.chunks_exact(32).zip(q.chunks_exact_mut(32)).enumerate() {
        let squares = x.iter().fold(0.0_f32, |sum, x| sum + x * x);
        let mean = (squares / 32.0).sqrt();
        let mut weights = [0.0; 32];
        weights.iter_mut().zip(x).for_each(|(w, x)| *w = mean + x.abs());
        (scales[j], mins[j]) = scale_min(steps, x, &weights, q);
    }
    let (max_scale, max_min) = (most(&scales), most(&mins));
    let sixes = |max: f32, of: [f32; 8]| {
        let inverse = if max > 0.0 { 63.0 / max } else { 0.0 };
        of.map(|x| (nearest(inverse * x) as u8).min(63))
    };
    let (scales, mins) = (sixes(max_scale, scales), sixes(max_min, mins));
    put_scale_min(&scales, &mins, &mut block[4..16]);
    let d = put_half(max_scale / 63.0, block);
    let dmin = put_half(max_min / 63.0, &mut block[2..]);
    again(x, &mut q, 32, |j| (d * f32::from(scales[j]), dmin * f32::from(mins[j])), 0, steps.most);
    q
}

pub(super) fn q6_k(x: &[f32], block: &mut [u8]) {
    let mut q = [0; 256];
    let mut scales = [0.0; 16];
    for (s, (x, q)) in scales.iter_mut().zip(x.chunks_exact(16).zip(q.chunks_exact_mut(16))) {
        *s = scale(32, x, q);
    }
    let largest = largest(&scales);
    if largest.abs() < ZERO_BELOW {
        block.fill(0);
        return;
    }
    let inverse = -128.0 / largest;
    let d = put_half(1.0 / inverse, &mut block[208..]);
    let groups = scales.map(|s| nearest(inverse * s).min(127) as i8);
    block[192..208].iter_mut().zip(groups).for_each(|(out, g)| *out = g as u8);
    again(x, &mut q, 16, |j| (d * f32::from(groups[j]), 0.0), 32, 31);
    put_nibbles(&q, 64, &mut block[..128]);
    put_two_bits(&q, 4, &mut block[128..192]);
}

/// Rounds weights anew with the scales and minima as stored; a group whose scale became zero is left as it was.
///
/// Whole numbers are limited to `-offset ..= most` and stored with `offset` added.
fn again(x: &[f32], q: &mut [u8; 256], group: usize, stored: impl Fn(usize) -> (f32, f32), offset: i32, most: i32) {
    for (j, (x, q)) in x.chunks_exact(group).zip(q.chunks_exact_mut(group)).enumerate() {
        let (d, min) = stored(j);
        if d != 0.0 {
            q.iter_mut().zip(x).for_each(|(q, &x)| *q = (nearest((x + min) / d).clamp(-offset, most) + offset) as u8);
        }
    }
}
