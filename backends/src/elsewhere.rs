//! Backends whose kernels are not compiled for this architecture or system: listed all the same, each with the reason.

use crate::{Backend, CpuFeatures, KernelTable, Refusal};

/// The name of a backend of another kind of machine.
#[derive(Debug)]
struct Elsewhere {
    name: &'static str,
    rank: u32,
    place: &'static str,
    here: (&'static str, &'static str), // what is there instead: a noun and its name
}

/// This machine, for backends of another architecture.
const CPU: (&str, &str) = ("CPU", std::env::consts::ARCH);

#[cfg(not(target_arch = "x86_64"))]
mod x86 {
    use super::{CPU, Elsewhere};

    crate::register!(Elsewhere { name: "avx2", rank: 20, place: "x86-64", here: CPU });
    crate::register!(Elsewhere { name: "avx512", rank: 30, place: "x86-64", here: CPU });
}
#[cfg(not(target_arch = "aarch64"))]
crate::register!(Elsewhere { name: "neon", rank: 20, place: "64-bit Arm", here: CPU });
#[cfg(not(target_os = "macos"))]
crate::register!(Elsewhere { name: "accelerate", rank: 25, place: "macOS", here: ("system", std::env::consts::OS) });

impl Backend for Elsewhere {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
        let (noun, name) = self.here;
        Err(Refusal::new(format!("it is for {}, and this {noun} is {name}", self.place)))
    }

    fn install(&self, _: &CpuFeatures, _: &mut KernelTable) {
        // Never called: it refuses every CPU.
    }
}
