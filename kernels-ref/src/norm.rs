//! Root mean square normalization.

use crate::lanes;

/// RMS norm of one row.
///
/// - Formula: `out[i] = (x[i] / sqrt(mean(x^2) + eps)) * weight[i]`
/// - Shapes: all (n).
/// - Requires: equal lengths.
/// - Numerics: the sum of squares on 16 lanes; `inv = 1 / sqrt(sum / n + eps)`; `(x * inv) * weight`.
/// - Cost: 2 passes over the row. Source: Zhang and Sennrich 2019, arXiv 1910.07467.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rms_norm: rows of {}, {} and {}", x.len(), weight.len(), out.len());
    let inv = 1.0 / (lanes::dot(x, x) / x.len() as f32 + eps).sqrt();
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = (x * inv) * w;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut out = [0.0; 2];
        rms_norm(&[3.0, 4.0], &[1.0, 2.0], 0.0, &mut out); // mean square 12.5
        let inv = 1.0 / 12.5_f32.sqrt();
        assert_eq!(out, [3.0 * inv, 4.0 * inv * 2.0]);
    }
}
