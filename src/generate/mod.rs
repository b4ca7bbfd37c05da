//! From logits to replies: the sampler and the session.

pub mod sampler;
mod session;

pub use session::{GenerationStats, Interrupt, Session, SessionOptions, StopReason};
