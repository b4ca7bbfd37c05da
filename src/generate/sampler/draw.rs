//! Draws: the inverse of the cumulative distribution, walked in the order of ids.
//!
//! Weights are added up as whole numbers relative to the power of two below the largest, so a draw is the same whether the
//! zeros between are there (dense) or not (sparse), and whether sums are taken one by one or in pieces.

use rml_kernels_ref::sampling::{self, BLOCK, MAX_WEIGHTS, fixed};

use super::SplitMix64;
use super::kernels::{Kernels, PIECE};
use crate::{Error, Result};

/// A distribution over at most [`SPARSE_TOPK_MAX`](super::SPARSE_TOPK_MAX) tokens: `(id, probability)` by id, summing to 1.
pub type Sparse = Vec<(u32, f32)>;

/// Draws an index with probability in proportion to its weight. Takes one number from `rng`.
///
/// `weights` is (n); they need not be normalized. A weight less than `2^-43` of the largest counts as 0.
///
/// # Errors
/// [`Error::InvalidArgument`] if a weight is negative, NaN or infinite, or all are 0 (or there is none).
pub fn draw(weights: &[f32], rng: &mut SplitMix64) -> Result<u32> {
    check(weights.iter().copied(), weights.len())?;
    draw_with(&Kernels::REFERENCE, weights, rng)
}

/// Draws an id from a sparse distribution: the token that [`draw`] finds in the dense one. Takes one number from `rng`.
///
/// # Errors
/// As [`draw`].
pub fn draw_sparse(sparse: &[(u32, f32)], rng: &mut SplitMix64) -> Result<u32> {
    check(sparse.iter().map(|&(_, p)| p), sparse.len())?;
    walk(sparse.iter().copied(), rng)
}

/// Finite and not negative.
pub(super) fn is_weight(w: f32) -> bool {
    (0.0..f32::INFINITY).contains(&w)
}

/// That all weights are finite and not negative, and not too many.
pub(super) fn check(weights: impl Iterator<Item = f32>, n: usize) -> Result<()> {
    if n > MAX_WEIGHTS {
        return Err(Error::out_of_range("weights", format!("{n} of them; at most {MAX_WEIGHTS} can be drawn from")));
    }
    // No early end, so that the loop becomes one of vectors.
    if weights.fold(true, |ok, w| ok & is_weight(w)) {
        return Ok(());
    }
    Err(Error::invalid("weights", "one is negative, NaN or infinite"))
}

/// [`draw`] from weights that are known to be finite and not negative.
pub(super) fn draw_with(kernels: &Kernels, weights: &[f32], rng: &mut SplitMix64) -> Result<u32> {
    let mut maxima = [0.0; PIECE / BLOCK];
    let mut largest = 0.0_f32;
    for piece in weights.chunks(PIECE) {
        let maxima = &mut maxima[..piece.len().div_ceil(BLOCK)];
        (kernels.block_max)(piece, maxima);
        largest = maxima.iter().fold(largest, |m, &x| m.max(x));
    }
    let scale = scale_of(largest)?;
    let total = weights.chunks(PIECE).map(|piece| (kernels.weight_sum)(piece, scale)).sum();
    let mut left = rng.below(total);
    for (i, piece) in weights.chunks(PIECE).enumerate() {
        let sum = (kernels.weight_sum)(piece, scale);
        if left >= sum {
            left -= sum;
            continue;
        }
        for (j, &w) in piece.iter().enumerate() {
            let w = fixed(w * scale);
            if left < w {
                return Ok((i * PIECE + j) as u32);
            }
            left -= w;
        }
    }
    unreachable!("{left} is left of a number below the sum")
}

/// Draws from the weights that `weights` walks over, by id; they are finite and not negative.
pub(super) fn walk(weights: impl Iterator<Item = (u32, f32)> + Clone, rng: &mut SplitMix64) -> Result<u32> {
    let scale = scale_of(weights.clone().fold(0.0, |m: f32, (_, w)| m.max(w)))?;
    let total = weights.clone().map(|(_, w)| fixed(w * scale)).sum();
    let mut left = rng.below(total);
    for (id, w) in weights {
        let w = fixed(w * scale);
        if left < w {
            return Ok(id);
        }
        left -= w;
    }
    unreachable!("{left} is left of a number below the sum")
}

/// The power of two that brings `largest` into [1, 2); less far if it is subnormal.
fn scale_of(largest: f32) -> Result<f32> {
    if largest == 0.0 {
        return Err(Error::invalid("weights", "there is none above 0"));
    }
    let exponent = (largest.to_bits() >> 23).max(1);
    // 2^(127 - exponent); the last one is subnormal.
    Ok(f32::from_bits(if exponent < 254 { (254 - exponent) << 23 } else { 1 << 22 }))
}

impl Kernels {
    /// The reference kernels, for functions that are given no table. Others give the same bits.
    pub(super) const REFERENCE: Kernels = Kernels {
        block_max: sampling::block_max,
        at_least: sampling::at_least,
        exp_weights: sampling::exp_weights,
        weight_sum: sampling::weight_sum,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_powers_of_two_that_fit() {
        for x in [f32::MIN_POSITIVE, 1e-30, 0.3, 0.5, 1.0, 1.999, 3.0, 1e30, 2.0_f32.powi(126), f32::MAX] {
            let scale = scale_of(x).unwrap();
            assert!((1.0..2.0).contains(&(x * scale)), "{x} {scale}");
            assert_eq!(f64::from(x) * f64::from(scale), f64::from(x * scale), "exact");
        }
        assert!(scale_of(1e-45).unwrap() * 1e-45 > 0.0);
        assert!(scale_of(0.0).is_err());
    }

    #[test]
    fn sparse_and_dense_draw_the_same() {
        let mut rng = SplitMix64::new(11);
        for n in [1, 5, 64, 2048, 2049, 5000] {
            let dense: Vec<f32> = (0..n).map(|_| if rng.below(3) == 0 { (rng.next_f64() * -20.0).exp() as f32 } else { 0.0 }).collect();
            let sparse: Vec<_> = dense.iter().enumerate().filter(|&(_, &w)| w > 0.0).map(|(i, &w)| (i as u32, w)).collect();
            for seed in 0..200 {
                let (mut a, mut b) = (SplitMix64::new(seed), SplitMix64::new(seed));
                match draw(&dense, &mut a) {
                    Ok(id) => assert_eq!(id, draw_sparse(&sparse, &mut b).unwrap()),
                    Err(_) => assert!(sparse.is_empty()),
                }
                assert_eq!(a, b);
            }
        }
    }

    #[test]
    fn what_cannot_be_drawn_from_is_an_error() {
        let mut rng = SplitMix64::new(0);
        for bad in [&[][..], &[0.0], &[0.0, -0.0], &[1.0, -1.0], &[f32::NAN, 1.0], &[1.0, f32::INFINITY]] {
            assert!(draw(bad, &mut rng).is_err(), "{bad:?}");
            let sparse: Vec<_> = bad.iter().map(|&w| (0, w)).collect();
            assert!(draw_sparse(&sparse, &mut rng).is_err(), "{bad:?}");
        }
        assert_eq!(draw(&[0.0, 1e-45, 0.0], &mut rng).unwrap(), 1);
        assert_eq!(draw(&[0.0, f32::MAX, 0.0], &mut rng).unwrap(), 1);
    }
}
