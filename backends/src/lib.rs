//! The dispatch table of kernels: the contract, the registry and the backends.
//!
//! A backend is listed by being linked. `README.md` beside this crate says how to add one.

#[cfg(all(any(target_os = "macos", feature = "cblas"), any(target_arch = "x86_64", target_arch = "aarch64")))]
pub mod accelerate;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
mod backend;
mod elsewhere;
pub mod exam;
mod features;
pub mod matmul;
#[cfg(target_arch = "aarch64")]
pub mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod panels;
pub mod reference_backend;
mod registry;
pub mod table;
mod tile;

/// The example of README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use backend::{Backend, Refusal, Registration};
pub use features::CpuFeatures;
#[doc(hidden)]
pub use inventory;
pub use registry::{Registry, Runnable};
pub use rml_kernels_ref as reference;
pub use table::KernelTable;
pub use tile::TileMut;
