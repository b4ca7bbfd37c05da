//! The numbers that kernels are examined with: ordinary ones, and those that hide nothing.

use half::{bf16, f16};

use crate::blocks::set_scales;
use crate::format::Format;

/// SplitMix64. Source: Steele, Lea and Flood 2014.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Close to a standard normal distribution: the sum of four uniform numbers of variance 1/4.
    pub fn gaussian(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|i| bits >> (16 * i) & 0xffff).sum();
        (sum as f32 / 65535.0 - 2.0) * 3.0_f32.sqrt()
    }
}

/// A seed that follows from a text: FNV-1a.
pub(super) fn seed(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How a row of f32 is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Standard normal.
    Gaussian,
    /// Standard normal, one in 29 twenty times as large.
    Outliers,
    /// 1 or -1: quantized, every number is 127 or -127.
    Signs,
    /// Zeros of both signs.
    Zeros,
    /// Subnormal, and just around where activations are quantized to zero.
    Tiny,
    /// Standard normal with a few NaN and infinities.
    Broken,
    /// Any 32 bits.
    Bits,
}

impl Fill {
    /// Every fill.
    pub const ALL: [Fill; 7] = [Fill::Gaussian, Fill::Outliers, Fill::Signs, Fill::Zeros, Fill::Tiny, Fill::Broken, Fill::Bits];

    /// The word in a case's line.
    pub fn name(self) -> &'static str {
        match self {
            Fill::Gaussian => "gaussian",
            Fill::Outliers => "outliers",
            Fill::Signs => "signs",
            Fill::Zeros => "zeros",
            Fill::Tiny => "tiny",
            Fill::Broken => "broken",
            Fill::Bits => "bits",
        }
    }

    fn number(self, random: &mut Random) -> f32 {
        let bits = random.bits();
        let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
        match self {
            Fill::Gaussian => random.gaussian(),
            Fill::Outliers => random.gaussian() * if bits.is_multiple_of(29) { 20.0 } else { 1.0 },
            Fill::Signs => sign,
            Fill::Zeros => 0.0 * sign,
            Fill::Tiny => sign * random.pick(&[1e-45, 1e-39, 1e-31, crate::quantize::ZERO_BELOW, 7e-31]),
            Fill::Broken if bits.is_multiple_of(53) => random.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
            Fill::Broken => random.gaussian(),
            Fill::Bits => f32::from_bits((bits >> 32) as u32),
        }
    }

    /// `n` numbers.
    pub fn numbers(self, n: usize, random: &mut Random) -> Vec<f32> {
        (0..n).map(|_| self.number(random)).collect()
    }
}

/// How rows of weights are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFill {
    /// Random integers, scales of about 0.01; floats standard normal.
    Ordinary,
    /// A block's integers all the largest, the least, zero or -128; floats the largest finite ones and -1.
    Extreme,
    /// Scales zero, subnormal, largest, infinite and NaN; floats likewise.
    Scales,
    /// Any bytes.
    Bytes,
}

impl WeightFill {
    /// Every fill.
    pub const ALL: [WeightFill; 4] = [WeightFill::Ordinary, WeightFill::Extreme, WeightFill::Scales, WeightFill::Bytes];

    /// The word in a case's line.
    pub fn name(self) -> &'static str {
        match self {
            WeightFill::Ordinary => "ordinary",
            WeightFill::Extreme => "extreme",
            WeightFill::Scales => "scales",
            WeightFill::Bytes => "bytes",
        }
    }

    /// `n` rows of `k` weights as GGUF stores them. `k` is a multiple of the block.
    pub fn rows(self, format: Format, n: usize, k: usize, random: &mut Random) -> Vec<u8> {
        let row_bytes = format.row_bytes(k).expect("k is a multiple of the block");
        let mut bytes: Vec<u8> = (0..n * row_bytes).map(|_| random.bits() as u8).collect();
        if self != WeightFill::Bytes {
            for block in bytes.chunks_exact_mut(format.block_bytes()) {
                self.block(format, block, random);
            }
        }
        bytes
    }

    /// Rewrites a block of random bytes.
    fn block(self, format: Format, block: &mut [u8], random: &mut Random) {
        if format.is_float() {
            let weight = match self {
                WeightFill::Ordinary => random.gaussian(),
                WeightFill::Extreme => random.pick(&[65504.0, -65504.0, -1.0]),
                _ => random.pick(&[0.0, -0.0, 6e-8, -1e-39, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, -1.0]),
            };
            match format {
                Format::F32 => block.copy_from_slice(&weight.to_le_bytes()),
                Format::F16 => block.copy_from_slice(&f16::from_f32(weight).to_le_bytes()),
                _ => block.copy_from_slice(&bf16::from_f32(weight).to_le_bytes()),
            }
            return;
        }
        if self == WeightFill::Extreme {
            block.fill(random.pick(&[0xff, 0x00, 0x80, 0x7f, 0x0f, 0xf0]));
        }
        set_scales(format, block, |_| match self {
            WeightFill::Scales => f16::from_bits(random.pick(&SPECIAL_SCALES)),
            _ => f16::from_f32(random.gaussian() * 0.01),
        });
    }
}

/// Zeros, the least and the greatest subnormal, the greatest number, infinities, NaN, and an ordinary scale.
const SPECIAL_SCALES: [u16; 9] = [0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x2e66];
