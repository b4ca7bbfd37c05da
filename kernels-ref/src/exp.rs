//! The exponential, one polynomial written once.

/// Beyond this the result would overflow: `exp(88.37) = 2.4e38`.
pub const HI: f32 = 88.37;
/// Below this the result would be subnormal; `exp(-87.33) = 1.2e-38` stands for all that is smaller.
pub const LO: f32 = -87.33;
/// `ln 2` in two parts; the first has 9 significant bits, so its product with a whole number up to 128 is exact.
pub const LN2_HI: f32 = 0.693_359_4;
/// The rest of `ln 2`.
pub const LN2_LO: f32 = -2.121_944_4e-4;
/// Coefficients of `(exp(r) - 1 - r) / r^2` for `|r| <= ln 2 / 2`, highest power first (Cephes, `expf`).
pub const POLYNOMIAL: [f32; 6] = [1.987_569_2e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// `e^x`.
///
/// - Formula: `2^n * p(x - n ln 2)`, `n` the whole number nearest to `x / ln 2`, ties to even.
/// - Requires: nothing. NaN gives NaN; `x` is clamped to [[`LO`], [`HI`]].
/// - Numerics: fused multiply-add throughout; within 2 units in the last place.
/// - Cost: 8 fused multiply-adds.
pub fn exp(x: f32) -> f32 {
    // Comparisons written so that NaN goes through, as minps and maxps do with x second.
    let x = if HI < x { HI } else { x };
    let x = if LO > x { LO } else { x };
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = (-n).mul_add(LN2_HI, x);
    let r = (-n).mul_add(LN2_LO, r);
    let [first, rest @ ..] = POLYNOMIAL;
    let p = rest.iter().fold(first, |p, &c| p.mul_add(r, c));
    let p = p.mul_add(r * r, r) + 1.0;
    // n is from -126 to 127 here, so 2^n is a normal number; NaN becomes 0, and p stays NaN.
    p * f32::from_bits(((n as i32 + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_two_units_in_the_last_place() {
        let mut worst = 0.0_f64;
        let mut x = LO;
        while x < HI {
            let want = f64::from(x).exp();
            let ulp = f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
            worst = worst.max((f64::from(exp(x)) - want).abs() / ulp);
            x += 0.000_37 * (1.0 + x.abs() / 16.0);
        }
        assert!(worst < 2.0, "{worst} units");
    }

    #[test]
    fn edges() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(f32::INFINITY), exp(HI));
        assert_eq!(exp(f32::NEG_INFINITY), exp(LO));
        assert!(exp(LO) >= f32::MIN_POSITIVE && exp(HI).is_finite());
    }
}
