//! Ways of splitting what a phase writes into parts that do not overlap, one for each task.
#![allow(unsafe_code, reason = "hands out parts of an exclusive borrow through a shared reference; the trait's contract keeps them apart")]

use std::marker::PhantomData;
use std::ops::Range;

use rml_backends::TileMut;

/// Something that falls into parts which may be written by different threads at once.
///
/// # Safety
/// Parts with different numbers must not overlap.
pub unsafe trait Split: Sync {
    /// An exclusive part.
    type Part;

    /// How many parts there are.
    fn n_parts(&self) -> usize;

    /// Part `i`.
    ///
    /// # Safety
    /// A part may be alive once at a time, and not after the borrow that the splitting was made from.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

/// A slice in pieces of `len`, the last one shorter.
#[derive(Debug)]
pub struct Chunks<'a, T> {
    start: *mut T,
    n: usize,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

impl<'a, T> Chunks<'a, T> {
    /// Pieces of `len >= 1` of `slice`.
    pub fn new(slice: &'a mut [T], len: usize) -> Self {
        assert!(len >= 1, "pieces of at least one");
        Chunks { start: slice.as_mut_ptr(), n: slice.len(), len, slice: PhantomData }
    }
}

// SAFETY: it gives out exclusive pieces only, as `&mut [T]` would be moved between threads.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

// SAFETY: piece `i` is `[i * len, (i + 1) * len)`.
unsafe impl<'a, T: Send> Split for Chunks<'a, T> {
    type Part = &'a mut [T];

    fn n_parts(&self) -> usize {
        self.n.div_ceil(self.len)
    }

    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        assert!(i < self.n_parts());
        let start = i * self.len;
        // SAFETY: within the slice by the assertion; exclusive by the contract of `part`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), self.len.min(self.n - start)) }
    }
}

/// A row-major matrix in tiles of `rows` by `cols`, numbered along the rows of tiles first.
///
/// Part `i` covers columns `i / tiles_down` and rows `i % tiles_down`, so that neighbours share columns.
#[derive(Debug)]
pub struct Tiles<'a> {
    start: *mut f32,
    m: usize,
    n: usize,
    rows: usize,
    cols: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

impl<'a> Tiles<'a> {
    /// Tiles of `rows` by `cols`, both at least 1, of a matrix of `m` rows and `n` columns.
    pub fn new(matrix: &'a mut [f32], (m, n): (usize, usize), (rows, cols): (usize, usize)) -> Self {
        assert_eq!(matrix.len(), m * n, "a matrix of {m} x {n}");
        assert!(rows >= 1 && cols >= 1, "tiles of at least one number");
        Tiles { start: matrix.as_mut_ptr(), m, n, rows, cols, matrix: PhantomData }
    }

    /// Tiles of `cols` columns and all rows.
    pub fn columns(matrix: &'a mut [f32], (m, n): (usize, usize), cols: usize) -> Self {
        Self::new(matrix, (m, n), (m.max(1), cols))
    }
}

// SAFETY: it gives out exclusive tiles only.
unsafe impl Sync for Tiles<'_> {}

// SAFETY: tiles of a grid do not overlap.
unsafe impl<'a> Split for Tiles<'a> {
    type Part = TileMut<'a>;

    fn n_parts(&self) -> usize {
        self.m.div_ceil(self.rows) * self.n.div_ceil(self.cols)
    }

    unsafe fn part(&self, i: usize) -> TileMut<'a> {
        assert!(i < self.n_parts());
        let down = self.m.div_ceil(self.rows);
        let (c, r) = (i / down * self.cols, i % down * self.rows);
        let span = |start: usize, len: usize, end: usize| -> Range<usize> { start..end.min(start + len) };
        // SAFETY: the grid lies within the matrix; exclusive by the contract of `part`.
        unsafe { TileMut::part(self.start, self.n, span(r, self.rows, self.m), span(c, self.cols, self.n)) }
    }
}

/// Nothing to write, in any number of parts: for what is split with something else.
#[derive(Clone, Copy, Debug)]
pub struct Nothing(pub usize);

// SAFETY: there is nothing to overlap.
unsafe impl Split for Nothing {
    type Part = ();

    fn n_parts(&self) -> usize {
        self.0
    }

    unsafe fn part(&self, _: usize) {}
}

/// Splittings one behind the other: the parts of the first, then those of the next.
#[derive(Debug)]
pub struct Chain<S, const N: usize>(pub [S; N]);

// SAFETY: each part is a part of one of the members, which do not overlap among themselves.
unsafe impl<S: Split, const N: usize> Split for Chain<S, N> {
    type Part = (usize, usize, S::Part); // member, number within it, part

    fn n_parts(&self) -> usize {
        self.0.iter().map(Split::n_parts).sum()
    }

    unsafe fn part(&self, mut i: usize) -> Self::Part {
        for (member, s) in self.0.iter().enumerate() {
            if i < s.n_parts() {
                // SAFETY: the caller's promise for `i` is the member's for its own number.
                return (member, i, unsafe { s.part(i) });
            }
            i -= s.n_parts();
        }
        unreachable!("a part beyond the last")
    }
}

macro_rules! split_tuple {
    ($($name:ident $i:tt),+) => {
        // SAFETY: parts with different numbers differ in every member.
        unsafe impl<$($name: Split),+> Split for ($($name,)+) {
            type Part = ($($name::Part,)+);

            fn n_parts(&self) -> usize {
                let n = self.0.n_parts();
                $(assert_eq!(self.$i.n_parts(), n, "split alike");)+
                n
            }

            unsafe fn part(&self, i: usize) -> Self::Part {
                // SAFETY: the caller's promise holds for every member.
                unsafe { ($(self.$i.part(i),)+) }
            }
        }
    };
}
split_tuple!(A 0, B 1);
split_tuple!(A 0, B 1, C 2);
