//! The backend `avx2`: 256-bit vectors with fused multiply-add and half conversions, for every x86 server and PC of the
//! last decade; dot products of bytes where the CPU has them.
//!
//! Slots hold plain function pointers, which cannot carry a token that proves a feature, so kernels are plain functions with
//! `#[target_feature]`. They are private, and [`Avx2::install`] alone hands them out, after it has seen the features in a
//! [`CpuFeatures`], which lists none that the CPU lacks: that is what every SAFETY comment here calls *installed*.

pub(crate) mod attention;
mod embed;
mod exp;
mod gate;
mod lanes;
pub(crate) mod matmul;
mod norm;
mod quantize;
mod rope;
mod sampling;
mod softmax;

use crate::{Backend, CpuFeatures, KernelTable, Refusal};

const NAME: &str = "avx2";
const FEATURES: [&str; 3] = ["avx2", "fma", "f16c"];

/// The backend.
#[derive(Debug)]
pub struct Avx2;

crate::register!(Avx2);

impl Backend for Avx2 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank(&self) -> u32 {
        20
    }

    fn probe(&self, cpu: &CpuFeatures) -> Result<(), Refusal> {
        cpu.require(&FEATURES)
    }

    fn install(&self, cpu: &CpuFeatures, table: &mut KernelTable) {
        assert_eq!(cpu.require(&FEATURES), Ok(()), "installed without its features");
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
        sampling::install(NAME, table);
        let quantized = if cpu.has("avxvnni") { matmul::VNNI } else { matmul::PLAIN };
        for kernel in matmul::FLOAT.iter().chain(quantized) {
            table.put_matmul(NAME, *kernel);
        }
    }
}
