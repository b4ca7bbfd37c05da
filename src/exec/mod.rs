//! Running kernels: the team of threads, the memory of a step, and the choice of backends.

mod arena;
mod bell;
pub mod choice;
mod memory;
mod split;
mod team;

pub use arena::{Arena, Plain};
pub use memory::{Block, zeroed};
pub use split::{Chain, Chunks, Nothing, Split, Tiles};
pub use team::{Pass, Team, usable_threads};
