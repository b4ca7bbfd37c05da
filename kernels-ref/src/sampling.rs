//! What sampling asks of every logit or weight of the vocabulary.
//!
//! Sums of weights are sums of whole numbers ([`fixed`]), so they are the same in any order: over lanes, chunks and threads.

use crate::exp::exp;
use crate::lanes::LANES;

/// Logits to a block of [`block_max`].
pub const BLOCK: usize = 64;
/// [`fixed`] counts in units of `2^-FIXED_BITS`.
pub const FIXED_BITS: u32 = 42;
/// Weights that [`weight_sum`] can add up: each is below `2^(FIXED_BITS + 1)` units, their sum below `2^63`.
pub const MAX_WEIGHTS: usize = 1 << 20;
/// Added to a weight in f64, this leaves a multiple of `2^-FIXED_BITS`: its unit in the last place.
pub const FIXED_SHIFT: f64 = (1_u64 << (52 - FIXED_BITS)) as f64;

/// The largest of each block of [`BLOCK`], and whether every element is finite.
///
/// - Formula: `out[b] = max of x[64 b ..]`, NaN passed over; an infinity or NaN anywhere makes the answer false.
/// - Shapes: `x` is (n), `out` is (n.div_ceil(64)).
/// - Requires: nothing.
/// - Numerics: exact; a zero comes out positive.
/// - Cost: 1 pass.
pub fn block_max(x: &[f32], out: &mut [f32]) -> bool {
    assert_eq!(out.len(), x.len().div_ceil(BLOCK), "a maximum for each block");
    let mut odd = [0.0_f32; LANES]; // 0 in every lane until something infinite or NaN is met
    for (block, out) in x.chunks(BLOCK).zip(out) {
        let mut max = [f32::NEG_INFINITY; LANES];
        for x in block.chunks(LANES) {
            for ((max, odd), &x) in max.iter_mut().zip(&mut odd).zip(x) {
                *max = if x > *max { x } else { *max };
                *odd += x * 0.0;
            }
        }
        *out = max.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m }) + 0.0;
    }
    odd.iter().all(|&o| o == 0.0)
}

/// The indices of the elements that are at least `threshold`, ascending. Returns how many.
///
/// - Shapes: `x` is (n), `out` is at least as long; what lies behind the indices found is unspecified.
/// - Requires: nothing; a NaN is never found.
/// - Numerics: exact.
/// - Cost: 1 pass.
pub fn at_least(x: &[f32], threshold: f32, out: &mut [u32]) -> usize {
    assert!(out.len() >= x.len(), "room for every index");
    let mut n_found = 0;
    for (i, &x) in x.iter().enumerate() {
        if x >= threshold {
            out[n_found] = i as u32;
            n_found += 1;
        }
    }
    n_found
}

/// Weights relative to the best logit, which gets exactly 1.
///
/// - Formula: `out[i] = exp((x[i] - best) * sharpness)`
/// - Shapes: `x` and `out` are (n).
/// - Requires: `sharpness` is positive and finite.
/// - Numerics: [`exp`]; never rises where `x` falls.
/// - Cost: 8 fused multiply-adds an element.
pub fn exp_weights(x: &[f32], best: f32, sharpness: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "a weight for each logit");
    for (out, &x) in out.iter_mut().zip(x) {
        *out = exp((x - best) * sharpness);
    }
}

/// A weight as a whole number of `2^-42`, to the nearest, ties to even.
///
/// Requires: `0 <= weight < 1024`.
pub fn fixed(weight: f32) -> u64 {
    (f64::from(weight) + FIXED_SHIFT).to_bits().wrapping_sub(FIXED_SHIFT.to_bits())
}

/// The sum of weights in units of `2^-42`.
///
/// - Formula: `sum of fixed(x[i] * scale)`
/// - Shapes: `x` is (n).
/// - Requires: `0 <= x[i] * scale < 2`, `n <=` [`MAX_WEIGHTS`].
/// - Numerics: exact after rounding each product, so the order of adding does not matter.
/// - Cost: 1 pass.
pub fn weight_sum(x: &[f32], scale: f32) -> u64 {
    x.iter().fold(0, |sum: u64, &x| sum.wrapping_add(fixed(x * scale)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_of_whole_and_broken_blocks() {
        let x: Vec<f32> = (0..130).map(|i| if i % 2 == 0 { -(i as f32) } else { i as f32 / 2.0 - 100.0 }).collect();
        let mut out = [f32::NAN; 3];
        assert!(block_max(&x, &mut out));
        assert_eq!(out, [0.0, -36.5, -35.5]);
        assert!(out[0].is_sign_positive());
        assert!(block_max(&[], &mut []));
    }

    #[test]
    fn whatever_is_not_finite_is_seen() {
        for n in [1, 15, 16, 63, 64, 65, 200] {
            for i in 0..n {
                for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut x = vec![f32::MAX; n];
                    x[i] = odd;
                    assert!(!block_max(&x, &mut vec![0.0; n.div_ceil(BLOCK)]), "{odd} at {i} of {n}");
                }
            }
        }
    }

    #[test]
    fn fixed_by_hand() {
        assert_eq!(fixed(0.0), 0);
        assert_eq!(fixed(1.0), 1 << 42);
        assert_eq!(fixed(0.75), 3 << 40);
        let unit = 1.0 / (1_u64 << 42) as f32;
        assert_eq!(fixed(unit), 1);
        // Half a unit goes to the even neighbour.
        assert_eq!((fixed(0.5 * unit), fixed(0.75 * unit), fixed(1.5 * unit), fixed(2.5 * unit)), (0, 1, 2, 2));
        assert_eq!(weight_sum(&[0.5, 1.0, 2.0], 0.5), 7 << 40);
    }

    #[test]
    fn weights_by_hand() {
        let mut w = [0.0; 3];
        exp_weights(&[2.0, 1.0, -1e30], 2.0, 2.0, &mut w);
        assert_eq!(w[0], 1.0);
        assert!((w[1] - (-2.0_f32).exp()).abs() < 1e-7 && w[2] < 1e-37, "{w:?}");
    }

    #[test]
    fn indices_in_order() {
        let mut out = [0; 5];
        let n = at_least(&[3.0, f32::NAN, 2.0, -1.0, 2.5], 2.0, &mut out);
        assert_eq!(out[..n], [0, 2, 4]);
    }
}
