//! Quantized blocks, decoded into whole numbers and scales.
//!
//! Every quantized format is read here and nowhere else in the reference. Source: the block structures of `ggml-common.h`
//! of llama.cpp and the package `gguf`.

mod grids;
mod listed;

use half::f16;

use crate::format::Format;

/// Weights in the longest block.
pub const LONGEST: usize = 256;

/// How the whole numbers of a block become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `scale * q`, a scale for 32 weights.
    Scaled,
    /// `scale * q + min`, both for 32 weights.
    ScaledMin,
    /// `(d * group) * q`, a whole scale for 16 weights.
    Grouped,
    /// `(d * group) * q - dmin * group_min`, both whole numbers for 16 weights.
    GroupedMin,
}

/// One block; what its [`Shape`] does not use is left as it was.
#[derive(Clone, Debug)]
pub struct Block {
    /// Whole numbers, their offset taken away.
    pub q: [i8; LONGEST],
    /// Scale of each 32. For grouped shapes all are `d`.
    pub scale: [f32; LONGEST / 32],
    /// What is added for each 32.
    pub min: [f32; LONGEST / 32],
    /// Whole scale of each 16.
    pub group: [i8; LONGEST / 16],
    /// Whole minimum of each 16.
    pub group_min: [u8; LONGEST / 16],
    /// Scale of the whole minima.
    pub dmin: f32,
}

impl Default for Block {
    fn default() -> Self {
        Block { q: [0; 256], scale: [0.0; 8], min: [0.0; 8], group: [0; 16], group_min: [0; 16], dmin: 0.0 }
    }
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// The 6-bit scales and minima of Q4_K and Q5_K: pair `j` of 8, from 12 bytes.
pub fn scale_min(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 { (s[j] & 63, s[j + 4] & 63) } else { ((s[j + 4] & 15) | (s[j - 4] >> 6 << 4), (s[j + 4] >> 4) | (s[j] >> 6 << 4)) }
}

/// The 6-bit scale `j` of 16 of Q3_K, from 12 bytes, its offset taken away.
pub fn scale_q3(s: &[u8], j: usize) -> i8 {
    let low = if j < 8 { s[j] & 15 } else { s[j - 8] >> 4 };
    let high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
    (low | high << 4) as i8 - 32
}

/// Puts scales and minima into a block of a quantized format: `scale(i)` is the `i`th of its f16, or the power of two that
/// is next to it where the format has only these.
pub fn set_scales(format: Format, block: &mut [u8], mut scale: impl FnMut(usize) -> f16) {
    match format {
        Format::IQ1_M => listed::set_iq1_m_scale(block, scale(0)),
        Format::MXFP4 => block[0] = (scale(0).to_f32().to_bits() >> 23) as u8,
        _ => {
            for (i, &at) in format.scale_offsets().iter().enumerate() {
                block[at..at + 2].copy_from_slice(&scale(i).to_le_bytes());
            }
        }
    }
}

impl Block {
    /// Reads a block of a quantized format and says how its numbers are meant.
    ///
    /// # Panics
    /// If `bytes` is not one block, or the format is a float.
    pub fn read(&mut self, format: Format, bytes: &[u8]) -> Shape {
        assert_eq!(bytes.len(), format.block_bytes(), "a block of {format}");
        let q = &mut self.q;
        match format {
            Format::Q4_0 | Format::Q4_1 => {
                let (head, offset) = if format == Format::Q4_0 { (2, 8) } else { (4, 0) };
                let (low, high) = q[..32].split_at_mut(16);
                for ((low, high), &b) in low.iter_mut().zip(high).zip(&bytes[head..]) {
                    *low = (b & 15) as i8 - offset;
                    *high = (b >> 4) as i8 - offset;
                }
            }
            Format::Q5_0 | Format::Q5_1 => {
                let (head, offset) = if format == Format::Q5_0 { (2, 16) } else { (4, 0) };
                let high = u32::from_le_bytes([bytes[head], bytes[head + 1], bytes[head + 2], bytes[head + 3]]);
                for (i, &b) in bytes[head + 4..].iter().enumerate() {
                    q[i] = ((b & 15) | ((high >> i & 1) << 4) as u8) as i8 - offset;
                    q[i + 16] = ((b >> 4) | ((high >> (i + 16) & 1) << 4) as u8) as i8 - offset;
                }
            }
            Format::Q8_0 => {
                for (q, &b) in q.iter_mut().zip(&bytes[2..]) {
                    *q = b as i8;
                }
            }
            Format::Q2_K => {
                let (scales, qs) = (&bytes[..16], &bytes[16..80]);
                for (i, q) in q.iter_mut().enumerate() {
                    *q = (qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3) as i8;
                }
                for (j, &s) in scales.iter().enumerate() {
                    self.group[j] = (s & 15) as i8;
                    self.group_min[j] = s >> 4;
                }
                self.scale = [half(&bytes[80..]); 8];
                self.dmin = half(&bytes[82..]);
            }
            Format::Q3_K => {
                let (high, qs, scales) = (&bytes[..32], &bytes[32..96], &bytes[96..108]);
                for (i, q) in q.iter_mut().enumerate() {
                    let low = qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
                    *q = (low | (high[i % 32] >> (i / 32) & 1) << 2) as i8 - 4;
                }
                for (j, group) in self.group.iter_mut().enumerate() {
                    *group = scale_q3(scales, j);
                }
                self.scale = [half(&bytes[108..]); 8];
            }
            Format::Q4_K | Format::Q5_K => {
                let (d, dmin, scales) = (half(bytes), half(&bytes[2..]), &bytes[4..16]);
                let (high, qs) = if format == Format::Q5_K { (Some(&bytes[16..48]), &bytes[48..]) } else { (None, &bytes[16..]) };
                for (i, q) in q.iter_mut().enumerate() {
                    let b = qs[i / 64 * 32 + i % 32];
                    let low = if i / 32 % 2 == 0 { b & 15 } else { b >> 4 };
                    *q = (low | high.map_or(0, |h| (h[i % 32] >> (i / 32) & 1) << 4)) as i8;
                }
                for j in 0..8 {
                    let (scale, min) = scale_min(scales, j);
                    self.scale[j] = d * f32::from(scale);
                    self.min[j] = -(dmin * f32::from(min));
                }
            }
            Format::Q6_K => {
                let (ql, qh, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
                for (i, q) in q.iter_mut().enumerate() {
                    let b = ql[i / 128 * 64 + i % 64];
                    let low = if i / 64 % 2 == 0 { b & 15 } else { b >> 4 };
                    let high = qh[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
                    *q = (low | high << 4) as i8 - 32;
                }
                for (group, &s) in self.group.iter_mut().zip(scales) {
                    *group = s as i8;
                }
                self.scale = [half(&bytes[208..]); 8];
            }
            Format::F32 | Format::F16 | Format::BF16 => panic!("{format} has no blocks"),
            _ => return listed::read(self, format, bytes),
        }
        if format.block_len() == 32 {
            self.scale[0] = half(bytes);
        }
        match format {
            Format::Q4_1 | Format::Q5_1 => {
                self.min[0] = half(&bytes[2..]);
                Shape::ScaledMin
            }
            Format::Q4_K | Format::Q5_K => Shape::ScaledMin,
            Format::Q3_K | Format::Q6_K => Shape::Grouped,
            Format::Q2_K => Shape::GroupedMin,
            _ => Shape::Scaled,
        }
    }

    /// Weight `i` as a float: what the package `gguf` computes, operation for operation.
    pub fn weight(&self, shape: Shape, i: usize) -> f32 {
        let (q, b, g) = (f32::from(self.q[i]), i / 32, i / 16);
        match shape {
            Shape::Scaled => self.scale[b] * q,
            Shape::ScaledMin => self.scale[b] * q + self.min[b],
            Shape::Grouped => self.scale[b] * f32::from(self.group[g]) * q,
            Shape::GroupedMin => self.scale[b] * f32::from(self.group[g]) * q - self.dmin * f32::from(self.group_min[g]),
        }
    }
}
