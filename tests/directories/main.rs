//! Hugging Face directories.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../compare/mod.rs"]
mod compare;
mod families;
mod hostile;
mod text;
