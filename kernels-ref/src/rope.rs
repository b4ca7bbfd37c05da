//! Rotary position embedding.
//!
//! Source: Su et al. 2021, arXiv 2104.09864. GGUF's `llama` tensors are permuted so that adjacent components form a pair;
//! the other families rotate component `j` with `j + n_rot / 2`.

/// Rotates adjacent components `(2j, 2j + 1)` of each head.
///
/// - Formula: `(a, b) -> (a cos - b sin, a sin + b cos)`
/// - Shapes: `x` (h, d); `cos`, `sin` (n_rot / 2). Components from `n_rot` on stay.
/// - Requires: `n_rot <= d`, `x.len()` a multiple of `d`.
/// - Numerics: `fma(a, cos, -(b * sin))` and `fma(a, sin, b * cos)`.
/// - Cost: one pass over the row.
pub fn rope_pairs(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    check(x, d, cos, sin);
    for head in x.chunks_exact_mut(d) {
        for ((pair, &c), &s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
            (pair[0], pair[1]) = rotate(pair[0], pair[1], c, s);
        }
    }
}

/// Rotates components `(j, j + n_rot / 2)` of each head.
///
/// Formula, shapes, requirements, numerics and cost are those of [`rope_pairs`].
pub fn rope_halves(x: &mut [f32], d: usize, cos: &[f32], sin: &[f32]) {
    check(x, d, cos, sin);
    for head in x.chunks_exact_mut(d) {
        let (low, high) = head.split_at_mut(cos.len());
        for (((a, b), &c), &s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
            (*a, *b) = rotate(*a, *b, c, s);
        }
    }
}

fn rotate(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a.mul_add(cos, -(b * sin)), a.mul_add(sin, b * cos))
}

fn check(x: &[f32], d: usize, cos: &[f32], sin: &[f32]) {
    assert!(d > 0 && x.len().is_multiple_of(d), "rope: {} numbers in heads of {d}", x.len());
    assert!(cos.len() == sin.len() && 2 * cos.len() <= d, "rope: {} angles for heads of {d}", cos.len());
}

/// Angles a position step of each pair: `base^(-2j / n_rot)` for `j < n_rot / 2`, rounded once from f64.
pub fn inverse_frequencies(base: f32, n_rot: usize) -> Vec<f32> {
    (0..n_rot / 2).map(|j| libm::pow(f64::from(base), -((2 * j) as f64) / n_rot as f64) as f32).collect()
}

/// The pair, as a number between pairs, that turns `turns` times in `positions`: `n_rot ln(positions / (2 pi turns)) / (2 ln base)`.
pub fn pair_that_turns(turns: f64, positions: usize, base: f32, n_rot: usize) -> f64 {
    n_rot as f64 * libm::log(positions as f64 / (turns * 2.0 * std::f64::consts::PI)) / (2.0 * libm::log(base.into()))
}

/// What YaRN multiplies cosines and sines with where frequencies are divided by `factor`: `1 + ln(factor) / 10`.
pub fn stretched_magnitude(factor: f32) -> f32 {
    (1.0 + 0.1 * libm::log(factor.into())) as f32
}

/// Cosines and sines of the angles of a position.
///
/// - Formula: `cos[j] = magnitude * cos(position * frequencies[j])`, `sin[j]` likewise.
/// - Shapes: all (n_rot / 2).
/// - Requires: equal lengths.
/// - Numerics: f64, rounded once to f32, then the product; the same bits on every platform.
/// - Cost: a cosine and a sine each, once a position.
pub fn angles(position: usize, frequencies: &[f32], magnitude: f32, cos: &mut [f32], sin: &mut [f32]) {
    for ((&f, cos), sin) in frequencies.iter().zip(cos).zip(sin) {
        let angle = position as f64 * f64::from(f);
        *cos = magnitude * libm::cos(angle) as f32;
        *sin = magnitude * libm::sin(angle) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_turn_by_hand() {
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        rope_pairs(&mut x, 6, &[0.0, 1.0], &[1.0, 0.0]);
        assert_eq!(x, [-2.0, 1.0, 3.0, 4.0, 5.0, 6.0]);
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        rope_halves(&mut x, 6, &[0.0, 1.0], &[1.0, 0.0]);
        assert_eq!(x, [-3.0, 2.0, 1.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn frequencies_fall_from_one_to_the_base() {
        let f = inverse_frequencies(10_000.0, 4);
        assert_eq!(f, [1.0, 0.01]);
    }
}
