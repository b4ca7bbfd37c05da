//! Every tensor type that ggml numbers, also those that rml cannot multiply: they can be listed and named.

use std::fmt;

use rml_kernels_ref::format::Format;

/// Types beyond [`Format`]: number, name, weights a block, bytes a block. Source: `ggml.h` and `ggml-common.h` of ggml.
const OTHERS: &[(u32, &str, usize, usize)] = &[
    (9, "q8_1", 32, 36),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (31, "q4_0_4_4", 32, 18),
    (32, "q4_0_4_8", 32, 18),
    (33, "q4_0_8_8", 32, 18),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (36, "iq4_nl_4_4", 32, 18),
    (37, "iq4_nl_4_8", 32, 18),
    (38, "iq4_nl_8_8", 32, 18),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
];

/// A tensor's type, as the number that stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorType(pub u32);

impl TensorType {
    /// The format, if rml can multiply it.
    pub fn format(self) -> Option<Format> {
        Format::from_gguf(self.0)
    }

    /// Lower-case name, such as `iq4_xs`, if the number is known.
    pub fn name(self) -> Option<&'static str> {
        self.format().map(Format::name).or_else(|| self.other().map(|row| row.1))
    }

    /// Weights and bytes of a block, if the number is known.
    pub fn block(self) -> Option<(usize, usize)> {
        self.format().map(|f| (f.block_len(), f.block_bytes())).or_else(|| self.other().map(|row| (row.2, row.3)))
    }

    fn other(self) -> Option<&'static (u32, &'static str, usize, usize)> {
        OTHERS.iter().find(|row| row.0 == self.0)
    }
}

impl From<Format> for TensorType {
    fn from(format: Format) -> Self {
        TensorType(format.gguf_id())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&format!("type {}", self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_and_no_name_stands_twice() {
        let known: Vec<_> = (0..64).map(TensorType).filter(|t| t.name().is_some()).collect();
        assert_eq!(known.len(), Format::ALL.len() + OTHERS.len());
        let mut names: Vec<_> = known.iter().map(|t| t.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), known.len());
    }

    #[test]
    fn unknown_numbers_are_shown_as_numbers() {
        assert_eq!(TensorType(99).to_string(), "type 99");
        assert_eq!(TensorType(23).to_string(), "iq4_xs");
        assert_eq!(TensorType(3).to_string(), "q4_1");
    }
}
