//! The backend `neon`: 128-bit vectors, for every 64-bit Arm; dot products and matrix products of bytes where the CPU has them.
//!
//! NEON is part of the architecture, so its functions need no proof. `sdot` and `smmla` have no stable functions in Rust and
//! stand in `asm!` ([`matmul`]'s `multiply`): what uses them is handed out by [`Neon::install`] alone, after it has seen
//! `dotprod` and `i8mm` in a [`CpuFeatures`]. That is what SAFETY comments here call *installed*.

mod attention;
mod embed;
mod exp;
mod gate;
mod half;
mod lanes;
mod matmul;
mod norm;
mod quantize;
mod rope;
mod sampling;
mod softmax;

use crate::{Backend, CpuFeatures, KernelTable, Refusal};

const NAME: &str = "neon";

/// The backend.
#[derive(Debug)]
pub struct Neon;

crate::register!(Neon);

impl Backend for Neon {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank(&self) -> u32 {
        20
    }

    fn probe(&self, cpu: &CpuFeatures) -> Result<(), Refusal> {
        cpu.require(&["neon"])
    }

    fn install(&self, cpu: &CpuFeatures, table: &mut KernelTable) {
        assert_eq!(cpu.require(&["neon"]), Ok(()), "installed without its features");
        table.attend.put(NAME, attention::attend);
        table.append.put(NAME, attention::append);
        table.merge_spans.put(NAME, attention::merge_spans);
        table.embed_row.put(NAME, embed::embed_row);
        table.rms_norm.put(NAME, norm::rms_norm);
        table.quantize.put(NAME, quantize::quantize);
        table.rope_pairs.put(NAME, rope::rope_pairs);
        table.rope_halves.put(NAME, rope::rope_halves);
        table.softmax.put(NAME, softmax::softmax);
        table.silu_mul.put(NAME, gate::silu_mul);
        table.gelu_mul.put(NAME, gate::gelu_mul);
        table.limited_mul.put(NAME, gate::limited_mul);
        table.soft_cap.put(NAME, gate::soft_cap);
        table.add.put(NAME, gate::add);
        table.block_max.put(NAME, sampling::block_max);
        table.at_least.put(NAME, sampling::at_least);
        table.exp_weights.put(NAME, sampling::exp_weights);
        table.weight_sum.put(NAME, sampling::weight_sum);
        let quantized = match (cpu.has("dotprod"), cpu.has("i8mm")) {
            (true, true) => matmul::MATRIX,
            (true, false) => matmul::DOT,
            _ => matmul::WIDENING,
        };
        for kernel in matmul::FLOAT.iter().chain(quantized) {
            table.put_matmul(NAME, *kernel);
        }
    }
}
