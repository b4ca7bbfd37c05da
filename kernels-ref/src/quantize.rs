//! Quantization of activations, see [`crate::activation`].

use crate::activation::{Q8_BLOCK, Q8RowMut};

/// A block whose largest magnitude is below this is zero: 2^-100, so that neither the scale nor its inverse is subnormal.
pub const ZERO_BELOW: f32 = f32::from_bits((127 - 100) << 23);

/// Quantizes one row.
///
/// - Formula: `scale = max|x| / 127`, `q = round(x * (127 / max|x|))` a block of 32.
/// - Shapes: `x` (k); see [`Q8RowMut`].
/// - Requires: `k` a multiple of 32.
/// - Numerics: ties to even; a block with a number that is not finite has scale NaN and `q = 0`; one that is all below
///   [`ZERO_BELOW`] has scale 0.
/// - Cost: one pass over the row.
pub fn quantize(x: &[f32], out: &mut Q8RowMut<'_>) {
    let blocks = x.len() / Q8_BLOCK;
    assert!(
        x.len().is_multiple_of(Q8_BLOCK)
            && out.q.len() == x.len()
            && out.scale.len() == blocks
            && out.scaled_sum.len() == blocks
            && out.sum.len() == 2 * blocks,
        "quantize: a row of {}",
        x.len()
    );
    for b in 0..blocks {
        let (x, q) = (&x[b * Q8_BLOCK..][..Q8_BLOCK], &mut out.q[b * Q8_BLOCK..][..Q8_BLOCK]);
        // The order of magnitudes is the order of their bits, so the maximum is free of any order of comparing.
        let max = f32::from_bits(x.iter().fold(0, |m, x| m.max(x.abs().to_bits())));
        let (scale, inverse) = match max {
            _ if !max.is_finite() => (f32::NAN, 0.0),
            _ if max < ZERO_BELOW => (0.0, 0.0),
            _ => (max / 127.0, 127.0 / max),
        };
        for (q, &x) in q.iter_mut().zip(x) {
            // What is not finite times 0 is NaN, which converts to 0.
            *q = (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
        }
        if scale.is_nan() {
            q.fill(0);
        }
        let sum = |half: &[i8]| half.iter().map(|&q| i16::from(q)).sum::<i16>();
        let (low, high) = (sum(&q[..16]), sum(&q[16..]));
        out.sum[2 * b] = low;
        out.sum[2 * b + 1] = high;
        out.scale[b] = scale;
        out.scaled_sum[b] = scale * f32::from(low + high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(x: &[f32]) -> (Vec<i8>, Vec<f32>, Vec<f32>, Vec<i16>) {
        let b = x.len() / Q8_BLOCK;
        let (mut q, mut scale, mut scaled_sum, mut sum) = (vec![1; x.len()], vec![1.0; b], vec![1.0; b], vec![1; 2 * b]);
        quantize(x, &mut Q8RowMut { q: &mut q, scale: &mut scale, scaled_sum: &mut scaled_sum, sum: &mut sum });
        (q, scale, scaled_sum, sum)
    }

    #[test]
    fn by_hand() {
        let mut x = [0.0; 32];
        (x[0], x[1], x[2], x[16]) = (254.0, 1.0, 3.0, -254.0);
        let (q, scale, scaled_sum, sum) = row(&x);
        assert_eq!((q[0], q[1], q[2], q[16]), (127, 0, 2, -127)); // 0.5 and 1.5 go to even
        assert_eq!((scale[0], scaled_sum[0], &sum[..]), (2.0, 4.0, &[129, -127][..]));
    }

    #[test]
    fn tiny_and_not_finite() {
        let (q, scale, ..) = row(&[1e-38; 32]);
        assert!(q.iter().all(|&q| q == 0) && scale[0] == 0.0);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 64];
            x[40] = bad;
            let (q, scale, scaled_sum, sum) = row(&x);
            assert!(scale[0] == 1.0 / 127.0 && scale[1].is_nan() && scaled_sum[1].is_nan());
            assert!(q[32..].iter().all(|&q| q == 0) && sum[2..] == [0, 0]);
        }
    }
}
