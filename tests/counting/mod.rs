//! The allocator of a test binary, which counts.
#![allow(unsafe_code, reason = "an allocator is unsafe code")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// Allocations so far, on all threads: a binary that counts has one test.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.load(SeqCst)
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(p, layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, n: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(p, layout, n) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
