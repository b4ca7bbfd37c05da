//! Random weights in any format, written as blocks: no quantizer is needed for weights that nobody has to agree with.
//!
//! Weights have a mean near 0 and the standard deviation that is asked for, so that activations neither vanish nor explode.

use half::{bf16, f16};
use rml_kernels_ref::blocks;
use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::exam::fills::Random;
use rml_kernels_ref::format::Format;

/// Writes random blocks of one format.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    format: Format,
    unit: f32, // standard deviation of weights whose scales are about 1
}

impl Blocks {
    /// Blocks of `format`.
    pub fn new(format: Format) -> Self {
        /// Enough for a deviation that is right to about 1 %.
        const SAMPLE: usize = 1 << 15;
        if format.is_float() {
            return Blocks { format, unit: 1.0 };
        }
        // Measured, since it depends on how each format spreads its whole numbers and group scales.
        let mut bytes = vec![0; SAMPLE / format.block_len() * format.block_bytes()];
        Blocks { format, unit: 1.0 }.fill(1.0, &mut bytes, &mut Random::new(0));
        let mut weights = vec![0.0; SAMPLE];
        dequantize_row(format, &bytes, &mut weights);
        let squares: f64 = weights.iter().map(|w| f64::from(*w).powi(2)).sum();
        Blocks { format, unit: (squares / SAMPLE as f64).sqrt() as f32 }
    }

    /// Fills `bytes`, a whole number of blocks, with weights of standard deviation `deviation`.
    ///
    /// # Panics
    /// If `bytes` are not whole blocks.
    pub fn fill(&self, deviation: f32, bytes: &mut [u8], random: &mut Random) {
        assert!(bytes.len().is_multiple_of(self.format.block_bytes()), "whole blocks of {}", self.format);
        match self.format {
            Format::F32 => bytes.as_chunks_mut().0.iter_mut().for_each(|b| *b = (deviation * random.gaussian()).to_le_bytes()),
            Format::F16 => {
                bytes.as_chunks_mut().0.iter_mut().for_each(|b| *b = f16::from_f32(deviation * random.gaussian()).to_le_bytes());
            }
            Format::BF16 => {
                bytes.as_chunks_mut().0.iter_mut().for_each(|b| *b = bf16::from_f32(deviation * random.gaussian()).to_le_bytes());
            }
            _ => {
                for piece in bytes.chunks_mut(8) {
                    piece.copy_from_slice(&random.bits().to_le_bytes()[..piece.len()]);
                }
                let scale = deviation / self.unit;
                for block in bytes.chunks_exact_mut(self.format.block_bytes()) {
                    // Of either sign, as in real files: whole numbers such as -8 to 7 are not centred, their scales are.
                    let bits = random.bits();
                    let size = 0.75 + (bits >> 40) as f32 / (1 << 25) as f32;
                    let d = scale * if bits & 1 == 0 { size } else { -size };
                    let d = if self.format == Format::MXFP4 { power_of_two(d, bits) } else { d };
                    set_scales(self.format, block, d);
                }
            }
        }
    }
}

/// One of the two powers of two next to a scale, by chance so that the mean of their squares is the scale's.
fn power_of_two(d: f32, bits: u64) -> f32 {
    let below = d.abs().log2().floor().exp2();
    let share = ((d / below).powi(2) - 1.0) / 3.0;
    if ((bits >> 8 & 0xffff) as f32) < share * 65536.0 { 2.0 * below } else { below }
}

/// Makes a block of random bytes one of scale `d`, with minima that centre its weights on 0.
fn set_scales(format: Format, block: &mut [u8], d: f32) {
    let mut put = |at: usize, x: f32| block[at..at + 2].copy_from_slice(&f16::from_f32(x).to_le_bytes());
    match format {
        Format::Q4_0 | Format::Q5_0 => put(0, d),
        Format::Q4_1 => {
            put(0, d);
            put(2, -7.5 * d);
        }
        Format::Q5_1 => {
            put(0, d);
            put(2, -15.5 * d);
        }
        Format::Q8_0 => {
            put(0, d);
            // Quantizers give -127 to 127.
            block[2..].iter_mut().filter(|q| **q == 0x80).for_each(|q| *q = 0x81);
        }
        Format::Q2_K => {
            put(80, d);
            put(82, 1.5 * d);
            // Of each group of 16, scale and minimum: the same number, from 8 to 15.
            block[..16].iter_mut().for_each(|s| *s = (*s & 7 | 8) * 0x11);
        }
        Format::Q3_K => put(108, d),
        Format::Q4_K | Format::Q5_K => {
            put(0, d);
            put(2, if format == Format::Q4_K { 7.5 * d } else { 15.5 * d });
            equal_scales_and_minima(&mut block[4..16]);
        }
        Format::Q6_K => put(208, d),
        Format::F32 | Format::F16 | Format::BF16 => unreachable!("{format} has no blocks"),
        _ => blocks::set_scales(format, block, |_| f16::from_f32(d)),
    }
}

/// Packs the 6-bit scales and minima of Q4_K and Q5_K: of each group of 32 the same number, from 32 to 63.
fn equal_scales_and_minima(s: &mut [u8]) {
    for j in 0..4 {
        // Group j, and group j + 4 whose upper two bits stand above those of j.
        let (low, high) = (s[j] & 31 | 32, s[j + 4] & 31 | 32);
        s[j] = low | high >> 4 << 6;
        s[j + 4] = s[j];
        s[j + 8] = (high & 15) * 0x11;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over 2^18 weights; those of a group share a scale, which makes the estimate coarser than for independent ones.
    #[test]
    fn weights_are_centred_and_as_wide_as_asked() {
        const N: usize = 1 << 18;
        for format in Format::ALL {
            for deviation in [1.0_f32, 1.0 / 24.0, 1.0 / 120.0] {
                let mut bytes = vec![0; N / format.block_len() * format.block_bytes()];
                Blocks::new(format).fill(deviation, &mut bytes, &mut Random::new(7));
                let mut weights = vec![0.0; N];
                dequantize_row(format, &bytes, &mut weights);
                let mean = weights.iter().map(|w| f64::from(*w)).sum::<f64>() / N as f64 / f64::from(deviation);
                let got = (weights.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>() / N as f64).sqrt() / f64::from(deviation);
                assert!(mean.abs() < 0.02 && (got - 1.0).abs() < 0.03, "{format} {deviation}: mean {mean}, deviation {got}");
            }
        }
    }

    /// Within a group no weight is farther from 0 than half the range. The step is twice the least positive weight, which the
    /// rounding of the minimum to 11 bits puts off by up to 2 * 15.5 / 2^11 of it, or 0.24 steps over the half range.
    #[test]
    fn minima_centre_every_group() {
        for (format, half_range) in
            [(Format::Q4_1, 7.5), (Format::Q5_1, 15.5), (Format::Q4_K, 7.5), (Format::Q5_K, 15.5), (Format::Q2_K, 1.5)]
        {
            let mut block = vec![0; format.block_bytes()];
            Blocks { format, unit: 1.0 }.fill(1.0, &mut block, &mut Random::new(3));
            let mut weights = vec![0.0_f32; format.block_len()];
            dequantize_row(format, &block, &mut weights);
            let largest = |group: &[f32]| group.iter().fold((0.0_f32, 0.0_f32), |(a, b), &w| (a.min(w), b.max(w)));
            for group in weights.chunks(if format == Format::Q2_K { 16 } else { 32 }) {
                let (least, most) = largest(group);
                let step = group.iter().filter(|w| **w > 0.0).fold(f32::INFINITY, |m, &w| m.min(w)) * 2.0;
                let bound = (half_range + 0.3) * step;
                assert!(-least <= bound && most <= bound && least < 0.0 && most > 0.0, "{format}: {least} to {most}, steps of {step}");
            }
        }
    }
}
