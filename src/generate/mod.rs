//! From logits to replies: the sampler, the session, and the session that guesses ahead.

pub mod sampler;
mod session;
pub mod speculative;

pub use session::{GenerationStats, Interrupt, Session, SessionOptions, StopReason};
pub use speculative::{SpeculativeSession, SpeculativeStats};
