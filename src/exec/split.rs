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

/// How many tiles a matrix is split into, and how.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Tiles one below the other.
    pub down: usize,
    /// Tiles side by side.
    pub across: usize,
}

/// A row-major matrix in a [`Grid`] of tiles as equal as whole units of rows and columns allow; some are empty if there are
/// fewer units than tiles.
///
/// Part `i` is tile `i % across` of band `i / across`, so that neighbours share rows: a thread that takes the same share of every
/// phase finds the rows that it wrote in its own cache.
#[derive(Debug)]
pub struct Tiles<'a> {
    start: *mut f32,
    m: usize,
    n: usize,
    grid: Grid,
    unit: (usize, usize),
    matrix: PhantomData<&'a mut [f32]>,
}

impl<'a> Tiles<'a> {
    /// Tiles of whole units of `(rows, columns)` of a matrix of `m` rows and `n` columns.
    pub fn new(matrix: &'a mut [f32], (m, n): (usize, usize), grid: Grid, unit: (usize, usize)) -> Self {
        assert_eq!(matrix.len(), m * n, "a matrix of {m} x {n}");
        assert!(grid.down >= 1 && grid.across >= 1 && unit.0 >= 1 && unit.1 >= 1, "{grid:?} of units of {unit:?}");
        Tiles { start: matrix.as_mut_ptr(), m, n, grid, unit, matrix: PhantomData }
    }

    /// Tiles of all rows and `cols` columns.
    pub fn columns(matrix: &'a mut [f32], (m, n): (usize, usize), cols: usize) -> Self {
        Self::new(matrix, (m, n), Grid { down: 1, across: n.div_ceil(cols).max(1) }, (m.max(1), cols))
    }
}

/// Part `i` of `n_parts` of `0 .. len`, in whole units.
fn share(i: usize, n_parts: usize, len: usize, unit: usize) -> Range<usize> {
    let bound = |i: usize| (i * len.div_ceil(unit) / n_parts * unit).min(len);
    bound(i)..bound(i + 1)
}

// SAFETY: it gives out exclusive tiles only.
unsafe impl Sync for Tiles<'_> {}

// SAFETY: tiles of a grid do not overlap.
unsafe impl<'a> Split for Tiles<'a> {
    type Part = TileMut<'a>;

    fn n_parts(&self) -> usize {
        self.grid.down * self.grid.across
    }

    unsafe fn part(&self, i: usize) -> TileMut<'a> {
        assert!(i < self.n_parts());
        let Grid { down, across } = self.grid;
        let (rows, cols) = (share(i / across, down, self.m, self.unit.0), share(i % across, across, self.n, self.unit.1));
        // SAFETY: the grid lies within the matrix; exclusive by the contract of `part`.
        unsafe { TileMut::part(self.start, self.n, rows, cols) }
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

/// Splittings whose parts fall into as many bands each: the first band of all of them one behind the other, then the next.
#[derive(Debug)]
pub struct Chain<S, const N: usize> {
    members: [S; N],
    bands: usize,
}

impl<S: Split, const N: usize> Chain<S, N> {
    /// A chain of `members`.
    ///
    /// # Panics
    /// If the parts of a member do not make `bands` equal bands.
    pub fn new(members: [S; N], bands: usize) -> Self {
        assert!(
            members.iter().all(|s| s.n_parts().is_multiple_of(bands)),
            "{bands} bands of {:?} parts",
            members.each_ref().map(S::n_parts)
        );
        Chain { members, bands }
    }
}

// SAFETY: each part is a part of one of the members, which do not overlap among themselves.
unsafe impl<S: Split, const N: usize> Split for Chain<S, N> {
    type Part = (usize, S::Part); // member, part

    fn n_parts(&self) -> usize {
        self.members.iter().map(Split::n_parts).sum()
    }

    unsafe fn part(&self, i: usize) -> Self::Part {
        let of_band = self.n_parts() / self.bands;
        let (band, mut i) = (i / of_band, i % of_band);
        for (member, s) in self.members.iter().enumerate() {
            let n = s.n_parts() / self.bands;
            if i < n {
                // SAFETY: the caller's promise for `i` is the member's for its own number.
                return (member, unsafe { s.part(band * n + i) });
            }
            i -= n;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part of a chain once, band by band.
    #[test]
    fn a_chain_goes_by_bands() {
        let (mut a, mut b) = ([0.0; 4 * 6], [0.0; 4 * 2]);
        let tiles = [
            Tiles::new(&mut a, (4, 6), Grid { down: 2, across: 3 }, (1, 1)),
            Tiles::new(&mut b, (4, 2), Grid { down: 2, across: 1 }, (1, 1)),
        ];
        let chain = Chain::new(tiles, 2);
        let parts: Vec<_> = (0..chain.n_parts())
            .map(|i| {
                // SAFETY: each part is taken once.
                let (member, tile) = unsafe { chain.part(i) };
                (member, tile.tokens(), tile.cols())
            })
            .collect();
        let band = |rows: Range<usize>| [(0, 0..2), (0, 2..4), (0, 4..6), (1, 0..2)].map(|(member, cols)| (member, rows.clone(), cols));
        assert_eq!(parts, [band(0..2), band(2..4)].concat());
    }

    #[test]
    #[should_panic(expected = "2 bands of [3, 2] parts")]
    fn bands_are_equal() {
        let _ = Chain::new([Nothing(3), Nothing(2)], 2);
    }
}
