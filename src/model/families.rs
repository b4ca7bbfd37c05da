//! Model families, as data: what distinguishes one architecture's forward pass from another's.
//!
//! Numbers, such as the size of a window, stand in the file; here is what GGUF leaves to the name of the architecture.

/// How a family rotates queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Components `(2j, 2j + 1)`: GGUF permutes the weights of `llama` so.
    Pairs,
    /// Components `(j, j + n_rot / 2)`.
    Halves,
}

/// Where a layer normalizes besides queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norms {
    /// What goes into attention and feed-forward.
    Before,
    /// What comes out of them, before it is added to the residual stream.
    Behind,
    /// Both.
    Around,
}

/// The norm of queries and keys, before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorm {
    /// There is none.
    None,
    /// Each head by itself, all with the same weights.
    Head,
    /// All heads of a token as one row.
    Row,
}

/// What the gate of the feed-forward part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `silu(gate) * up`
    Silu,
    /// `gelu(gate) * up`, in its tanh form.
    Gelu,
    /// That of gpt-oss, which limits both: `rml_kernels_ref::gate::limited_mul`.
    Limited,
}

/// Some of the layers, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// None of them.
    None,
    /// All of them.
    All,
    /// The last of every so many: of 4 layers 3, 7, 11 and so on.
    Every(usize),
    /// All but these.
    AllButEvery(usize),
}

impl Layers {
    /// Whether a layer is one of them.
    pub fn has(self, layer: usize) -> bool {
        match self {
            Layers::None => false,
            Layers::All => true,
            Layers::Every(n) => (layer + 1).is_multiple_of(n),
            Layers::AllButEvery(n) => !(layer + 1).is_multiple_of(n),
        }
    }

    /// Those that are true in a list of all layers, if that is one of the kinds there are.
    pub fn listed(list: &[bool]) -> Option<Self> {
        let of_first = |value| list.iter().position(|&x| x == value).map_or(list.len() + 1, |i| i + 1);
        let kinds = [Layers::None, Layers::All, Layers::Every(of_first(true)), Layers::AllButEvery(of_first(false))];
        kinds.into_iter().find(|kind| list.iter().enumerate().all(|(i, &x)| kind.has(i) == x))
    }
}

/// One architecture that GGUF names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// Value of `general.architecture`.
    pub name: &'static str,
    /// Rotation.
    pub rope: RopeStyle,
    /// Layers that do not rotate.
    pub unrotated: Layers,
    /// Layers that a window limits, if the file gives a window and does not list them itself.
    pub windowed: Layers,
    /// Base of the rotation in layers with a window, if the file has no word on it; their rotation is not stretched. `None` if these
    /// layers rotate as the others do.
    pub local_base: Option<f32>,
    /// Whether the bounds of yarn's ramp are rounded to whole components.
    pub yarn_is_rounded: bool,
    /// Norms of a layer.
    pub norms: Norms,
    /// The name of the norm before the feed-forward part.
    pub ffn_norm: &'static str,
    /// Norm of queries and keys.
    pub head_norm: HeadNorm,
    /// Whether each head has a sink: a score without a key, which takes its share of the softmax.
    pub sinks: bool,
    /// Whether embeddings are multiplied with the root of their width.
    pub scaled_embedding: bool,
    /// Number of layers of that model of the family whose scores are scaled by the width a head has of the residual stream, not by its own.
    pub scaled_by_width: Option<usize>,
    /// Activation of the feed-forward part.
    pub gate: Gate,
}

/// What `llama` is, and others are where they say nothing else.
const LLAMA: Family = Family {
    name: "llama",
    rope: RopeStyle::Pairs,
    unrotated: Layers::None,
    windowed: Layers::All, // Mistral
    local_base: None,
    yarn_is_rounded: true,
    norms: Norms::Before,
    ffn_norm: "ffn_norm",
    head_norm: HeadNorm::None,
    sinks: false,
    scaled_embedding: false,
    scaled_by_width: None,
    gate: Gate::Silu,
};

/// `LLAMA` with the rotation that most others have.
const HALVES: Family = Family { rope: RopeStyle::Halves, ..LLAMA };

/// What the models of Gemma have in common.
const GEMMA: Family = Family { name: "gemma", gate: Gate::Gelu, scaled_embedding: true, ..HALVES };

/// The architectures that rml runs.
pub static FAMILIES: [Family; 13] = [
    LLAMA,
    Family { name: "smollm3", unrotated: Layers::Every(4), ..LLAMA },
    Family { name: "qwen2", ..HALVES },
    Family { name: "qwen3", head_norm: HeadNorm::Head, ..HALVES },
    Family { name: "qwen3moe", head_norm: HeadNorm::Head, ..HALVES },
    Family { name: "phi3", ..HALVES },
    GEMMA,
    Family { name: "gemma2", norms: Norms::Around, windowed: Layers::AllButEvery(2), scaled_by_width: Some(46), ..GEMMA },
    Family {
        name: "gemma3",
        norms: Norms::Around,
        head_norm: HeadNorm::Head,
        windowed: Layers::AllButEvery(6),
        local_base: Some(10_000.0),
        scaled_by_width: Some(62),
        ..GEMMA
    },
    Family { name: "olmo2", norms: Norms::Behind, head_norm: HeadNorm::Row, ..HALVES },
    Family { name: "granite", ..LLAMA },
    Family { name: "granitemoe", ..LLAMA },
    Family {
        name: "gpt-oss",
        windowed: Layers::AllButEvery(2),
        yarn_is_rounded: false,
        ffn_norm: "post_attention_norm",
        sinks: true,
        gate: Gate::Limited,
        ..HALVES
    },
];

/// The family of this name.
pub(super) fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_counted_by_their_last() {
        let of = |layers: Layers| (0..6).map(|i| layers.has(i)).collect::<Vec<_>>();
        assert_eq!(of(Layers::Every(3)), [false, false, true, false, false, true]);
        assert_eq!(of(Layers::AllButEvery(2)), [true, false, true, false, true, false]);
        for layers in [Layers::None, Layers::All, Layers::Every(2), Layers::Every(4), Layers::AllButEvery(6), Layers::AllButEvery(3)] {
            assert_eq!(Layers::listed(&of(layers)), Some(layers));
        }
        assert_eq!(Layers::listed(&[false, true, true, false]), None);
        assert_eq!(Layers::listed(&[]), Some(Layers::None));
    }
}
