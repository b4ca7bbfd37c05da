//! Sixteen virtual lanes: the order in which every f32 sum over a row is taken.
//!
//! One 512-bit register, two of 256 bits or four of 128 hold them, so that each backend can add in the same order.

/// Number of lanes.
pub const LANES: usize = 16;

/// The sum of the lanes by halving: `l[i] + l[i + 8]`, then `+ 4`, `+ 2`, `+ 1`.
pub fn reduce(mut l: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            l[i] += l[i + width];
        }
        width /= 2;
    }
    l[0]
}

/// `sum x[i] * y[i]`: element `i` in lane `i % 16`, fused multiply-add, then [`reduce`].
///
/// Lanes beyond the end of a row are left as they are.
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut acc = [0.0_f32; LANES];
    for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
        for ((acc, &x), &y) in acc.iter_mut().zip(x).zip(y) {
            *acc = x.mul_add(y, *acc);
        }
    }
    reduce(acc)
}

/// `sum x[i]`: element `i` in lane `i % 16`, added in ascending order from 0, then [`reduce`].
pub fn sum(x: &[f32]) -> f32 {
    let mut acc = [0.0_f32; LANES];
    for x in x.chunks(LANES) {
        for (acc, &x) in acc.iter_mut().zip(x) {
            *acc += x;
        }
    }
    reduce(acc)
}

/// The largest element, NaN passed over; `-inf` if there is none.
pub fn max(x: &[f32]) -> f32 {
    x.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_the_documented_one() {
        let l: [f32; LANES] = std::array::from_fn(|i| (1 << i) as f32);
        assert_eq!(reduce(l), 65535.0);
        // Large lanes that cancel only if lane 0 meets lane 8 first.
        let mut l = [0.0; LANES];
        (l[0], l[8], l[4]) = (1e30, -1e30, 1.0);
        assert_eq!(reduce(l), 1.0);
        (l[0], l[8], l[4], l[12]) = (1e30, 1.0, -1e30, 0.0);
        assert_eq!(reduce(l), 0.0);
    }

    #[test]
    fn tails_leave_lanes_alone() {
        let x: Vec<f32> = (0..19).map(|i| i as f32).collect();
        assert_eq!(sum(&x), 171.0);
        assert_eq!(dot(&x, &x), 2109.0);
        assert_eq!(max(&[f32::NAN, -3.0, -2.0]), -2.0);
    }
}
