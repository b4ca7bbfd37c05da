//! Backend `accelerate`: prefill through `cblas_sgemm` of Apple's Accelerate, which knows matrix units that nothing else may use.
//!
//! Accelerate decides for itself how many threads a call takes; `VECLIB_MAXIMUM_THREADS=1` keeps it to the one that calls, as
//! kernels should be.
//!
//! Its products keep the packing of the best other backend and leave a few tokens to it ([`sgemm`]). They add in an order of their
//! own, so they are not exact. Rows and attention stay with that backend too: vForce's exponential is no polynomial of ours, and
//! would take the bits of everything for the little time that is spent there.

mod cblas;
mod sgemm;

use crate::table::KernelTable;
use crate::{Backend, CpuFeatures, Refusal};
use rml_kernels_ref::format::Format;

const NAME: &str = "accelerate";

/// The backend. Registered on macOS; elsewhere, with the feature `cblas`, it runs on the system's CBLAS in tests.
#[derive(Debug)]
pub struct Accelerate;

#[cfg(target_os = "macos")]
crate::register!(Accelerate);

impl Backend for Accelerate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank(&self) -> u32 {
        25
    }

    fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
        Ok(())
    }

    fn install(&self, cpu: &CpuFeatures, table: &mut KernelTable) {
        #[cfg(target_arch = "x86_64")]
        const BELOW: &dyn Backend = &crate::avx2::Avx2;
        #[cfg(target_arch = "aarch64")]
        const BELOW: &dyn Backend = &crate::neon::Neon;
        if BELOW.probe(cpu).is_ok() {
            BELOW.install(cpu, table);
        }
        for format in Format::ALL {
            let packed = table.matmul(format).iter().rev().find_map(|&(_, kernel)| Some((kernel, kernel.unpack()?)));
            if let Some((kernel, unpack)) = packed {
                table.put_matmul(NAME, sgemm::over(kernel, unpack));
            }
        }
    }
}
