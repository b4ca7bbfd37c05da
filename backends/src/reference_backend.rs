//! The backend `ref`: the kernels of `rml-kernels-ref`, registered like any other.

use crate::{Backend, CpuFeatures, KernelTable, Refusal};

/// The reference backend.
#[derive(Debug)]
pub struct Ref;

crate::register!(Ref);

impl Backend for Ref {
    fn name(&self) -> &'static str {
        "ref"
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

pub(crate) fn table() -> KernelTable {
    unreachable!("written by the kernels-ref work")
}
