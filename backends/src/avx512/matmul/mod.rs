//! Matrix products.
//!
//! The panels are those of [`avx2`](crate::avx2::matmul), 16 rows, a row to a lane: one register holds 4 columns of them,
//! and one instruction multiplies them with 4 columns of a token and adds. Up to eight tokens take the weights as they
//! stream by, more take them unpacked to bytes, a stretch of a panel at a time ([`quantized`]); both run one loop ([`tile`]).

mod bits;
mod float;
mod quantized;
mod results;
mod scales;
mod source;
mod stage;
mod staged;
mod tile;

use rml_kernels_ref::format::Format;

use crate::avx2::matmul::decoded;
use crate::avx2::matmul::{q3_k, q4, q4_k, q5, q6_k, q8};
use crate::matmul::MatmulKernel;
use crate::panels::decoded::{Decoded, Units};

/// Products of float weights.
pub(super) static FLOAT: &[&dyn MatmulKernel] = &[
    &float::Float::<f32>::new("avx512:f32·f32:32x12"),
    &float::Float::<half::f16>::new("avx512:f16·f32:32x12"),
    &float::Float::<half::bf16>::new("avx512:bf16·f32:32x12"),
];

/// Products of quantized weights, which want VNNI.
pub(super) static VNNI: &[&dyn MatmulKernel] = &[
    &quantized::Quantized::<q4::Q4_0>::new("avx512:q4_0·q8:16x8"),
    &quantized::Quantized::<q4::Q4_1>::new("avx512:q4_1·q8:16x8"),
    &quantized::Quantized::<q5::Q5_0>::new("avx512:q5_0·q8:16x8"),
    &quantized::Quantized::<q5::Q5_1>::new("avx512:q5_1·q8:16x8"),
    &quantized::Quantized::<q8::Q8_0>::new("avx512:q8_0·q8:16x8"),
    &quantized::Quantized::<q3_k::Q2K>::new("avx512:q2_k·q8:16x8"),
    &quantized::Quantized::<q3_k::Q3K>::new("avx512:q3_k·q8:16x8"),
    &quantized::Quantized::<q4_k::Q4K>::new("avx512:q4_k·q8:16x8"),
    &quantized::Quantized::<q4_k::Q5K>::new("avx512:q5_k·q8:16x8"),
    &quantized::Quantized::<q6_k::Q6K>::new("avx512:q6_k·q8:16x8"),
    &scaled::<8>("avx512:iq1_s·q8:16x8", Format::IQ1_S),
    &grouped("avx512:iq1_m·q8:16x8", Format::IQ1_M),
    &scaled::<8>("avx512:iq2_xxs·q8:16x8", Format::IQ2_XXS),
    &grouped("avx512:iq2_xs·q8:16x8", Format::IQ2_XS),
    &grouped("avx512:iq2_s·q8:16x8", Format::IQ2_S),
    &scaled::<8>("avx512:iq3_xxs·q8:16x8", Format::IQ3_XXS),
    &scaled::<8>("avx512:iq3_s·q8:16x8", Format::IQ3_S),
    &scaled::<1>("avx512:iq4_nl·q8:16x8", Format::IQ4_NL),
    &scaled::<8>("avx512:iq4_xs·q8:16x8", Format::IQ4_XS),
    &scaled::<8>("avx512:tq1_0·q8:16x8", Format::TQ1_0),
    &scaled::<8>("avx512:tq2_0·q8:16x8", Format::TQ2_0),
    &scaled::<1>("avx512:mxfp4·q8:16x8", Format::MXFP4),
];

/// A format that is decoded to `N` blocks with a scale each.
const fn scaled<const N: usize>(id: &'static str, format: Format) -> Decoded<quantized::Quantized<decoded::Scaled<N>>> {
    Decoded::new(id, format, Units::Scaled(N), quantized::Quantized::new(id))
}

/// A format that is decoded to blocks with a whole scale for 16 columns.
const fn grouped(id: &'static str, format: Format) -> Decoded<quantized::Quantized<decoded::Grouped>> {
    Decoded::new(id, format, Units::Grouped, quantized::Quantized::new(id))
}
