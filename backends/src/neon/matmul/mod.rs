//! Matrix products.
//!
//! One packed layout serves decode and prefill: panels of 16 rows, a row to a lane ([`panels`](crate::panels)), of which one
//! register holds 4, a *quad*. Up to eight tokens take the weights as they stream by, more take them unpacked to bytes, a
//! stretch of a panel at a time ([`quantized`]); both run one loop ([`tile`]), in one of three ways to multiply ([`multiply`]).

mod bits;
mod float;
mod multiply;
mod quantized;
mod results;
mod scales;
mod source;
mod staged;
mod stored;
mod tile;

use rml_kernels_ref::format::Format;

use crate::matmul::MatmulKernel;
use crate::panels::decoded::{Decoded, Units};
use multiply::{Dot, Matrix, Widening};
use quantized::Quantized;

/// Products of float weights.
pub(super) static FLOAT: &[&dyn MatmulKernel] = &[
    &float::Float::<f32>::new("neon:f32·f32:16x4"),
    &float::Float::<half::f16>::new("neon:f16·f32:16x4"),
    &float::Float::<half::bf16>::new("neon:bf16·f32:16x4"),
];

/// Every product of quantized weights that multiplies as `$multiply` does.
macro_rules! products {
    ($multiply:ty, $tile:literal) => {
        &[
            &Quantized::<source::Q4_0, $multiply>::new(concat!("neon:q4_0·q8:", $tile)),
            &Quantized::<source::Q4_1, $multiply>::new(concat!("neon:q4_1·q8:", $tile)),
            &Quantized::<source::Q5_0, $multiply>::new(concat!("neon:q5_0·q8:", $tile)),
            &Quantized::<source::Q5_1, $multiply>::new(concat!("neon:q5_1·q8:", $tile)),
            &Quantized::<source::Q8_0, $multiply>::new(concat!("neon:q8_0·q8:", $tile)),
            &Quantized::<source::Q2K, $multiply>::new(concat!("neon:q2_k·q8:", $tile)),
            &Quantized::<source::Q3K, $multiply>::new(concat!("neon:q3_k·q8:", $tile)),
            &Quantized::<source::Q4K, $multiply>::new(concat!("neon:q4_k·q8:", $tile)),
            &Quantized::<source::Q5K, $multiply>::new(concat!("neon:q5_k·q8:", $tile)),
            &Quantized::<source::Q6K, $multiply>::new(concat!("neon:q6_k·q8:", $tile)),
            &decoded::<source::Scaled8, $multiply>(concat!("neon:iq1_s·q8:", $tile), Format::IQ1_S, Units::Scaled(8)),
            &decoded::<source::DecodedGroups, $multiply>(concat!("neon:iq1_m·q8:", $tile), Format::IQ1_M, Units::Grouped),
            &decoded::<source::Scaled8, $multiply>(concat!("neon:iq2_xxs·q8:", $tile), Format::IQ2_XXS, Units::Scaled(8)),
            &decoded::<source::DecodedGroups, $multiply>(concat!("neon:iq2_xs·q8:", $tile), Format::IQ2_XS, Units::Grouped),
            &decoded::<source::DecodedGroups, $multiply>(concat!("neon:iq2_s·q8:", $tile), Format::IQ2_S, Units::Grouped),
            &decoded::<source::Scaled8, $multiply>(concat!("neon:iq3_xxs·q8:", $tile), Format::IQ3_XXS, Units::Scaled(8)),
            &decoded::<source::Scaled8, $multiply>(concat!("neon:iq3_s·q8:", $tile), Format::IQ3_S, Units::Scaled(8)),
            &decoded::<source::Scaled1, $multiply>(concat!("neon:iq4_nl·q8:", $tile), Format::IQ4_NL, Units::Scaled(1)),
            &decoded::<source::Scaled8, $multiply>(concat!("neon:iq4_xs·q8:", $tile), Format::IQ4_XS, Units::Scaled(8)),
            &decoded::<source::Scaled8, $multiply>(concat!("neon:tq1_0·q8:", $tile), Format::TQ1_0, Units::Scaled(8)),
            &decoded::<source::Scaled8, $multiply>(concat!("neon:tq2_0·q8:", $tile), Format::TQ2_0, Units::Scaled(8)),
            &decoded::<source::Scaled1, $multiply>(concat!("neon:mxfp4·q8:", $tile), Format::MXFP4, Units::Scaled(1)),
        ]
    };
}

/// A format that is decoded to units of `C`.
const fn decoded<C: source::Packed, M: multiply::Multiply>(id: &'static str, format: Format, units: Units) -> Decoded<Quantized<C, M>> {
    Decoded::new(id, format, units, Quantized::new(id))
}

/// For any CPU.
pub(super) static WIDENING: &[&dyn MatmulKernel] = products!(Widening, "16x4");
/// For CPUs with dot products of bytes.
pub(super) static DOT: &[&dyn MatmulKernel] = products!(Dot, "16x4-sdot");
/// For CPUs with matrix products of bytes too.
pub(super) static MATRIX: &[&dyn MatmulKernel] = products!(Matrix, "16x4-smmla");
