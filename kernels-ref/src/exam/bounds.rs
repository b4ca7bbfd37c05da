//! How far a result may be from the exact one. Each bound is derived, and its derivation stands with it.

/// Unit roundoff of f32: the largest relative error of one rounding.
pub const U: f64 = 1.0 / (1 << 24) as f64;

/// Absolute error of a rounding that underflows: half the least subnormal.
pub const UNDERFLOW: f64 = 7.1e-46;

/// A product against f64 with the same activations, as a share of `sum |w x|`.
///
/// A chain of `k` roundings may reach `k * U`; random signs leave about `sqrt(k) * U`, 3e-6 at the largest `k` examined.
pub const PRODUCT: f64 = 1e-5;

/// A product with quantized activations against f64 with the activations as they were: normalized mean square error.
///
/// A step is `max / 127`; of 32 standard normal numbers the largest is about 2.1, so the error's variance is near
/// `(2.1 / 127)^2 / 12 = 2.3e-5`.
pub const PRODUCT_GAUSSIAN: f64 = 1e-4;

/// The same where one activation in 29 is twenty times as large: those blocks' steps are 20 times as wide.
pub const PRODUCT_OUTLIERS: f64 = 5e-4;

/// The same for weights and activations in f32 or f16: rounding alone.
pub const PRODUCT_FLOAT: f64 = 1e-10;

/// Attention against f64 with keys and values as they were before f16, as a share of `max |v|`.
///
/// A value's rounding is 2^-11 of itself; a score's, with keys of 2^-11 relative error, shifts weights by about as much.
pub const ATTENTION_F16: f64 = 2e-3;

/// The same with keys and values in f32: `d` and 64-key chains of roundings.
pub const ATTENTION_F32: f64 = 1e-5;

/// The same with keys and values in 8 bits, normalized mean square error of standard normal numbers.
///
/// The largest of 32 is rarely above 3.5, which makes a value's error `(3.5 / 127)^2 / 12 = 6.3e-5` of its variance; that of a
/// score, over `sqrt(d)` and with queries of variance 1, is as large and shifts weights by as much of themselves. Twice the
/// sum is allowed, for few numbers.
pub const ATTENTION_I8: f64 = 2.5e-4;

/// Relative error of [`crate::exp::exp`] within its clamp: two units in the last place.
pub const EXP: f64 = 4.0 * U;

/// Relative error of a sum of `n` positive numbers on 16 lanes: a chain of `n / 16`, then 4 levels of the tree.
pub fn lane_sum(n: usize) -> f64 {
    (n.div_ceil(16) + 4) as f64 * U
}

/// How far the sum of a softmax may be from 1: the sum's error, the quotient's, each product's, and underflow of each.
pub fn softmax_sum(n: usize) -> f64 {
    lane_sum(n) + 2.0 * U + n as f64 * UNDERFLOW
}

/// Relative error of an RMS norm: half that of the mean square (sum, squares, division, `eps`), root, quotient, two products.
pub fn rms_norm(n: usize) -> f64 {
    (lane_sum(n) + 3.0 * U) / 2.0 + 4.0 * U
}

/// What a gate cannot fall below where its exact value does, as a share of `|x * up|`: `1 / exp(`[`HI`](crate::exp::HI)`)`.
pub const GATE_CLAMP: f64 = 4.2e-39;

/// Relative error of `silu(x) * up`: exponential, sum, quotient, product.
pub const SILU: f64 = EXP + 3.0 * U;

/// Relative error of `gelu(x) * up`: as [`SILU`], and the exponent `e` has 5 roundings of its own, which `exp` turns into
/// a relative error of `5 U |e|`.
pub fn gelu(exponent: f64) -> f64 {
    SILU + 5.0 * U * exponent.abs()
}

/// Relative error of the gate of gpt-oss as far as its `up + 1` is exact: as [`SILU`], one product more, and an argument of two
/// roundings, the product and its constant.
pub fn limited(x: f64) -> f64 {
    SILU + U + 2.0 * U * 1.702 * x.abs()
}

/// Error of a soft cap as a share of the cap. With `e` the exponential of `u`, `2 e / (1 + e)^2 <= 1/2` passes on what is wrong
/// with it: [`EXP`], and 2 roundings of `u`, where `|u| e / (1 + e)^2 < 0.45`. Sum and quotient add two roundings of up to 2, the
/// difference one of up to 1.
pub const SOFT_CAP: f64 = 0.5 * EXP + 4.0 * 0.45 * U + 5.0 * U;
