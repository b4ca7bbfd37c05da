//! Scales of a group of weights that make its weighted squared error small.

/// Groups whose largest magnitude is below this are zero.
pub(super) const ZERO_BELOW: f32 = 1e-15;

/// The nearest whole number, ties to even, for magnitudes below 2^22.
///
/// Beyond that it wraps as llama.cpp's does; callers limit what they get.
pub(super) fn nearest(x: f32) -> i32 {
    ((x + 12_582_912.0).to_bits() & 0x7f_ffff) as i32 - 0x40_0000
}

/// The number of largest magnitude, the first of equals; `None` if all are as good as zero.
fn largest(x: &[f32]) -> Option<f32> {
    let largest = x.iter().fold(0.0_f32, |largest, &x| if x.abs() > largest.abs() { x } else { largest });
    (largest.abs() >= ZERO_BELOW).then_some(largest)
}

/// Sums for the best scale of whole numbers `q` that stand for `x`: of `w x q` and of `w q q`, with `w = x x`.
fn sums(x: &[f32], q: impl Iterator<Item = i32>) -> (f32, f32) {
    x.iter().zip(q).fold((0.0, 0.0), |(xq, qq), (&x, q)| {
        let (w, q) = (x * x, q as f32);
        (xq + w * x * q, qq + w * q * q)
    })
}

/// Whole numbers from `-half` to `half - 1` and their scale, the best of 19 tried; `q` gets them with `half` added.
pub(super) fn scale(half: i32, x: &[f32], q: &mut [u8]) -> f32 {
    let Some(max) = largest(x) else {
        q.fill(0);
        return 0.0;
    };
    let quantized = |inverse: f32, x: f32| nearest(inverse * x).clamp(-half, half - 1);
    let put = |q: &mut [u8], inverse: f32| q.iter_mut().zip(x).for_each(|(q, &x)| *q = (quantized(inverse, x) + half) as u8);
    let inverse = -half as f32 / max;
    put(q, inverse);
    let (xq, qq) = sums(x, x.iter().map(|&x| quantized(inverse, x)));
    let mut scale = if qq == 0.0 { 0.0 } else { xq / qq };
    let mut best = scale * xq;
    for step in (-9..=9).filter(|&step| step != 0) {
        let inverse = -(half as f32 + 0.1 * step as f32) / max;
        let (xq, qq) = sums(x, x.iter().map(|&x| quantized(inverse, x)));
        if qq > 0.0 && xq * xq > best * qq {
            put(q, inverse);
            scale = xq / qq;
            best = scale * xq;
        }
    }
    scale
}

/// Whole numbers from `-half` to `half - 1` and their scale, improved one at a time; `q` gets them with `half` added.
pub(super) fn scale_by_turns(half: i32, x: &[f32], q: &mut [u8]) -> f32 {
    let Some(max) = largest(x) else {
        q.fill(0);
        return 0.0;
    };
    let limited = |x: f32| nearest(x).clamp(-half, half - 1);
    let inverse = -half as f32 / max;
    let put = |l: i32| (l + half) as u8;
    q.iter_mut().zip(x).for_each(|(q, &x)| *q = put(limited(inverse * x)));
    let (mut xq, mut qq) = sums(x, q.iter().map(|&q| i32::from(q) - half));
    for _ in 0..5 {
        let mut changed = false;
        for (q, &x) in q.iter_mut().zip(x) {
            let (w, old) = (x * x, i32::from(*q) - half);
            let mut without = xq - w * x * old as f32;
            if without <= 0.0 {
                continue;
            }
            let mut squares = qq - w * old as f32 * old as f32;
            let new = limited(x * squares / without);
            if new == old {
                continue;
            }
            without += w * x * new as f32;
            squares += w * new as f32 * new as f32;
            if squares > 0.0 && without * without * qq > xq * xq * squares {
                *q = put(new);
                (xq, qq) = (without, squares);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    if qq > 0.0 { xq / qq } else { 0.0 }
}

/// How a scale and a minimum are searched for.
pub(super) struct Steps {
    /// The largest whole number.
    pub(super) most: i32,
    /// What is added to it first, and at each further step.
    pub(super) first: f32,
    pub(super) step: f32,
    /// How many steps there are after the first.
    pub(super) n: usize,
    /// Whether magnitudes of errors count, not their squares.
    pub(super) magnitudes: bool,
}

/// Whole numbers from 0 to `steps.most`, their scale, and what is to be taken away from every weight: not negative.
pub(super) fn scale_min(steps: &Steps, x: &[f32], weights: &[f32], q: &mut [u8]) -> (f32, f32) {
    /// Weights in the largest group.
    const GROUP: usize = 32;
    let (mut min, mut max) = (x[0], x[0]);
    let (mut sum_w, mut sum_x) = (weights[0], weights[0] * x[0]);
    for (&x, &w) in x[1..].iter().zip(&weights[1..]) {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
        sum_w += w;
        sum_x += w * x;
    }
    min = if min > 0.0 { 0.0 } else { min };
    if max == min {
        q.fill(0);
        return (0.0, -min);
    }
    let quantized = |inverse: f32, min: f32, x: f32| nearest(inverse * (x - min)).clamp(0, steps.most) as u8;
    let error = |q: &[u8], scale: f32, min: f32| {
        q.iter().zip(x).zip(weights).fold(0.0_f32, |sum, ((&q, &x), &w)| {
            let difference = scale * f32::from(q) + min - x;
            sum + w * if steps.magnitudes { difference.abs() } else { difference * difference }
        })
    };
    let inverse = steps.most as f32 / (max - min);
    let mut scale = 1.0 / inverse;
    q.iter_mut().zip(x).for_each(|(q, &x)| *q = quantized(inverse, min, x));
    let mut least = error(q, scale, min);
    let mut tried = [0; GROUP];
    let tried = &mut tried[..x.len()];
    for step in 0..=steps.n {
        let inverse = (steps.first + steps.step * step as f32 + steps.most as f32) / (max - min);
        let (mut sum_q, mut sum_qq, mut sum_xq) = (0.0, 0.0, 0.0);
        for ((tried, &x), &w) in tried.iter_mut().zip(x).zip(weights) {
            *tried = quantized(inverse, min, x);
            let q = f32::from(*tried);
            sum_q += w * q;
            sum_qq += w * q * q;
            sum_xq += w * q * x;
        }
        let determinant = sum_w * sum_qq - sum_q * sum_q;
        if determinant > 0.0 {
            let mut this_scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
            let mut this_min = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
            if this_min > 0.0 {
                this_min = 0.0;
                this_scale = sum_xq / sum_qq;
            }
            let this_error = error(tried, this_scale, this_min);
            if this_error < least {
                q.copy_from_slice(tried);
                (least, scale, min) = (this_error, this_scale, this_min);
            }
        }
    }
    (scale, -min)
}
