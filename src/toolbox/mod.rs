//! The subcommands of `rml`, as functions that write to whatever they are given.

mod inspect;

pub use inspect::inspect;
