//! What each operation of a language model means, as plain functions on slices.
//!
//! Nothing here is unsafe and nothing knows of dispatch: an operation can be read here, run under an interpreter and
//! trusted on its own. The invariant is reproducibility: f32 operations are defined on 16 virtual lanes with fused
//! multiply-add and a fixed reduction tree, integer sums are exact, so any backend can give the same bits.
#![forbid(unsafe_code)]

pub mod activation;
pub mod append;
pub mod attention;
pub mod blocks;
pub mod dequantize;
pub mod encode;
pub mod exam;
pub mod exp;
pub mod format;
pub mod gate;
pub mod kv;
pub mod lanes;
pub mod matmul;
pub mod norm;
pub mod quantize;
pub mod rope;
pub mod sampling;
pub mod softmax;

/// The crate of `f16` and `bf16`, which stand in the interfaces here.
pub use half;
