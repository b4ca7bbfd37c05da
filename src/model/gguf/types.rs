//! Every tensor type of ggml by number: name, weights a block, bytes a block. For messages and for checking sizes of
//! tensors that rml shows but cannot multiply.

/// `(number, name, block_len, block_bytes)`. Source: `ggml.h` and `ggml-common.h` of llama.cpp.
const TYPES: [(u32, &str, u64, u64); 34] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

/// A tensor type by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorType(pub u32);

impl TensorType {
    fn row(self) -> Option<&'static (u32, &'static str, u64, u64)> {
        TYPES.iter().find(|t| t.0 == self.0)
    }

    /// ggml's name, if there is such a type.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|t| t.1)
    }

    /// Weights and bytes of a block, if there is such a type.
    pub(super) fn block(self) -> Option<(u64, u64)> {
        self.row().map(|t| (t.2, t.3))
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use rml_kernels_ref::format::Format;

    use super::*;

    #[test]
    fn agrees_with_the_formats_that_are_multiplied() {
        for f in Format::ALL {
            let t = TensorType(f.gguf_id());
            assert_eq!(t.name().unwrap().to_lowercase(), f.name());
            assert_eq!(t.block(), Some((f.block_len() as u64, f.block_bytes() as u64)));
        }
    }
}
