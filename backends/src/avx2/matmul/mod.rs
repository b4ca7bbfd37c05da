//! Matrix products.
//!
//! One packed layout serves decode and prefill: panels of 16 rows, a row to a lane ([`codec`]). A few tokens take the
//! weights as they stream by, many take them unpacked to bytes, a stretch of a panel at a time ([`quantized`]); both run the
//! same inner loops ([`tile`]).

mod codec;
mod head;
mod pack;
mod q4;
mod q8;
mod quantized;
mod results;
mod staged;
mod tile;
mod tokens;

use crate::matmul::MatmulKernel;

/// Every product of this backend.
pub(super) static KERNELS: &[&dyn MatmulKernel] = &[
    &quantized::Quantized::<q4::Q4_0>::new("avx2:q4_0·q8:16x4"),
    &quantized::Quantized::<q4::Q4_1>::new("avx2:q4_1·q8:16x4"),
    &quantized::Quantized::<q8::Q8_0>::new("avx2:q8_0·q8:16x4"),
];
