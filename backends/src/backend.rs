//! What a backend is: a name, a rank, whether it can run here, and what it puts into the table.

use std::fmt;

use crate::features::CpuFeatures;
use crate::table::KernelTable;

/// Why a backend or a kernel cannot be used: one clause for a person, such as `this CPU has no AVX2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// A refusal with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Refusal(reason.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A set of kernels for one kind of machine, registered with [`register!`](crate::register).
pub trait Backend: Sync {
    /// What `--backend` calls it.
    fn name(&self) -> &'static str;

    /// Of two that measure alike the higher rank wins. `ref` is 0, `avx2` 20, `avx512` 30, `neon` 20, `accelerate` 25.
    fn rank(&self) -> u32;

    /// Whether it can run on a CPU with these features, else why not.
    fn probe(&self, cpu: &CpuFeatures) -> Result<(), Refusal>;

    /// Puts its kernels into the table; what it leaves alone stays as it was. Called only after `probe` agreed.
    fn install(&self, cpu: &CpuFeatures, table: &mut KernelTable);
}

/// What `inventory` collects. Made by [`register!`](crate::register).
pub struct Registration(pub &'static dyn Backend);

inventory::collect!(Registration);

/// Registers a backend: `rml_backends::register!(MyBackend);` with `MyBackend` a constant expression.
#[macro_export]
macro_rules! register {
    ($backend:expr) => {
        $crate::inventory::submit! { $crate::Registration(&$backend) }
    };
}
