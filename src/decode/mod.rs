//! The forward pass and what one sequence needs for it.

mod activations;
mod attention;
mod forward;
mod kv;

pub use forward::{CHUNK, Rows, State};
pub use kv::{KvCache, kv_bytes};
pub use rml_kernels_ref::kv::KvType;
