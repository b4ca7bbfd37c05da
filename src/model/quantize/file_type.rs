//! Types of whole files, as llama.cpp names and numbers them.

use rml_kernels_ref::format::Format;

/// What the matrices of a file are stored as: one format, or a mixture of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType(&'static Row);

/// Which tensors of a mixture get more bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    /// None but the head.
    Nothing,
    /// A few of the first layers.
    Small,
    /// Some layers all along.
    Medium,
    /// All layers.
    Large,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: &'static str,
    number: u32,
    format: Format,
    more: More,
}

/// Source: `enum llama_ftype` of `llama.h`.
static ROWS: [Row; 18] = [
    Row { name: "f32", number: 0, format: Format::F32, more: More::Nothing },
    Row { name: "f16", number: 1, format: Format::F16, more: More::Nothing },
    Row { name: "bf16", number: 32, format: Format::BF16, more: More::Nothing },
    Row { name: "q8_0", number: 7, format: Format::Q8_0, more: More::Nothing },
    Row { name: "q6_k", number: 18, format: Format::Q6_K, more: More::Nothing },
    Row { name: "q5_0", number: 8, format: Format::Q5_0, more: More::Nothing },
    Row { name: "q5_1", number: 9, format: Format::Q5_1, more: More::Nothing },
    Row { name: "q5_k_m", number: 17, format: Format::Q5_K, more: More::Medium },
    Row { name: "q5_k_s", number: 16, format: Format::Q5_K, more: More::Nothing },
    Row { name: "q4_0", number: 2, format: Format::Q4_0, more: More::Nothing },
    Row { name: "q4_1", number: 3, format: Format::Q4_1, more: More::Nothing },
    Row { name: "q4_k_m", number: 15, format: Format::Q4_K, more: More::Medium },
    Row { name: "q4_k_s", number: 14, format: Format::Q4_K, more: More::Small },
    Row { name: "q3_k_l", number: 13, format: Format::Q3_K, more: More::Large },
    Row { name: "q3_k_m", number: 12, format: Format::Q3_K, more: More::Medium },
    Row { name: "q3_k_s", number: 11, format: Format::Q3_K, more: More::Nothing },
    Row { name: "q2_k", number: 10, format: Format::Q2_K, more: More::Medium },
    // What llama.cpp calls Q4_K is its mixture.
    Row { name: "q4_k", number: 15, format: Format::Q4_K, more: More::Medium },
];

impl FileType {
    /// The type called `name`, in upper or lower case.
    pub fn named(name: &str) -> Option<FileType> {
        ROWS.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(FileType)
    }

    /// All names, from most to fewest bits.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Number in `general.file_type`.
    pub fn number(self) -> u32 {
        self.0.number
    }

    /// What most matrices are stored as.
    pub fn format(self) -> Format {
        self.0.format
    }

    pub(super) fn more(self) -> More {
        self.0.more
    }
}
