//! The dispatch table: one slot for each line of the forward pass.
//!
//! It starts complete with the reference kernels; each backend overwrites what it improves, and every slot knows its owner.

use rml_kernels_ref::activation::Q8RowMut;
use rml_kernels_ref::format::Format;
use rml_kernels_ref::kv::{AttendSpan, KvHeadMut, SpanState};

use crate::matmul::MatmulKernel;

/// A kernel and the backend it came from.
#[derive(Clone, Copy, Debug)]
pub struct Slot<F> {
    owner: &'static str,
    kernel: F,
}

impl<F: Copy> Slot<F> {
    /// A slot filled by `owner`.
    pub fn new(owner: &'static str, kernel: F) -> Self {
        Slot { owner, kernel }
    }

    /// The backend that filled it.
    pub fn owner(&self) -> &'static str {
        self.owner
    }

    /// The kernel.
    pub fn get(&self) -> F {
        self.kernel
    }

    /// Takes the slot.
    pub fn put(&mut self, owner: &'static str, kernel: F) {
        *self = Slot { owner, kernel };
    }
}

/// Widens a row of weights as stored (`format`) to f32: an embedding. `out` is (k).
pub type EmbedRow = fn(format: Format, row: &[u8], out: &mut [f32]);
/// `out = x / sqrt(mean(x^2) + eps) * weight`, one row. All (k).
pub type RmsNorm = fn(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]);
/// Quantizes one row of activations. `x` is (k).
pub type Quantize = fn(x: &[f32], out: &mut Q8RowMut<'_>);
/// Rotates pairs within each head of one token, in place: `x` is (h, d), `cos` and `sin` are (n_rot / 2).
pub type Rope = fn(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]);
/// Attention of one span of keys, see [`AttendSpan`].
pub type Attend = fn(span: &AttendSpan<'_>, state: &mut SpanState<'_>);
/// Writes key and value (both (d)) of one position into the cache of a head.
pub type Append = fn(kv: &mut KvHeadMut<'_>, position: usize, key: &[f32], value: &[f32]);
/// Folds the state of a later span into that of the earlier ones.
pub type MergeSpans = fn(so_far: &mut SpanState<'_>, span: &SpanState<'_>);
/// `x = exp(x - max x) / sum`, in place. (n)
pub type Softmax = fn(x: &mut [f32]);
/// `gate = act(gate) * up`, in place. Both (n).
pub type GatedActivation = fn(gate: &mut [f32], up: &[f32]);
/// `x = cap * tanh(x / cap)`, in place. (n)
pub type SoftCap = fn(x: &mut [f32], cap: f32);
/// `acc += x`. Both (n).
pub type Add = fn(acc: &mut [f32], x: &[f32]);
/// The largest logit of each block of 64; false if one is not finite. `x` is (n), `out` is (n.div_ceil(64)).
pub type BlockMax = fn(x: &[f32], out: &mut [f32]) -> bool;
/// Indices of the elements of at least `threshold`, ascending; returns how many. `x` is (n), `out` at least as long.
pub type AtLeast = fn(x: &[f32], threshold: f32, out: &mut [u32]) -> usize;
/// `out = exp((x - best) * sharpness)`. Both (n).
pub type ExpWeights = fn(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]);
/// `sum of fixed(x * scale)` in units of `2^-42`, exact. (n)
pub type WeightSum = fn(x: &[f32], scale: f32) -> u64;

/// Every kernel of one choice of backends.
#[derive(Clone, Debug)]
pub struct KernelTable {
    /// Embedding row.
    pub embed_row: Slot<EmbedRow>,
    /// RMS norm.
    pub rms_norm: Slot<RmsNorm>,
    /// Activation quantization.
    pub quantize: Slot<Quantize>,
    /// Rotary embedding of adjacent pairs `(2j, 2j + 1)`.
    pub rope_pairs: Slot<Rope>,
    /// Rotary embedding of halves `(j, j + n_rot / 2)`.
    pub rope_halves: Slot<Rope>,
    /// Attention.
    pub attend: Slot<Attend>,
    /// A position's key and value into the cache.
    pub append: Slot<Append>,
    /// The merge of two spans of attention.
    pub merge_spans: Slot<MergeSpans>,
    /// Softmax.
    pub softmax: Slot<Softmax>,
    /// `silu(gate) * up`.
    pub silu_mul: Slot<GatedActivation>,
    /// `gelu(gate) * up`, tanh form.
    pub gelu_mul: Slot<GatedActivation>,
    /// The gate of gpt-oss.
    pub limited_mul: Slot<GatedActivation>,
    /// What keeps logits within limits.
    pub soft_cap: Slot<SoftCap>,
    /// Residual addition.
    pub add: Slot<Add>,
    /// Sampling: the largest logit of each block.
    pub block_max: Slot<BlockMax>,
    /// Sampling: what reaches a threshold.
    pub at_least: Slot<AtLeast>,
    /// Sampling: weights relative to the best logit.
    pub exp_weights: Slot<ExpWeights>,
    /// Sampling: the sum of weights.
    pub weight_sum: Slot<WeightSum>,
    pub(crate) matmul: [Vec<(&'static str, &'static dyn MatmulKernel)>; Format::ALL.len()], // by format: owner and kernel, in order of installation
}

impl KernelTable {
    /// Offers a matrix product; the newest for a format stands last.
    pub fn put_matmul(&mut self, owner: &'static str, kernel: &'static dyn MatmulKernel) {
        let row = &mut self.matmul[kernel.format() as usize];
        row.retain(|(_, other)| other.id() != kernel.id());
        row.push((owner, kernel));
    }

    /// The products offered for `format`, each with its owner, the reference first.
    pub fn matmul(&self, format: Format) -> &[(&'static str, &'static dyn MatmulKernel)] {
        &self.matmul[format as usize]
    }

    /// The products that do not promise the reference's bits, each with its owner.
    pub fn inexact(&self) -> impl Iterator<Item = (&'static str, &'static dyn MatmulKernel)> {
        self.matmul.iter().flatten().copied().filter(|(_, kernel)| !kernel.exact())
    }

    /// Takes one slot, by the name of its field, from another table; `matmul` stands for all products.
    ///
    /// # Errors
    /// If there is no slot of that name: a text that lists those there are.
    pub fn take_slot(&mut self, slot: &str, from: &KernelTable) -> Result<(), crate::Refusal> {
        macro_rules! take {
            ($($name:ident),*) => {
                match slot {
                    $(stringify!($name) => self.$name = from.$name,)*
                    "matmul" => self.matmul = from.matmul.clone(),
                    _ => {
                        let names = [$(stringify!($name)),*, "matmul"].join(", ");
                        return Err(crate::Refusal::new(format!("there is no operation {slot:?}; there are {names}")));
                    }
                }
            };
        }
        take!(
            embed_row,
            rms_norm,
            quantize,
            rope_pairs,
            rope_halves,
            attend,
            append,
            merge_spans,
            softmax,
            silu_mul,
            gelu_mul,
            limited_mul,
            soft_cap,
            add,
            block_max,
            at_least,
            exp_weights,
            weight_sum
        );
        Ok(())
    }
}
