//! Softmax.

use crate::exp::exp;
use crate::lanes;

/// Softmax of one row, in place.
///
/// - Formula: `x[i] = exp(x[i] - max) / sum`
/// - Shapes: (n).
/// - Requires: nothing; an empty row stays empty.
/// - Numerics: the sum on 16 lanes; multiplication with `1 / sum`.
/// - Cost: 3 passes over the row.
pub fn softmax(x: &mut [f32]) {
    let max = lanes::max(x);
    for x in &mut *x {
        *x = exp(*x - max);
    }
    let inv = 1.0 / lanes::sum(x);
    for x in x {
        *x *= inv;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut x = [0.0, 2.0_f32.ln()];
        softmax(&mut x);
        assert!((x[0] - 1.0 / 3.0).abs() < 1e-7 && (x[1] - 2.0 / 3.0).abs() < 1e-7, "{x:?}");
    }
}
