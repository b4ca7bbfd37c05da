//! Memory that kernels are examined in: misaligned, with canaries on both sides.

use super::compare::Fault;

/// Canaries on each side.
const GUARD: usize = 80;

/// The NaN that outputs start as and that stands around f32.
pub(super) const CANARY: f32 = f32::from_bits(0x7fc0_dead);

/// A number whose bits can be compared.
pub(super) trait Cell: Copy {
    /// The bits.
    fn bits(self) -> u32;
}

impl Cell for f32 {
    fn bits(self) -> u32 {
        self.to_bits()
    }
}
impl Cell for half::f16 {
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}
impl Cell for i8 {
    fn bits(self) -> u32 {
        self as u32
    }
}
impl Cell for u8 {
    fn bits(self) -> u32 {
        self.into()
    }
}
impl Cell for i16 {
    fn bits(self) -> u32 {
        self as u32
    }
}

/// `len` numbers between canaries.
#[derive(Clone, Debug)]
pub(super) struct Guarded<T> {
    cells: Vec<T>,
    start: usize,
    len: usize,
    canary: T,
}

impl<T: Cell> Guarded<T> {
    /// Numbers that start as the canary, `shift` numbers off the allocation's own alignment.
    pub(super) fn new(len: usize, shift: usize, canary: T) -> Self {
        Guarded { cells: vec![canary; len + 2 * GUARD], start: GUARD + shift % 16, len, canary }
    }

    /// A copy of `numbers`, shifted as in [`Guarded::new`].
    pub(super) fn of(numbers: &[T], shift: usize, canary: T) -> Self {
        let mut guarded = Self::new(numbers.len(), shift, canary);
        guarded.get_mut().copy_from_slice(numbers);
        guarded
    }

    pub(super) fn get(&self) -> &[T] {
        &self.cells[self.start..][..self.len]
    }

    pub(super) fn get_mut(&mut self) -> &mut [T] {
        &mut self.cells[self.start..][..self.len]
    }

    /// A fault if a canary is gone.
    pub(super) fn intact(&self) -> Result<(), Fault> {
        let outside = |i: &usize| *i < self.start || *i >= self.start + self.len;
        match (0..self.cells.len()).filter(outside).find(|&i| self.cells[i].bits() != self.canary.bits()) {
            None => Ok(()),
            Some(i) => Err(Fault::outside(i as isize - self.start as isize, self.len)),
        }
    }
}

/// Bytes aligned to 64.
#[derive(Debug)]
pub(super) struct Aligned {
    cells: Vec<u8>,
    len: usize,
    canary: u8,
}

impl Aligned {
    /// `len` bytes, each `canary`, with as many canaries behind them as fit a register.
    pub(super) fn new(len: usize, canary: u8) -> Self {
        Aligned { cells: vec![canary; len + 3 * 64], len, canary }
    }

    fn start(&self) -> usize {
        self.cells.as_ptr().align_offset(64)
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.cells[self.start()..][..self.len]
    }

    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        let start = self.start();
        &mut self.cells[start..][..self.len]
    }

    /// A fault if a canary is gone.
    pub(super) fn intact(&self) -> Result<(), Fault> {
        let start = self.start();
        let outside = |i: &usize| *i < start || *i >= start + self.len;
        match (0..self.cells.len()).filter(outside).find(|&i| self.cells[i] != self.canary) {
            None => Ok(()),
            Some(i) => Err(Fault::outside(i as isize - start as isize, self.len)),
        }
    }
}
