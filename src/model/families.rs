//! Model families, as data: what distinguishes one architecture's forward pass from another's.

/// How a family rotates queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Components `(2j, 2j + 1)`: GGUF permutes the weights of `llama` so.
    Pairs,
    /// Components `(j, j + n_rot / 2)`.
    Halves,
}

/// One architecture that GGUF names.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Value of `general.architecture`.
    pub name: &'static str,
    /// Rotation.
    pub rope: RopeStyle,
}

/// The architectures that rml runs.
pub const FAMILIES: [Family; 1] = [Family { name: "llama", rope: RopeStyle::Pairs }];

/// The family of this name.
pub(super) fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name)
}
