//! The step arena: every buffer of a forward pass, reset at the start of each.
#![allow(unsafe_code, reason = "cuts one buffer into slices that do not overlap")]

use std::cell::Cell;
use std::ptr::NonNull;

use super::memory::{Block, HUGE_PAGE, Pages, zeroed};
use crate::Result;

/// Alignment of every slice: a cache line, and the widest vector.
const ALIGN: usize = 64;

/// Numbers that any bytes are a value of.
///
/// # Safety
/// Every pattern of bits must be a value, zero included, and the alignment at most 64.
pub unsafe trait Plain: Copy + Default {}
// SAFETY: any bits are a value.
unsafe impl Plain for f32 {}
// SAFETY: any bits are a value.
unsafe impl Plain for i8 {}
// SAFETY: any bits are a value.
unsafe impl Plain for u8 {}
// SAFETY: any bits are a value.
unsafe impl Plain for i16 {}
// SAFETY: any bits are a value.
unsafe impl Plain for u32 {}

/// A buffer that is cut from the front and emptied as a whole.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    bytes: usize,
    used: Cell<usize>,
    _block: Option<Block>, // what `start` points into; none if the arena only measures
}

// SAFETY: the buffer is owned; `Cell` forbids sharing, not moving.
unsafe impl Send for Arena {}

impl Arena {
    /// An arena that holds whatever `plan` takes from it. `plan` is run on an arena that only measures: its slices are empty.
    ///
    /// # Errors
    /// If memory is short.
    pub fn for_plan<R>(plan: impl FnOnce(&Arena) -> R) -> Result<Self> {
        let measuring = Arena { start: NonNull::dangling(), bytes: 0, used: Cell::new(0), _block: None };
        plan(&measuring);
        let bytes = measuring.used.get().max(ALIGN);
        // Prefill writes all of it, in rows that lie far apart.
        let pages = if bytes >= HUGE_PAGE { Pages::Huge } else { Pages::Small };
        let mut block = zeroed(bytes, "buffers of a step", pages)?;
        let start = NonNull::new(block.as_mut_ptr()).expect("a block has an address");
        Ok(Arena { start, bytes, used: Cell::new(0), _block: Some(block) })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Empties the arena. The slices taken before are gone, as the exclusive borrow proves.
    pub fn reset(&mut self) -> &Arena {
        self.used.set(0);
        self
    }

    /// The next `n` numbers. What they are is left from earlier steps.
    ///
    /// # Panics
    /// If the plan that sized the arena took less.
    #[allow(clippy::mut_from_ref, reason = "each call cuts a fresh piece")]
    pub fn slice<T: Plain>(&self, n: usize) -> &mut [T] {
        let Some(start) = self.cut(n * size_of::<T>()) else { return &mut [] };
        // SAFETY: the piece is within the buffer, aligned, initialized (zeroed at first, plain numbers since), and cut once
        // until `reset`, which takes the arena exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.cast().as_ptr(), n) }
    }
}

impl Arena {
    /// `n` values made by `make`, which may take from the arena themselves.
    ///
    /// # Panics
    /// As [`slice`](Self::slice).
    #[allow(clippy::mut_from_ref, reason = "each call cuts a fresh piece")]
    pub fn collect<'a, T: 'a>(&'a self, n: usize, mut make: impl FnMut() -> T) -> &'a mut [T] {
        const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= ALIGN, "the arena drops nothing") }
        let start = self.cut(n * size_of::<T>());
        for i in 0..n {
            let value = make();
            if let Some(start) = start {
                // SAFETY: within the piece, which is aligned for `T` and this call's alone.
                unsafe { start.cast::<T>().add(i).write(value) };
            }
        }
        // SAFETY: the piece was just filled with `n` values and is cut once until `reset`.
        start.map_or(&mut [], |start| unsafe { std::slice::from_raw_parts_mut(start.cast().as_ptr(), n) })
    }

    /// The next `bytes` bytes, or `None` if the arena only measures.
    fn cut(&self, bytes: usize) -> Option<NonNull<u8>> {
        let start = self.used.get();
        self.used.set((start + bytes).next_multiple_of(ALIGN));
        if self.bytes == 0 {
            return None;
        }
        assert!(self.used.get() <= self.bytes, "the arena was planned for less");
        // SAFETY: within the buffer by the assertion.
        Some(unsafe { self.start.add(start) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_aligned_apart_and_come_back_after_reset() {
        let plan = |a: &Arena| {
            a.slice::<f32>(3);
            a.slice::<i8>(65);
        };
        let mut arena = Arena::for_plan(plan).unwrap();
        for _ in 0..2 {
            let step = arena.reset();
            let (a, b) = (step.slice::<f32>(3), step.slice::<i8>(65));
            a.fill(1.0);
            b.fill(2);
            assert!(a.iter().all(|&x| x == 1.0) && b.len() == 65);
            assert_eq!((a.as_ptr() as usize % ALIGN, b.as_ptr() as usize % ALIGN), (0, 0));
        }
    }

    #[test]
    #[should_panic(expected = "planned for less")]
    fn more_than_planned_is_a_panic() {
        let arena = Arena::for_plan(|a| {
            a.slice::<f32>(3);
        })
        .unwrap();
        arena.slice::<f32>(40);
    }
}
