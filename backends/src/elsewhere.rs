//! Backends whose kernels are not compiled for this architecture: listed all the same, each with the reason.

use crate::{Backend, CpuFeatures, KernelTable, Refusal};

/// The name of a backend of another architecture.
#[derive(Debug)]
struct Elsewhere {
    name: &'static str,
    rank: u32,
    architecture: &'static str,
}

#[cfg(not(target_arch = "x86_64"))]
mod x86 {
    use super::Elsewhere;

    crate::register!(Elsewhere { name: "avx2", rank: 20, architecture: "x86-64" });
    crate::register!(Elsewhere { name: "avx512", rank: 30, architecture: "x86-64" });
}
#[cfg(not(target_arch = "aarch64"))]
crate::register!(Elsewhere { name: "neon", rank: 20, architecture: "64-bit Arm" });

impl Backend for Elsewhere {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
        Err(Refusal::new(format!("it is for {}, and this CPU is {}", self.architecture, std::env::consts::ARCH)))
    }

    fn install(&self, _: &CpuFeatures, _: &mut KernelTable) {
        // Never called: it refuses every CPU.
    }
}
