//! Running kernels: the team of threads, the memory of a step, the choice of backends, and the trace of what ran.

mod arena;
mod bell;
pub mod choice;
mod cores;
mod memory;
mod split;
mod team;
mod trace;

pub use arena::{Arena, Plain};
pub use cores::usable_threads;
pub use memory::{Block, HUGE_PAGE, Pages, free_memory, zeroed};
pub use split::{Chain, Chunks, Grid, Nothing, Split, Tiles};
pub use team::{Pass, Team};
pub use trace::Trace;
