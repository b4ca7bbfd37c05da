//! Matrix products.
//!
//! One packed layout serves decode and prefill: panels of 16 rows, a row to a lane ([`panels`](crate::panels)). A few tokens take the
//! weights as they stream by, many take them unpacked to bytes, a stretch of a panel at a time ([`quantized`]); both run the
//! same inner loops ([`tile`]).

mod bits;
pub(crate) mod codec;
pub(crate) mod float;
mod head;
pub(crate) mod q3_k;
pub(crate) mod q4;
pub(crate) mod q4_k;
pub(crate) mod q5;
pub(crate) mod q6_k;
pub(crate) mod q8;
pub(crate) mod quantized;
mod results;
mod scales;
mod staged;
pub(crate) mod stored;
mod tile;
mod tokens;

use crate::matmul::MatmulKernel;

/// Every product of this backend.
pub(super) static KERNELS: &[&dyn MatmulKernel] = &[
    &float::Float::<f32>::new("avx2:f32·f32:16x6"),
    &float::Float::<half::f16>::new("avx2:f16·f32:16x6"),
    &float::Float::<half::bf16>::new("avx2:bf16·f32:16x6"),
    &quantized::Quantized::<q4::Q4_0>::new("avx2:q4_0·q8:16x4"),
    &quantized::Quantized::<q4::Q4_1>::new("avx2:q4_1·q8:16x4"),
    &quantized::Quantized::<q5::Q5_0>::new("avx2:q5_0·q8:16x4"),
    &quantized::Quantized::<q5::Q5_1>::new("avx2:q5_1·q8:16x4"),
    &quantized::Quantized::<q8::Q8_0>::new("avx2:q8_0·q8:16x4"),
    &quantized::Quantized::<q3_k::Q2K>::new("avx2:q2_k·q8:16x4"),
    &quantized::Quantized::<q3_k::Q3K>::new("avx2:q3_k·q8:16x4"),
    &quantized::Quantized::<q4_k::Q4K>::new("avx2:q4_k·q8:16x4"),
    &quantized::Quantized::<q4_k::Q5K>::new("avx2:q5_k·q8:16x4"),
    &quantized::Quantized::<q6_k::Q6K>::new("avx2:q6_k·q8:16x4"),
];
