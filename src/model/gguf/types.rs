//! Every tensor type that ggml numbers, also those that rml cannot multiply: they can be listed and named.

use std::fmt;

use rml_kernels_ref::format::Format;

/// Why rml does not read a type, and the remedy.
#[derive(Clone, Copy, Debug)]
enum Reason {
    /// llama.cpp's for activations while it computes.
    Activations,
    /// Whole numbers or doubles, which stand for something else than weights.
    NoWeights,
    /// Once written by llama.cpp, read by nothing today.
    Dropped,
    /// A format that may come.
    Missing,
}

/// Types beyond [`Format`]: number, name, weights a block, bytes a block. Source: `ggml.h` and `ggml-common.h` of ggml, and
/// their history for the dropped ones.
const OTHERS: &[(u32, &str, usize, usize, Reason)] = &[
    (4, "q4_2", 16, 10, Reason::Dropped),
    (5, "q4_3", 16, 12, Reason::Dropped),
    (9, "q8_1", 32, 36, Reason::Activations),
    (15, "q8_k", 256, 292, Reason::Activations),
    (24, "i8", 1, 1, Reason::NoWeights),
    (25, "i16", 1, 2, Reason::NoWeights),
    (26, "i32", 1, 4, Reason::NoWeights),
    (27, "i64", 1, 8, Reason::NoWeights),
    (28, "f64", 1, 8, Reason::NoWeights),
    (31, "q4_0_4_4", 32, 18, Reason::Dropped),
    (32, "q4_0_4_8", 32, 18, Reason::Dropped),
    (33, "q4_0_8_8", 32, 18, Reason::Dropped),
    (36, "iq4_nl_4_4", 32, 18, Reason::Dropped),
    (37, "iq4_nl_4_8", 32, 18, Reason::Dropped),
    (38, "iq4_nl_8_8", 32, 18, Reason::Dropped),
    (40, "nvfp4", 64, 36, Reason::Missing),
    (41, "q1_0", 128, 18, Reason::Missing),
    (42, "q2_0", 64, 18, Reason::Missing),
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

    /// Why rml does not read the type, and the remedy: the end of a sentence that begins with a tensor and its type.
    pub(super) fn obstacle(self) -> String {
        let missing =
            || format!("which rml does not read; it reads {}, so take the model in one of these", Format::ALL.map(Format::name).join(", "));
        match self.other().map(|row| row.4) {
            Some(Reason::Activations) => "a type for activations, which is no type of weights; convert the original model again".into(),
            Some(Reason::NoWeights) => "a type that is not one of weights; convert the original model again".into(),
            Some(Reason::Dropped) => {
                let plain = if self.0 >= 36 { "iq4_nl" } else { "q4_0" };
                format!("a type that llama.cpp has dropped; take the model in {plain}, or convert the original again")
            }
            Some(Reason::Missing) | None => missing(),
        }
    }

    fn other(self) -> Option<&'static (u32, &'static str, usize, usize, Reason)> {
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
    fn each_obstacle_has_its_remedy() {
        for (number, said) in [
            (4, "dropped; take the model in q4_0"),
            (31, "dropped; take the model in q4_0"),
            (38, "dropped; take the model in iq4_nl"),
            (9, "for activations"),
            (15, "for activations"),
            (26, "not one of weights"),
            (40, "does not read; it reads f32, "),
            (99, "does not read; it reads f32, "),
        ] {
            assert!(TensorType(number).obstacle().contains(said), "{number}: {}", TensorType(number).obstacle());
        }
    }

    #[test]
    fn unknown_numbers_are_shown_as_numbers() {
        assert_eq!(TensorType(99).to_string(), "type 99");
        assert_eq!(TensorType(23).to_string(), "iq4_xs");
        assert_eq!(TensorType(3).to_string(), "q4_1");
    }
}
