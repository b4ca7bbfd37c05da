//! Gated activations, what limits a number, and the residual addition.

use crate::exp::exp;

/// `x * sigmoid(x)`, as `x / (1 + exp(-x))`.
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// The Gaussian error unit in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415).
///
/// `x * sigmoid(2 u)` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`, which equals `x (1 + tanh u) / 2`.
pub fn gelu(x: f32) -> f32 {
    /// `2 sqrt(2 / pi)`.
    const SCALE: f32 = 1.595_769;
    let u = (x * x * x).mul_add(0.044_715, x) * SCALE;
    x / (1.0 + exp(-u))
}

/// The gate of SwiGLU, in place. Source: Shazeer 2020, arXiv 2002.05202.
///
/// - Formula: `gate = silu(gate) * up`, see [`silu`].
/// - Shapes: both (n).
/// - Requires: equal lengths.
/// - Numerics: as written, every step rounded.
/// - Cost: one pass; an exponential and a division an element.
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "silu_mul");
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate = silu(*gate) * up;
    }
}

/// The gate of GEGLU, in place. Source: Shazeer 2020, arXiv 2002.05202.
///
/// - Formula: `gate = gelu(gate) * up`, see [`gelu`].
/// - Shapes: both (n).
/// - Requires: equal lengths.
/// - Numerics: as written, every step rounded but the fused `fma(x * x * x, 0.044715, x)`.
/// - Cost: one pass; an exponential and a division an element.
pub fn gelu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "gelu_mul");
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate = gelu(*gate) * up;
    }
}

/// The gate of gpt-oss, in place. Source: `GptOssExperts` of transformers.
///
/// - Formula: `gate = g * sigmoid(1.702 g) * (u + 1)` with `g = min(gate, 7)` and `u` = `up` kept within 7.
/// - Shapes: both (n).
/// - Requires: equal lengths.
/// - Numerics: `g / (1 + exp(-(g * 1.702)))`, then the product, every step rounded; NaN goes through.
/// - Cost: one pass; an exponential and a division an element.
pub fn limited_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "limited_mul");
    for (gate, &up) in gate.iter_mut().zip(up) {
        let g = if LIMIT < *gate { LIMIT } else { *gate };
        let u = if LIMIT < up { LIMIT } else { up };
        let u = if -LIMIT > u { -LIMIT } else { u };
        *gate = g / (1.0 + exp(-(g * STEEPNESS))) * (u + 1.0);
    }
}

/// Where [`limited_mul`] limits.
pub const LIMIT: f32 = 7.0;
/// What [`limited_mul`] multiplies the argument of its sigmoid with.
pub const STEEPNESS: f32 = 1.702;

/// Keeps numbers within `cap`, in place. Source: Gemma Team 2024, arXiv 2408.00118.
///
/// - Formula: `x = cap * tanh(x / cap)`
/// - Shapes: (n).
/// - Requires: `cap > 0`.
/// - Numerics: `cap - (2 cap) / (1 + exp(x * (2 / cap)))`, every step rounded, which is within a few roundings of `cap`.
/// - Cost: one pass; an exponential and a division an element.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap - (2.0 * cap) / (1.0 + exp(*x * (2.0 / cap)));
    }
}

/// Multiplies every number, in place.
pub fn scale(x: &mut [f32], factor: f32) {
    x.iter_mut().for_each(|x| *x *= factor);
}

/// The residual addition, in place.
///
/// - Formula: `acc += x`
/// - Shapes: both (n).
/// - Requires: equal lengths.
/// - Numerics: one rounding.
/// - Cost: one pass.
pub fn add(acc: &mut [f32], x: &[f32]) {
    assert_eq!(acc.len(), x.len(), "add");
    for (acc, &x) in acc.iter_mut().zip(x) {
        *acc += x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn against_f64() {
        for i in -2000..=2000 {
            let x = i as f32 / 100.0;
            let y = f64::from(x);
            let want = y / (1.0 + (-y).exp());
            assert!((f64::from(silu(x)) - want).abs() <= 4e-7 * y.abs(), "silu({x})");
            let want = 0.5 * y * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (y + 0.044715 * y.powi(3))).tanh());
            assert!((f64::from(gelu(x)) - want).abs() <= 2e-6 * y.abs() + 1e-12, "gelu({x}) = {} not {want}", gelu(x));
            let mut capped = [x];
            soft_cap(&mut capped, 5.0);
            let want = 5.0 * (y / 5.0).tanh();
            assert!((f64::from(capped[0]) - want).abs() <= 3e-6, "soft_cap({x}) = {} not {want}", capped[0]);
        }
    }
}
