//! Waiting for another thread: spin briefly, then give the core away, then sleep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// How long a waiting thread looks before it gives the core away: some tens of microseconds, longer than it takes to
/// sample a token, so that decoding never sleeps.
const SPINS: u32 = 2_000;
/// How often it gives the core away before it sleeps.
const YIELDS: u32 = 100;

/// What sleeping threads are woken by.
#[derive(Debug, Default)]
pub(super) struct Bell {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    condvar: Condvar,
}

impl Bell {
    /// Returns once `ready` says so. `ready` must load what the ringer stores with `SeqCst`.
    pub(super) fn wait(&self, ready: impl Fn() -> bool) {
        for _ in 0..SPINS {
            if ready() {
                return;
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if ready() {
                return;
            }
            thread::yield_now();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !ready() {
            guard = self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the sleepers, after a `SeqCst` store that makes `ready` true.
    pub(super) fn ring(&self) {
        // Either this load sees the sleeper, or the sleeper, which counts itself before it looks, sees the store.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.condvar.notify_all();
        }
    }
}
