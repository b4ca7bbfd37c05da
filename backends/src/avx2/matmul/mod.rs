//! Matrix products.
//!
//! One packed layout serves decode and prefill: panels of 16 rows, a row to a lane ([`panels`](crate::panels)). A few tokens take the
//! weights as they stream by, many take them unpacked to bytes, a stretch of a panel at a time ([`quantized`]); both run the
//! same inner loops ([`tile`]).

mod bits;
pub(crate) mod codec;
pub(crate) mod decoded;
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
mod vnni;

use rml_kernels_ref::format::Format;

use crate::matmul::MatmulKernel;
use crate::panels::decoded::{Decoded, Units};
use codec::Codec;
use decoded::{Grouped, Scaled};
use quantized::Quantized;
use vnni::Vnni;

/// Products of float weights.
pub(super) static FLOAT: &[&dyn MatmulKernel] = &[
    &float::Float::<f32>::new("avx2:f32·f32:16x6"),
    &float::Float::<half::f16>::new("avx2:f16·f32:16x6"),
    &float::Float::<half::bf16>::new("avx2:bf16·f32:16x6"),
];

/// Every product of quantized weights, with codecs that are `$of` those of the formats.
macro_rules! products {
    ($of:ident, $tile:literal) => {
        &[
            &Quantized::<$of<q4::Q4_0>>::new(concat!("avx2:q4_0·q8:", $tile)),
            &Quantized::<$of<q4::Q4_1>>::new(concat!("avx2:q4_1·q8:", $tile)),
            &Quantized::<$of<q5::Q5_0>>::new(concat!("avx2:q5_0·q8:", $tile)),
            &Quantized::<$of<q5::Q5_1>>::new(concat!("avx2:q5_1·q8:", $tile)),
            &Quantized::<$of<q8::Q8_0>>::new(concat!("avx2:q8_0·q8:", $tile)),
            &Quantized::<$of<q3_k::Q2K>>::new(concat!("avx2:q2_k·q8:", $tile)),
            &Quantized::<$of<q3_k::Q3K>>::new(concat!("avx2:q3_k·q8:", $tile)),
            &Quantized::<$of<q4_k::Q4K>>::new(concat!("avx2:q4_k·q8:", $tile)),
            &Quantized::<$of<q4_k::Q5K>>::new(concat!("avx2:q5_k·q8:", $tile)),
            &Quantized::<$of<q6_k::Q6K>>::new(concat!("avx2:q6_k·q8:", $tile)),
            &decoded::<$of<Scaled<8>>>(concat!("avx2:iq1_s·q8:", $tile), Format::IQ1_S, Units::Scaled(8)),
            &decoded::<$of<Grouped>>(concat!("avx2:iq1_m·q8:", $tile), Format::IQ1_M, Units::Grouped),
            &decoded::<$of<Scaled<8>>>(concat!("avx2:iq2_xxs·q8:", $tile), Format::IQ2_XXS, Units::Scaled(8)),
            &decoded::<$of<Grouped>>(concat!("avx2:iq2_xs·q8:", $tile), Format::IQ2_XS, Units::Grouped),
            &decoded::<$of<Grouped>>(concat!("avx2:iq2_s·q8:", $tile), Format::IQ2_S, Units::Grouped),
            &decoded::<$of<Scaled<8>>>(concat!("avx2:iq3_xxs·q8:", $tile), Format::IQ3_XXS, Units::Scaled(8)),
            &decoded::<$of<Scaled<8>>>(concat!("avx2:iq3_s·q8:", $tile), Format::IQ3_S, Units::Scaled(8)),
            &decoded::<$of<Scaled<1>>>(concat!("avx2:iq4_nl·q8:", $tile), Format::IQ4_NL, Units::Scaled(1)),
            &decoded::<$of<Scaled<8>>>(concat!("avx2:iq4_xs·q8:", $tile), Format::IQ4_XS, Units::Scaled(8)),
            &decoded::<$of<Scaled<8>>>(concat!("avx2:tq1_0·q8:", $tile), Format::TQ1_0, Units::Scaled(8)),
            &decoded::<$of<Scaled<8>>>(concat!("avx2:tq2_0·q8:", $tile), Format::TQ2_0, Units::Scaled(8)),
            &decoded::<$of<Scaled<1>>>(concat!("avx2:mxfp4·q8:", $tile), Format::MXFP4, Units::Scaled(1)),
        ]
    };
}

/// The format's codec itself.
type Plain<C> = C;

/// For any CPU.
pub(super) static PLAIN: &[&dyn MatmulKernel] = products!(Plain, "16x4");
/// For CPUs with dot products of bytes.
pub(super) static VNNI: &[&dyn MatmulKernel] = products!(Vnni, "16x4-vnni");

/// A format that is decoded to units of `C`.
const fn decoded<C: Codec>(id: &'static str, format: Format, units: Units) -> Decoded<Quantized<C>> {
    Decoded::new(id, format, units, Quantized::new(id))
}
