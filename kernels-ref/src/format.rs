//! Storage formats of weights, with GGUF's names and numbers.
//!
//! Source: the tensor types of the GGUF specification and `ggml.h` of llama.cpp.

use std::fmt;

/// A format that rml reads: how `block_len` consecutive weights of a row are stored in `block_bytes` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(non_camel_case_types, reason = "the names are GGUF's")]
pub enum Format {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16: the upper half of an `f32`.
    BF16,
    /// 4 bits, one scale for 32 weights.
    Q4_0,
    /// 4 bits, scale and minimum for 32 weights.
    Q4_1,
    /// 5 bits, one scale for 32 weights.
    Q5_0,
    /// 5 bits, scale and minimum for 32 weights.
    Q5_1,
    /// 8 bits, one scale for 32 weights.
    Q8_0,
    /// 2 bits, 256 weights in 16 groups with 4-bit scales and minima.
    Q2_K,
    /// 3 bits, 256 weights in 16 groups with 6-bit scales.
    Q3_K,
    /// 4 bits, 256 weights in 8 groups with 6-bit scales and minima.
    Q4_K,
    /// 5 bits, 256 weights in 8 groups with 6-bit scales and minima.
    Q5_K,
    /// 6 bits, 256 weights in 16 groups with 8-bit scales.
    Q6_K,
    /// 1.56 bits: points of 8 weights of three values, 256 weights in 8 groups with 3-bit scales and shifts.
    IQ1_S,
    /// 1.75 bits: as IQ1_S, with 16 groups and a shift for each point.
    IQ1_M,
    /// 2.06 bits: points of 8 magnitudes of three and signs, 256 weights in 8 groups with 4-bit scales.
    IQ2_XXS,
    /// 2.31 bits: as IQ2_XXS, with more points and 16 groups.
    IQ2_XS,
    /// 2.56 bits: as IQ2_XS, with more points and all signs.
    IQ2_S,
    /// 3.06 bits: points of 4 magnitudes of eight and signs, 256 weights in 8 groups with 4-bit scales.
    IQ3_XXS,
    /// 3.44 bits: as IQ3_XXS, with more points and all signs.
    IQ3_S,
    /// 4 bits that choose from 16 uneven values, one scale for 32 weights.
    IQ4_NL,
    /// 4 bits as in IQ4_NL, 256 weights in 8 groups with 6-bit scales.
    IQ4_XS,
    /// 1.69 bits: -1, 0 or 1, five to a byte, one scale for 256 weights.
    TQ1_0,
    /// 2.06 bits: -1, 0 or 1, one scale for 256 weights.
    TQ2_0,
    /// Floats of 4 bits (E2M1), one power of two for 32 weights: the OCP's microscaling format.
    MXFP4,
}

/// One row a format: variant, GGUF type number, name, weights a block, bytes a block.
const FORMATS: [(Format, u32, &str, usize, usize); 25] = [
    (Format::F32, 0, "f32", 1, 4),
    (Format::F16, 1, "f16", 1, 2),
    (Format::BF16, 30, "bf16", 1, 2),
    (Format::Q4_0, 2, "q4_0", 32, 18),
    (Format::Q4_1, 3, "q4_1", 32, 20),
    (Format::Q5_0, 6, "q5_0", 32, 22),
    (Format::Q5_1, 7, "q5_1", 32, 24),
    (Format::Q8_0, 8, "q8_0", 32, 34),
    (Format::Q2_K, 10, "q2_k", 256, 84),
    (Format::Q3_K, 11, "q3_k", 256, 110),
    (Format::Q4_K, 12, "q4_k", 256, 144),
    (Format::Q5_K, 13, "q5_k", 256, 176),
    (Format::Q6_K, 14, "q6_k", 256, 210),
    (Format::IQ1_S, 19, "iq1_s", 256, 50),
    (Format::IQ1_M, 29, "iq1_m", 256, 56),
    (Format::IQ2_XXS, 16, "iq2_xxs", 256, 66),
    (Format::IQ2_XS, 17, "iq2_xs", 256, 74),
    (Format::IQ2_S, 22, "iq2_s", 256, 82),
    (Format::IQ3_XXS, 18, "iq3_xxs", 256, 98),
    (Format::IQ3_S, 21, "iq3_s", 256, 110),
    (Format::IQ4_NL, 20, "iq4_nl", 32, 18),
    (Format::IQ4_XS, 23, "iq4_xs", 256, 136),
    (Format::TQ1_0, 34, "tq1_0", 256, 54),
    (Format::TQ2_0, 35, "tq2_0", 256, 66),
    (Format::MXFP4, 39, "mxfp4", 32, 17),
];

impl Format {
    /// Every format, in the order of the enum.
    pub const ALL: [Format; FORMATS.len()] = {
        let mut all = [Format::F32; FORMATS.len()];
        let mut i = 0;
        while i < FORMATS.len() {
            all[i] = FORMATS[i].0;
            assert!(all[i] as usize == i, "FORMATS follows the order of the enum");
            i += 1;
        }
        all
    };

    /// The format with GGUF type number `id`, if rml reads it.
    pub fn from_gguf(id: u32) -> Option<Format> {
        FORMATS.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    /// GGUF's number for this format.
    pub fn gguf_id(self) -> u32 {
        FORMATS[self as usize].1
    }

    /// Lower-case GGUF name, such as `q4_0`.
    pub fn name(self) -> &'static str {
        FORMATS[self as usize].2
    }

    /// Weights in a block.
    pub const fn block_len(self) -> usize {
        FORMATS[self as usize].3
    }

    /// Bytes in a block.
    pub const fn block_bytes(self) -> usize {
        FORMATS[self as usize].4
    }

    /// Bytes of a row of `k` weights, or `None` if `k` is no multiple of the block or the size overflows.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        if !k.is_multiple_of(self.block_len()) {
            return None;
        }
        (k / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Where the f16 scales and minima stand in a block. None for IQ1_M, whose scale is in pieces, and for MXFP4, which has a
    /// byte.
    pub const fn scale_offsets(self) -> &'static [usize] {
        match self {
            Format::F32 | Format::F16 | Format::BF16 | Format::IQ1_M | Format::MXFP4 => &[],
            Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
            Format::IQ1_S | Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S | Format::IQ3_XXS | Format::IQ3_S => &[0],
            Format::IQ4_NL | Format::IQ4_XS => &[0],
            Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
            Format::Q2_K => &[80, 82],
            Format::Q3_K => &[108],
            Format::Q6_K => &[208],
            Format::TQ1_0 => &[52],
            Format::TQ2_0 => &[64],
        }
    }

    /// Whether weights are plain floats rather than quantized blocks.
    pub fn is_float(self) -> bool {
        matches!(self, Format::F32 | Format::F16 | Format::BF16)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
