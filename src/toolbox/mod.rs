//! The subcommands of `rml`, as functions that write to whatever they are given.

mod inspect;
mod template;
mod tokenize;

pub use inspect::inspect;
pub use template::template;
pub use tokenize::{detokenize, tokenize};
