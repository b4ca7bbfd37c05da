//! A team of threads that runs the phases of a forward pass.
//!
//! Invariant: a task is run by exactly one thread, and [`Pass::run`] returns only when every task is done. Each thread has a
//! share of neighbouring tasks, which it claims in order, so that what they read streams by; when its own is used up it
//! claims from the shares of others. So a thread that the system has put aside holds up at most the task it is in: one that
//! has not claimed any is not waited for.
#![allow(unsafe_code, reason = "lends a borrowed closure to the threads of the pool; the wait in `run` bounds the borrow")]

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bell::Bell;
use super::cores::usable_threads;
use super::split::Split;
use crate::{Error, Result};

/// A task of a phase: `(thread, task)`.
type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Threads that work together: `n - 1` of a pool, and the one that calls.
#[derive(Debug)]
pub struct Team {
    shared: Arc<Shared>,
    n_threads: usize,
    pass: Mutex<()>,
}

#[derive(Debug)]
struct Shared {
    phase: UnsafeCell<Option<Phase>>,
    shares: Box<[Share]>, // one for each thread
    done: AtomicUsize,    // tasks finished
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    work: Bell,     // rung when shares or `stop` are set
    finished: Bell, // rung when `done` reaches the number of tasks
}

/// The tasks of one thread that are not yet claimed, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Share {
    left: AtomicUsize,
}

/// Where the share of `thread` ends; it starts where that of the thread before ends.
fn share_end(thread: usize, n_threads: usize, n_tasks: usize) -> usize {
    (thread + 1) * n_tasks / n_threads
}

/// The closure of a phase, its lifetime erased, and how many tasks it has.
#[derive(Clone, Copy, Debug)]
struct Phase {
    task: *const Task<'static>,
    n_tasks: usize,
}

// SAFETY: `phase` is written only in `Pass::run`, under the pass lock, when every task of the phase before is done. It is
// read only by a thread that has claimed a task and not yet counted it as done; the claim reads a share, which was stored
// after the write. The closure itself is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

impl Shared {
    fn new(n_threads: usize) -> Self {
        Shared {
            phase: UnsafeCell::new(None),
            shares: (0..n_threads).map(|_| Share::default()).collect(),
            done: AtomicUsize::new(0),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            work: Bell::default(),
            finished: Bell::default(),
        }
    }

    /// Claims a task, of the thread's own share first: the share and how many were left in it.
    fn claim(&self, thread: usize) -> Option<(usize, usize)> {
        let n = self.shares.len();
        (0..n).map(|i| (thread + i) % n).find_map(|share| {
            let left = &self.shares[share].left;
            // Looked at first: a share that is used up is not written to.
            if left.load(SeqCst) == 0 {
                return None;
            }
            left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).ok().map(|left| (share, left))
        })
    }

    /// Whether a task is left to claim.
    fn has_work(&self) -> bool {
        self.shares.iter().any(|share| share.left.load(SeqCst) > 0)
    }

    /// Claims a task and runs it; false if none is left.
    fn help(&self, thread: usize) -> bool {
        let Some((share, left)) = self.claim(thread) else {
            return false;
        };
        // SAFETY: a task is claimed, so the phase stands until it is counted as done (see `Sync` above).
        let Phase { task, n_tasks } = unsafe { (*self.phase.get()).expect("a claimed task has its phase") };
        // SAFETY: `Pass::run` keeps the closure alive until all tasks are done.
        let task = unsafe { &*task };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(thread, share_end(share, self.shares.len(), n_tasks) - left))) {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        if self.done.fetch_add(1, SeqCst) + 1 == n_tasks {
            self.finished.ring();
        }
        true
    }

    /// The life of a thread of the pool.
    fn work(&self, thread: usize) {
        while !self.stop.load(SeqCst) {
            if !self.help(thread) {
                self.work.wait(|| self.has_work() || self.stop.load(SeqCst));
            }
        }
    }
}

impl Team {
    /// A team of `n_threads`; 0 stands for [`usable_threads`].
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn new(n_threads: usize) -> Result<Self> {
        let n_threads = if n_threads == 0 { usable_threads() } else { n_threads };
        if n_threads > MAX_THREADS {
            return Err(Error::invalid("threads", format!("{n_threads} is more than the {MAX_THREADS} that rml can use")));
        }
        let shared = Arc::new(Shared::new(n_threads));
        if n_threads > 1 {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(n_threads - 1)
                .thread_name(|i| format!("rml-{}", i + 1))
                .build()
                .map_err(|e| Error::invalid("threads", format!("cannot start {n_threads} threads: {e}; use fewer with --threads")))?;
            let at_work = shared.clone();
            // The pool is entered once for all: its threads end with the team, when `stop` is set.
            pool.spawn_broadcast(move |thread| at_work.work(thread.index() + 1));
        }
        Ok(Team { shared, n_threads, pass: Mutex::new(()) })
    }

    /// Threads in the team, the caller included.
    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Takes the team for a pass. A second caller waits until the first drops its pass.
    pub fn pass(&self) -> Pass<'_> {
        Pass { team: self, _turn: self.pass.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.work.ring();
    }
}

/// The right to run phases on a team.
#[derive(Debug)]
pub struct Pass<'t> {
    team: &'t Team,
    _turn: MutexGuard<'t, ()>,
}

impl Pass<'_> {
    /// Threads in the team.
    pub fn n_threads(&self) -> usize {
        self.team.n_threads
    }

    /// Runs `task(thread, i)` for every `i < n_tasks`, spread over the team. Calls on one `thread` never overlap.
    ///
    /// A panic in a task is raised here after all tasks ended.
    pub fn run(&mut self, n_tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        if n_tasks <= 1 || self.team.n_threads == 1 {
            (0..n_tasks).for_each(|i| task(0, i));
            return;
        }
        let shared = &*self.team.shared;
        // SAFETY: only the lifetime changes. The closure is used by claimed tasks alone, all of which are done below.
        let task: *const Task<'static> = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: this pass holds the lock and every task of the phase before is done, so nobody reads `phase`.
        unsafe { *shared.phase.get() = Some(Phase { task, n_tasks }) };
        shared.done.store(0, SeqCst);
        let mut start = 0;
        for (thread, share) in shared.shares.iter().enumerate() {
            let end = share_end(thread, shared.shares.len(), n_tasks);
            share.left.store(end - start, SeqCst);
            start = end;
        }
        shared.work.ring();
        while shared.help(0) {}
        shared.finished.wait(|| shared.done.load(SeqCst) == n_tasks);
        if let Some(panic) = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }

    /// Runs `task(thread, i, part)` for every part of `whole`.
    pub fn each<S: Split>(&mut self, whole: S, task: impl Fn(usize, usize, S::Part) + Sync) {
        self.run(whole.n_parts(), &|thread, i| {
            // SAFETY: `run` runs every task once, so part `i` is taken once.
            task(thread, i, unsafe { whole.part(i) })
        });
    }

    /// As [`each`](Self::each), with what belongs to the thread: `own` has one element a thread.
    pub fn each_with<T: Send, S: Split>(&mut self, own: &mut [T], whole: S, task: impl Fn(&mut T, usize, S::Part) + Sync) {
        assert!(own.len() >= self.team.n_threads, "one for each thread");
        let own = super::split::Chunks::new(own, 1);
        self.run(whole.n_parts(), &|thread, i| {
            // SAFETY: calls on one thread never overlap, and each thread has its own element; part `i` is taken once.
            let (own, part) = unsafe { (own.part(thread), whole.part(i)) };
            task(&mut own[0], i, part)
        });
    }
}

/// More threads than any machine this is for has.
const MAX_THREADS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::split::Chunks;
    use super::*;

    #[test]
    fn every_task_runs_once_on_any_number_of_threads() {
        for n_threads in 1..=4 {
            let team = Team::new(n_threads).unwrap();
            for n_tasks in [0, 1, 2, 3, 17, 1000] {
                let mut counts = vec![0_u32; n_tasks];
                for _ in 0..50 {
                    team.pass().each(Chunks::new(&mut counts, 1), |_, _, part| part[0] += 1);
                }
                assert!(counts.iter().all(|&c| c == 50), "{n_threads} threads, {n_tasks} tasks: {counts:?}");
            }
        }
    }

    #[test]
    fn threads_own_their_scratch() {
        let team = Team::new(3).unwrap();
        let mut sums = [0_usize; 3];
        let mut out = vec![0_u8; 4096];
        for _ in 0..100 {
            team.pass().each_with(&mut sums, Chunks::new(&mut out, 16), |sum, i, _| *sum += i);
        }
        assert_eq!(sums.iter().sum::<usize>(), 100 * (0..256).sum::<usize>());
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        let team = Team::new(3).unwrap();
        let hits = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            team.pass().run(64, &|_, i| {
                hits.fetch_add(1, SeqCst);
                assert!(i != 40, "planted");
            });
        }));
        assert!(caught.is_err());
        assert_eq!(hits.load(SeqCst), 64);
        team.pass().run(8, &|_, _| _ = hits.fetch_add(1, SeqCst));
        assert_eq!(hits.load(SeqCst), 72);
    }

    #[test]
    fn sleeping_threads_wake_up() {
        let team = Team::new(2).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let seen = Mutex::new([false; 2]);
            // Each task waits for the other, so it takes both threads.
            team.pass().run(2, &|thread, _| {
                seen.lock().unwrap()[thread] = true;
                while seen.lock().unwrap().contains(&false) {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn passes_of_several_callers_take_turns() {
        let team = Team::new(2).unwrap();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..200 {
                        let mut out = [0_usize; 32];
                        team.pass().each(Chunks::new(&mut out, 1), |_, i, part| part[0] = i);
                        assert!(out.iter().enumerate().all(|(i, &x)| i == x));
                    }
                });
            }
        });
    }
}
