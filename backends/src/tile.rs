//! A rectangle of a row-major matrix, to be written by one thread.

use std::marker::PhantomData;
use std::ops::Range;

/// Columns `cols` of some rows of a matrix whose rows are `stride` long.
///
/// Tiles of one matrix that do not overlap may be written by different threads at once.
#[derive(Debug)]
pub struct TileMut<'a> {
    start: *mut f32, // the first row, column cols.start
    stride: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a tile is an exclusive borrow of its cells (the constructors see to it), so it moves between threads as `&mut` does.
unsafe impl Send for TileMut<'_> {}

impl<'a> TileMut<'a> {
    /// The whole of a matrix of `m` rows and `n` columns.
    ///
    /// # Panics
    /// If `matrix` is not `m * n` long.
    pub fn whole(matrix: &'a mut [f32], m: usize, n: usize) -> Self {
        assert_eq!(matrix.len(), m * n, "a tile of {m} x {n}");
        TileMut { start: matrix.as_mut_ptr(), stride: n, rows: 0..m, cols: 0..n, matrix: PhantomData }
    }

    /// Columns `cols` of a matrix of `m` rows that are `stride` long.
    ///
    /// # Panics
    /// If `matrix` is not `m * stride` long, or `cols` are not within a row.
    pub fn columns(matrix: &'a mut [f32], m: usize, stride: usize, cols: Range<usize>) -> Self {
        assert!(cols.start <= cols.end && cols.end <= stride, "columns {cols:?} of rows of {stride}");
        let mut tile = Self::whole(matrix, m, stride);
        tile.start = tile.start.wrapping_add(cols.start);
        tile.cols = cols;
        tile
    }

    /// Rows `rows`, columns `cols` of a matrix that starts at `matrix` and whose rows are `stride` long.
    ///
    /// # Safety
    /// The cells must be valid for `'a`, and nothing else may read or write them while the tile lives.
    pub unsafe fn part(matrix: *mut f32, stride: usize, rows: Range<usize>, cols: Range<usize>) -> Self {
        debug_assert!(cols.end <= stride || rows.len() <= 1);
        // A tile of no cells may start behind the matrix.
        let start = matrix.wrapping_add(rows.start * stride + cols.start);
        TileMut { start, stride, rows, cols, matrix: PhantomData }
    }

    /// Rows (tokens).
    pub fn m(&self) -> usize {
        self.rows.len()
    }

    /// Which rows of the matrix this is.
    pub fn tokens(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Which columns of the matrix this is: for a product, the rows of the weights.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// Distance of two rows, in numbers.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Address of row 0, for kernels that write whole vectors.
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.start
    }

    /// Row `i`. (cols)
    pub fn row(&mut self, i: usize) -> &mut [f32] {
        assert!(i < self.m(), "row {i} of a tile of {}", self.m());
        // SAFETY: within the tile by the assertion; exclusive as the tile is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.stride), self.cols.len()) }
    }

    /// Some of the rows.
    pub fn rows(&mut self, rows: Range<usize>) -> TileMut<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.m(), "rows {rows:?} of a tile of {}", self.m());
        // A tile of no rows may start behind the matrix.
        let start = self.start.wrapping_add(rows.start * self.stride);
        let rows = self.rows.start + rows.start..self.rows.start + rows.end;
        TileMut { start, stride: self.stride, rows, cols: self.cols.clone(), matrix: PhantomData }
    }

    /// Row `i` to write and row `j` to read. (cols)
    pub fn two_rows(&mut self, i: usize, j: usize) -> (&mut [f32], &[f32]) {
        assert!(i < self.m() && j < self.m() && i != j, "rows {i} and {j} of a tile of {}", self.m());
        let n = self.cols.len();
        // SAFETY: both lie within the tile and do not overlap, as they are different rows and `n` is at most `stride`;
        // exclusive as the tile is borrowed exclusively.
        unsafe {
            let (i, j) = (self.start.add(i * self.stride), self.start.add(j * self.stride));
            (std::slice::from_raw_parts_mut(i, n), std::slice::from_raw_parts(j, n))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_are_within_the_tile() {
        let mut matrix: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut tile = TileMut::columns(&mut matrix, 3, 4, 1..3);
        for (i, j) in [(0, 2), (2, 0)] {
            let (to, from) = tile.two_rows(i, j);
            assert_eq!(from, [(4 * j + 1) as f32, (4 * j + 2) as f32]);
            to.copy_from_slice(&[(4 * i + 1) as f32, (4 * i + 2) as f32]);
        }
        assert!(matrix.iter().enumerate().all(|(i, &x)| x == i as f32), "{matrix:?}");
    }

    #[test]
    fn some_rows_are_those_of_the_tile() {
        let mut matrix: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut tile = TileMut::columns(&mut matrix, 3, 4, 1..3);
        let mut some = tile.rows(1..3);
        assert_eq!((some.m(), some.tokens(), some.cols(), some.row(1).to_vec()), (2, 1..3, 1..3, vec![9.0, 10.0]));
        assert_eq!(tile.rows(3..3).m(), 0);
    }

    #[test]
    #[should_panic(expected = "rows 1 and 1")]
    fn one_row_is_not_two() {
        TileMut::whole(&mut [0.0; 6], 3, 2).two_rows(1, 1);
    }
}
