//! The points that the IQ formats choose from: four or eight weights at a time.
//!
//! `grids.bin` holds them as `fixtures/make_grids.py` takes them out of the Python package `gguf`, which has them from
//! `ggml-common.h` of llama.cpp (MIT licence, Copyright (c) 2023-2026 The ggml authors). They were found by search over real
//! models, so no rule makes them.

/// 16 bits a point, little-endian.
static POINTS: &[u8; 2 * 4608] = include_bytes!("grids.bin");

/// Where the points of a format stand, and what their numbers mean.
pub(super) struct Grid<const VALUES: usize> {
    first: usize,
    n: usize,
    values: [i8; VALUES],
}

const IQ2_VALUES: [i8; 4] = [8, 25, 43, 0]; // the last is not used
pub(super) static IQ2_XXS: Grid<4> = Grid { first: 0, n: 256, values: IQ2_VALUES };
pub(super) static IQ2_XS: Grid<4> = Grid { first: 256, n: 512, values: IQ2_VALUES };
pub(super) static IQ2_S: Grid<4> = Grid { first: 768, n: 1024, values: IQ2_VALUES };
pub(super) static IQ1: Grid<4> = Grid { first: 1792, n: 2048, values: [-1, 0, 1, 0] };
pub(super) static IQ3_XXS: Grid<8> = Grid { first: 3840, n: 256, values: [4, 12, 20, 28, 36, 44, 52, 62] };
pub(super) static IQ3_S: Grid<8> = Grid { first: 4096, n: 512, values: [1, 3, 5, 7, 9, 11, 13, 15] };

impl<const VALUES: usize> Grid<VALUES> {
    /// Point `i`: eight numbers of two bits where there are four values, else four of four bits.
    pub(super) fn point(&self, i: usize, out: &mut [i8]) {
        assert!(i < self.n, "a point of {}", self.n);
        let at = 2 * (self.first + i);
        let bits = u16::from_le_bytes([POINTS[at], POINTS[at + 1]]);
        let width = if VALUES == 4 { 2 } else { 4 };
        for (j, out) in out.iter_mut().enumerate() {
            *out = self.values[usize::from(bits >> (width * j)) % VALUES];
        }
    }
}

/// The signs of eight weights from seven bits: an even number of them is negative.
pub(super) fn even_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() as u8 & 1) << 7)
}

/// Negates the weights whose bit is set.
pub(super) fn sign(weights: &mut [i8], signs: u8) {
    for (j, w) in weights.iter_mut().enumerate() {
        if signs >> j & 1 == 1 {
            *w = -*w;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of every point has a value of its own, and no point stands twice in a grid.
    #[test]
    fn points_are_distinct_and_of_the_values() {
        fn check<const VALUES: usize>(grid: &Grid<VALUES>, used: usize, len: usize) {
            let mut points = Vec::new();
            for i in 0..grid.n {
                let at = 2 * (grid.first + i);
                let bits = u16::from_le_bytes([POINTS[at], POINTS[at + 1]]);
                let width = 16 / len;
                assert!((0..len).all(|j| usize::from(bits >> (width * j)) & ((1 << width) - 1) < used), "point {i}: {bits:#x}");
                points.push(bits);
            }
            points.sort_unstable();
            points.dedup();
            assert_eq!(points.len(), grid.n);
        }
        for grid in [&IQ2_XXS, &IQ2_XS, &IQ2_S, &IQ1] {
            check(grid, 3, 8);
        }
        for grid in [&IQ3_XXS, &IQ3_S] {
            check(grid, 8, 4);
        }
        assert_eq!(IQ3_S.first + IQ3_S.n, POINTS.len() / 2);
    }

    #[test]
    fn signs_are_even() {
        assert_eq!([0, 1, 2, 3, 127].map(even_signs), [0, 0x81, 0x82, 3, 0xff]);
        assert!((0..128).all(|s| even_signs(s).count_ones().is_multiple_of(2)));
    }
}
