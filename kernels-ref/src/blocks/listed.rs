//! Blocks whose numbers are looked up or are few: the IQ formats, ternary ones and MXFP4.
//!
//! All of them come out as whole numbers of 8 bits and scales, so products need nothing new. Where the package `gguf` scales
//! by halves, the halves are taken into the whole numbers: that is exact, as no product here has more than 24 bits.

use half::f16;

use super::grids::{self, even_signs, sign};
use super::{Block, Shape, half};
use crate::format::Format;

/// What the nibbles of IQ4 mean.
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// What the nibbles of MXFP4 mean: twice the values of E2M1.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

fn u16_at(bytes: &[u8], i: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

fn u32_at(bytes: &[u8], i: usize) -> u32 {
    u32::from(u16_at(bytes, 2 * i)) | u32::from(u16_at(bytes, 2 * i + 1)) << 16
}

/// Nibble `i` of bytes, the low one first.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (4 * (i % 2)) & 15
}

/// Reads a block of a format that [`Block::read`] leaves to this file.
pub(super) fn read(block: &mut Block, format: Format, bytes: &[u8]) -> Shape {
    match format {
        Format::IQ1_S => iq1_s(block, bytes),
        Format::IQ1_M => iq1_m(block, bytes),
        Format::IQ2_XXS => iq2_xxs(block, bytes),
        Format::IQ2_XS => iq2_xs(block, bytes),
        Format::IQ2_S => iq2_s(block, bytes),
        Format::IQ3_XXS => iq3_xxs(block, bytes),
        Format::IQ3_S => iq3_s(block, bytes),
        Format::IQ4_NL => {
            from_nibbles(&IQ4, &bytes[2..], &mut block.q[..32]);
            block.scale[0] = half(bytes);
            Shape::Scaled
        }
        Format::IQ4_XS => iq4_xs(block, bytes),
        Format::TQ1_0 => tq1_0(block, bytes),
        Format::TQ2_0 => {
            for (i, q) in block.q.iter_mut().enumerate() {
                *q = (bytes[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3) as i8 - 1;
            }
            block.scale = [half(&bytes[64..]); 8];
            Shape::Scaled
        }
        Format::MXFP4 => {
            from_nibbles(&E2M1, &bytes[1..], &mut block.q[..32]);
            block.scale[0] = half_of_e8m0(bytes[0]);
            Shape::Scaled
        }
        _ => panic!("{format} has no list"),
    }
}

/// 16 bytes of nibbles: the low ones, then the high ones.
fn from_nibbles(values: &[i8; 16], bytes: &[u8], q: &mut [i8]) {
    let (low, high) = q.split_at_mut(16);
    for ((low, high), &b) in low.iter_mut().zip(high).zip(bytes) {
        *low = values[usize::from(b & 15)];
        *high = values[usize::from(b >> 4)];
    }
}

/// `2^(e - 128)`: half of what E8M0 means, as the list holds twice the values.
fn half_of_e8m0(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x20_0000 << e } else { u32::from(e - 1) << 23 })
}

fn iq2_xxs(block: &mut Block, bytes: &[u8]) -> Shape {
    let (d, words) = (half(bytes), &bytes[2..]);
    for (b, q) in block.q.chunks_exact_mut(32).enumerate() {
        let rest = u32_at(words, 2 * b + 1);
        for (l, q) in q.chunks_exact_mut(8).enumerate() {
            grids::IQ2_XXS.point(usize::from(words[8 * b + l]), q);
            sign(q, even_signs(rest >> (7 * l)));
        }
        block.scale[b] = d * (0.5 + (rest >> 28) as f32) * 0.25;
    }
    Shape::Scaled
}

/// Scales of 16 weights that are four bits and a half: whole numbers in units of `d / 8`.
fn half_scales(block: &mut Block, d: f32, nibbles: &[u8]) -> Shape {
    for (g, group) in block.group.iter_mut().enumerate() {
        *group = 2 * nibble(nibbles, g) as i8 + 1;
    }
    block.scale = [d * 0.125; 8];
    Shape::Grouped
}

fn iq2_xs(block: &mut Block, bytes: &[u8]) -> Shape {
    for (i, q) in block.q.chunks_exact_mut(8).enumerate() {
        let word = u16_at(&bytes[2..], i);
        grids::IQ2_XS.point(usize::from(word & 511), q);
        sign(q, even_signs(u32::from(word >> 9)));
    }
    half_scales(block, half(bytes), &bytes[66..])
}

fn iq2_s(block: &mut Block, bytes: &[u8]) -> Shape {
    let (low, signs, high) = (&bytes[2..34], &bytes[34..66], &bytes[66..74]);
    for (i, q) in block.q.chunks_exact_mut(8).enumerate() {
        let upper = usize::from(high[i / 4] >> (2 * (i % 4)) & 3);
        grids::IQ2_S.point(usize::from(low[i]) | upper << 8, q);
        sign(q, signs[i]);
    }
    half_scales(block, half(bytes), &bytes[74..])
}

fn iq3_xxs(block: &mut Block, bytes: &[u8]) -> Shape {
    let (d, points, words) = (half(bytes), &bytes[2..66], &bytes[66..]);
    for (b, q) in block.q.chunks_exact_mut(32).enumerate() {
        let rest = u32_at(words, b);
        for (l, q) in q.chunks_exact_mut(8).enumerate() {
            let (first, last) = q.split_at_mut(4);
            grids::IQ3_XXS.point(usize::from(points[8 * b + 2 * l]), first);
            grids::IQ3_XXS.point(usize::from(points[8 * b + 2 * l + 1]), last);
            sign(q, even_signs(rest >> (7 * l)));
        }
        block.scale[b] = d * (0.5 + (rest >> 28) as f32) * 0.5;
    }
    Shape::Scaled
}

fn iq3_s(block: &mut Block, bytes: &[u8]) -> Shape {
    let (low, high, signs, scales) = (&bytes[2..66], &bytes[66..74], &bytes[74..106], &bytes[106..]);
    for (i, q) in block.q.chunks_exact_mut(4).enumerate() {
        let upper = usize::from(high[i / 8] >> (i % 8) & 1);
        grids::IQ3_S.point(usize::from(low[i]) | upper << 8, q);
        sign(q, signs[i / 2] >> (4 * (i % 2)));
    }
    for (b, scale) in block.scale.iter_mut().enumerate() {
        *scale = half(bytes) * f32::from(1 + 2 * nibble(scales, b));
    }
    Shape::Scaled
}

/// Points of -1, 0 and 1, all moved by an eighth up or down: whole eighths.
fn eighths(point: usize, down: bool, q: &mut [i8]) {
    grids::IQ1.point(point, q);
    q.iter_mut().for_each(|q| *q = 8 * *q + if down { -1 } else { 1 });
}

fn iq1_s(block: &mut Block, bytes: &[u8]) -> Shape {
    let (d, low, words) = (half(bytes), &bytes[2..34], &bytes[34..]);
    for (b, q) in block.q.chunks_exact_mut(32).enumerate() {
        let word = u16_at(words, b);
        for (l, q) in q.chunks_exact_mut(8).enumerate() {
            let upper = usize::from(word >> (3 * l) & 7);
            eighths(usize::from(low[4 * b + l]) | upper << 8, word >> 15 == 1, q);
        }
        block.scale[b] = d * f32::from(2 * (word >> 12 & 7) + 1) * 0.125;
    }
    Shape::Scaled
}

fn iq1_m(block: &mut Block, bytes: &[u8]) -> Shape {
    let (low, high, scales) = (&bytes[..32], &bytes[32..48], &bytes[48..]);
    for (i, q) in block.q.chunks_exact_mut(8).enumerate() {
        let upper = nibble(high, i);
        eighths(usize::from(low[i]) | usize::from(upper & 7) << 8, upper & 8 != 0, q);
    }
    for (g, group) in block.group.iter_mut().enumerate() {
        *group = 2 * (u16_at(scales, g / 4) >> (3 * (g % 4)) & 7) as i8 + 1;
    }
    // The f16 is dealt out over the upper nibbles of the four words.
    let d = (0..4).fold(0, |d, i| d | u16_at(scales, i) >> 12 << (4 * i));
    block.scale = [f16::from_bits(d).to_f32() * 0.125; 8];
    Shape::Grouped
}

fn iq4_xs(block: &mut Block, bytes: &[u8]) -> Shape {
    let (d, high, low) = (half(bytes), u16_at(bytes, 1), &bytes[4..8]);
    for (b, (q, nibbles)) in block.q.chunks_exact_mut(32).zip(bytes[8..].chunks_exact(16)).enumerate() {
        from_nibbles(&IQ4, nibbles, q);
        let scale = nibble(low, b) | ((high >> (2 * b) & 3) << 4) as u8;
        block.scale[b] = d * f32::from(scale as i8 - 32);
    }
    Shape::Scaled
}

/// Five numbers of -1, 0 and 1 in a byte, as a fraction of 3^5; the last four bytes hold four.
fn tq1_0(block: &mut Block, bytes: &[u8]) -> Shape {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    let parts = [(&bytes[..32], 5, 0), (&bytes[32..48], 5, 160), (&bytes[48..52], 4, 240)];
    for (part, n_digits, first) in parts {
        for (digit, power) in POWERS[..n_digits].iter().enumerate() {
            for (j, b) in part.iter().enumerate() {
                let fraction = b.wrapping_mul(*power);
                block.q[first + digit * part.len() + j] = ((u16::from(fraction) * 3) >> 8) as i8 - 1;
            }
        }
    }
    block.scale = [half(&bytes[52..]); 8];
    Shape::Scaled
}

/// Puts the f16 `d` where IQ1_M has it.
pub(super) fn set_iq1_m_scale(block: &mut [u8], d: f16) {
    for i in 0..4 {
        let nibble = (d.to_bits() >> (4 * i) & 15) as u8;
        block[49 + 2 * i] = block[49 + 2 * i] & 15 | nibble << 4;
    }
}
