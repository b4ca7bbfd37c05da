//! The backend `avx512`: 512-bit vectors, for servers and PCs from Skylake-X and Zen 4 on.
//!
//! Every CPU that has them has what [`Avx2`] wants, so this backend starts from its kernels and overwrites what wider
//! vectors, masks and integer dot products (VNNI) make faster. The rules for unsafe code are those of [`avx2`](crate::avx2):
//! kernels are private, and [`Avx512::install`] hands them out after it has seen the features.

mod attention;
mod exp;
mod gate;
mod matmul;
mod quantize;
mod sampling;

use crate::avx2::Avx2;
use crate::{Backend, CpuFeatures, KernelTable, Refusal};

const NAME: &str = "avx512";
const FEATURES: [&str; 7] = ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"];

/// The backend.
#[derive(Debug)]
pub struct Avx512;

crate::register!(Avx512);

impl Backend for Avx512 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank(&self) -> u32 {
        30
    }

    fn probe(&self, cpu: &CpuFeatures) -> Result<(), Refusal> {
        cpu.require(&FEATURES)
    }

    fn install(&self, cpu: &CpuFeatures, table: &mut KernelTable) {
        assert_eq!(cpu.require(&FEATURES), Ok(()), "installed without its features");
        Avx2.install(cpu, table);
        table.quantize.put(NAME, quantize::quantize);
        table.silu_mul.put(NAME, gate::silu_mul);
        table.attend.put(NAME, attention::attend);
        for kernel in matmul::FLOAT {
            table.put_matmul(NAME, *kernel);
        }
        if cpu.has("avx512vnni") {
            for kernel in matmul::VNNI {
                table.put_matmul(NAME, *kernel);
            }
        }
        sampling::install(NAME, table);
    }
}
