//! Operations on a row as a whole: norm, softmax, rotary embedding.

use super::Exam;
use super::bounds::{self, U};
use super::buffers::{CANARY, Guarded};
use super::compare::{Fault, equal, within};
use super::fills::Fill;
use crate::{norm, rope, softmax as reference};

/// Lengths at and around the widths of vectors, primes, a model's own.
pub(super) const SIZES: [usize; 27] =
    [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 128, 129, 257, 576, 1031];

/// Examines the RMS norm.
pub fn rms_norm(exam: &mut Exam, kernel: fn(&[f32], &[f32], f32, &mut [f32])) {
    for (n, fill) in SIZES.iter().flat_map(|&n| Fill::ALL.map(|fill| (n, fill))) {
        let sizes = format!("n={n} fill={}", fill.name());
        exam.case("rms_norm", "rms_norm_equals_reference", &sizes, |random| {
            let x = Guarded::of(&fill.numbers(n, random), random.below(16), f32::NAN);
            let weight = Guarded::of(&Fill::Gaussian.numbers(n, random), random.below(16), f32::NAN);
            let mut got = Guarded::new(n, random.below(16), CANARY);
            kernel(x.get(), weight.get(), 1e-5, got.get_mut());
            let mut want = vec![0.0; n];
            norm::rms_norm(x.get(), weight.get(), 1e-5, &mut want);
            got.intact()?;
            equal(got.get(), &want)
        });
        if matches!(fill, Fill::Gaussian | Fill::Outliers | Fill::Zeros) {
            exam.case("rms_norm", "rms_norm_is_accurate", &sizes, |random| {
                let (x, weight) = (fill.numbers(n, random), Fill::Gaussian.numbers(n, random));
                let eps = 1e-5_f32;
                let mut got = Guarded::new(n, random.below(16), CANARY);
                kernel(&x, &weight, eps, got.get_mut());
                got.intact()?;
                let mean_square = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
                let root = libm::sqrt(mean_square + f64::from(eps));
                let want: Vec<f64> = x.iter().zip(&weight).map(|(&x, &w)| f64::from(x) / root * f64::from(w)).collect();
                within(got.get(), &want, |i| bounds::rms_norm(n) * want[i].abs() + bounds::UNDERFLOW)
            });
        }
    }
}

/// Examines the softmax.
pub fn softmax(exam: &mut Exam, kernel: fn(&mut [f32])) {
    for (n, fill) in SIZES.iter().flat_map(|&n| Fill::ALL.map(|fill| (n, fill))) {
        let sizes = format!("n={n} fill={}", fill.name());
        exam.case("softmax", "softmax_equals_reference", &sizes, |random| {
            let x = fill.numbers(n, random);
            let mut got = Guarded::of(&x, random.below(16), CANARY);
            kernel(got.get_mut());
            let mut want = x;
            reference::softmax(&mut want);
            got.intact()?;
            equal(got.get(), &want)
        });
        if n > 0 && !matches!(fill, Fill::Broken | Fill::Bits) {
            exam.case("softmax", "softmax_sums_to_one", &sizes, |random| {
                let mut got = Guarded::of(&fill.numbers(n, random), random.below(16), CANARY);
                kernel(got.get_mut());
                got.intact()?;
                let sum: f64 = got.get().iter().map(|&x| f64::from(x)).sum();
                let bound = bounds::softmax_sum(n);
                let off = (sum - 1.0).abs();
                if off <= bound { Ok(()) } else { Err(Fault::new(format!("the sum is {off:e} from 1, above {bound:e}"))) }
            });
        }
        if fill == Fill::Gaussian {
            exam.case("softmax", "softmax_is_accurate", &sizes, |random| {
                let x = fill.numbers(n, random);
                let mut got = Guarded::of(&x, random.below(16), CANARY);
                kernel(got.get_mut());
                got.intact()?;
                let weights: Vec<f64> = x.iter().map(|&x| libm::exp(f64::from(x))).collect();
                let sum: f64 = weights.iter().sum();
                let want: Vec<f64> = weights.iter().map(|w| w / sum).collect();
                // Both exponentials; the difference to the maximum, at most 7, rounded to 4 U; sum, quotient, product.
                within(got.get(), &want, |i| (2.0 * (bounds::EXP + 4.0 * U) + bounds::lane_sum(n) + 2.0 * U) * want[i])
            });
        }
    }
}

type Rope = fn(&mut [f32], usize, &[f32], &[f32]);

/// Examines the rotary embedding of adjacent pairs.
pub fn rope_pairs(exam: &mut Exam, kernel: Rope) {
    rope(exam, "rope_pairs", ["rope_pairs_equals_reference", "rope_pairs_turns_by_the_angle"], kernel, rope::rope_pairs, |j, _| {
        (2 * j, 2 * j + 1)
    });
}

/// Examines the rotary embedding of halves.
pub fn rope_halves(exam: &mut Exam, kernel: Rope) {
    rope(exam, "rope_halves", ["rope_halves_equals_reference", "rope_halves_turns_by_the_angle"], kernel, rope::rope_halves, |j, half| {
        (j, j + half)
    });
}

/// Head sizes and how many of their components turn.
const HEADS: [(usize, usize); 16] = [
    (1, 0),
    (2, 2),
    (3, 2),
    (5, 4),
    (8, 8),
    (16, 16),
    (17, 16),
    (24, 12),
    (31, 30),
    (32, 32),
    (34, 34),
    (64, 64),
    (66, 46),
    (80, 20),
    (128, 128),
    (256, 64),
];

fn rope(
    exam: &mut Exam,
    slot: &str,
    properties: [&'static str; 2],
    kernel: Rope,
    reference: Rope,
    pair: fn(usize, usize) -> (usize, usize),
) {
    for ((d, n_rot), h) in HEADS.iter().flat_map(|&head| [0, 1, 2, 3, 9].map(|h| (head, h))) {
        for fill in [Fill::Gaussian, Fill::Broken, Fill::Bits] {
            exam.case(slot, properties[0], &format!("h={h} d={d} n_rot={n_rot} fill={}", fill.name()), |random| {
                let x = fill.numbers(h * d, random);
                let cos = Guarded::of(&fill.numbers(n_rot / 2, random), random.below(16), f32::NAN);
                let sin = Guarded::of(&fill.numbers(n_rot / 2, random), random.below(16), f32::NAN);
                let mut got = Guarded::of(&x, random.below(16), CANARY);
                kernel(got.get_mut(), d, cos.get(), sin.get());
                let mut want = x;
                reference(&mut want, d, cos.get(), sin.get());
                got.intact()?;
                equal(got.get(), &want)
            });
        }
        exam.case(slot, properties[1], &format!("h={h} d={d} n_rot={n_rot}"), |random| {
            let x = Fill::Gaussian.numbers(h * d, random);
            let half = n_rot / 2;
            let angles: Vec<f64> = (0..half).map(|_| f64::from(random.gaussian())).collect();
            let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|&a| (libm::cos(a) as f32, libm::sin(a) as f32)).unzip();
            let mut got = Guarded::of(&x, random.below(16), CANARY);
            kernel(got.get_mut(), d, &cos, &sin);
            got.intact()?;
            let mut want: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            let mut length = vec![0.0; h * d];
            for (head, j) in (0..h).flat_map(|head| (0..half).map(move |j| (head, j))) {
                let (a, b) = pair(j, half);
                let (a, b) = (head * d + a, head * d + b);
                let (x0, x1) = (want[a], want[b]);
                want[a] = x0 * libm::cos(angles[j]) - x1 * libm::sin(angles[j]);
                want[b] = x0 * libm::sin(angles[j]) + x1 * libm::cos(angles[j]);
                length[a] = x0.abs() + x1.abs();
                length[b] = length[a];
            }
            // Of each term: cosine or sine, product, sum. What does not turn has length 0 here and stays as it is.
            within(got.get(), &want, |i| 3.0 * U * length[i])
        });
    }
}
