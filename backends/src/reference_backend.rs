//! The backend `ref`: the kernels of `rml-kernels-ref`, registered like any other.

use std::ops::Range;

use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::format::Format;
use rml_kernels_ref::matmul::{Output, matmul};
use rml_kernels_ref::{attention, blocks, dequantize, gate, norm, quantize, rope, sampling, softmax};

use crate::matmul::{MatmulKernel, PackedLayout, Unpack, Weights};
use crate::table::Slot;
use crate::{Backend, CpuFeatures, KernelTable, Refusal, TileMut};

const NAME: &str = "ref";

/// The reference backend.
#[derive(Debug)]
pub struct Ref;

crate::register!(Ref);

impl Backend for Ref {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank(&self) -> u32 {
        0
    }

    fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
        Ok(())
    }

    fn install(&self, _: &CpuFeatures, _: &mut KernelTable) {
        // The table starts with these kernels.
    }
}

impl KernelTable {
    /// A table whose every slot is the reference kernel.
    pub fn reference() -> Self {
        KernelTable {
            embed_row: Slot::new(NAME, dequantize::dequantize_row),
            rms_norm: Slot::new(NAME, norm::rms_norm),
            quantize: Slot::new(NAME, quantize::quantize),
            rope_pairs: Slot::new(NAME, rope::rope_pairs),
            rope_halves: Slot::new(NAME, rope::rope_halves),
            attend: Slot::new(NAME, attention::attend),
            append: Slot::new(NAME, attention::append),
            merge_spans: Slot::new(NAME, attention::merge_spans),
            softmax: Slot::new(NAME, softmax::softmax),
            silu_mul: Slot::new(NAME, gate::silu_mul),
            gelu_mul: Slot::new(NAME, gate::gelu_mul),
            limited_mul: Slot::new(NAME, gate::limited_mul),
            soft_cap: Slot::new(NAME, gate::soft_cap),
            add: Slot::new(NAME, gate::add),
            block_max: Slot::new(NAME, sampling::block_max),
            at_least: Slot::new(NAME, sampling::at_least),
            exp_weights: Slot::new(NAME, sampling::exp_weights),
            weight_sum: Slot::new(NAME, sampling::weight_sum),
            matmul: std::array::from_fn(|i| vec![(NAME, &MATMUL[i] as &dyn MatmulKernel)]),
        }
    }
}

/// The reference product for a format: weights in place.
#[derive(Debug)]
struct InPlace {
    format: Format,
    id: &'static str,
}

/// In the order of [`Format::ALL`].
static MATMUL: [InPlace; Format::ALL.len()] = [
    InPlace { format: Format::F32, id: "ref:f32·f32:1x1" },
    InPlace { format: Format::F16, id: "ref:f16·f32:1x1" },
    InPlace { format: Format::BF16, id: "ref:bf16·f32:1x1" },
    InPlace { format: Format::Q4_0, id: "ref:q4_0·q8:1x1" },
    InPlace { format: Format::Q4_1, id: "ref:q4_1·q8:1x1" },
    InPlace { format: Format::Q5_0, id: "ref:q5_0·q8:1x1" },
    InPlace { format: Format::Q5_1, id: "ref:q5_1·q8:1x1" },
    InPlace { format: Format::Q8_0, id: "ref:q8_0·q8:1x1" },
    InPlace { format: Format::Q2_K, id: "ref:q2_k·q8:1x1" },
    InPlace { format: Format::Q3_K, id: "ref:q3_k·q8:1x1" },
    InPlace { format: Format::Q4_K, id: "ref:q4_k·q8:1x1" },
    InPlace { format: Format::Q5_K, id: "ref:q5_k·q8:1x1" },
    InPlace { format: Format::Q6_K, id: "ref:q6_k·q8:1x1" },
    InPlace { format: Format::IQ1_S, id: "ref:iq1_s·q8:1x1" },
    InPlace { format: Format::IQ1_M, id: "ref:iq1_m·q8:1x1" },
    InPlace { format: Format::IQ2_XXS, id: "ref:iq2_xxs·q8:1x1" },
    InPlace { format: Format::IQ2_XS, id: "ref:iq2_xs·q8:1x1" },
    InPlace { format: Format::IQ2_S, id: "ref:iq2_s·q8:1x1" },
    InPlace { format: Format::IQ3_XXS, id: "ref:iq3_xxs·q8:1x1" },
    InPlace { format: Format::IQ3_S, id: "ref:iq3_s·q8:1x1" },
    InPlace { format: Format::IQ4_NL, id: "ref:iq4_nl·q8:1x1" },
    InPlace { format: Format::IQ4_XS, id: "ref:iq4_xs·q8:1x1" },
    InPlace { format: Format::TQ1_0, id: "ref:tq1_0·q8:1x1" },
    InPlace { format: Format::TQ2_0, id: "ref:tq2_0·q8:1x1" },
    InPlace { format: Format::MXFP4, id: "ref:mxfp4·q8:1x1" },
];

impl MatmulKernel for InPlace {
    fn id(&self) -> &'static str {
        self.id
    }

    fn format(&self) -> Format {
        self.format
    }

    fn activation(&self) -> ActivationKind {
        if self.format.is_float() { ActivationKind::F32 } else { ActivationKind::Q8 }
    }

    fn layout(&self, _: usize, k: usize) -> Result<PackedLayout, Refusal> {
        match self.format.row_bytes(k) {
            Some(panel_bytes) => Ok(PackedLayout { panel_rows: 1, panel_bytes, in_place: true }),
            None => Err(Refusal::new(format!("{k} columns are not whole blocks of {}", self.format.block_len()))),
        }
    }

    fn pack_panel(&self, _: &[u8], _: usize, _: usize, _: &mut [u8]) {
        // In place: never called.
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        matmul(self.format, w.bytes, out.cols(), x, out);
    }

    fn unpack(&self) -> Option<Unpack> {
        Some(unpack_row)
    }
}

/// A panel of one row, as the file has it.
fn unpack_row(format: Format, row: &[u8], cols: Range<usize>, out: &mut [f32], stride: usize) {
    let mut block = [0.0; blocks::LONGEST];
    let block = &mut block[..format.block_len()];
    let stored = row.chunks_exact(format.block_bytes()).skip(cols.start / block.len()).take(cols.len() / block.len());
    for (stored, out) in stored.zip(out.chunks_mut(block.len() * stride)) {
        dequantize::dequantize_row(format, stored, block);
        block.iter().zip(out.iter_mut().step_by(stride)).for_each(|(w, out)| *out = *w);
    }
}

impl Output for TileMut<'_> {
    fn row(&mut self, i: usize) -> &mut [f32] {
        TileMut::row(self, i)
    }
}
