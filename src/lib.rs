//! Language models on the CPU: fast, and reproducible to the bit.
#![deny(unsafe_code)]

pub mod chat;
pub mod decode;
mod error;
pub mod exec;
pub mod fetch;
pub mod generate;
pub mod model;
mod program;
pub mod text;
pub mod toolbox;

pub use error::{Error, Result};
pub use generate::{Session, SessionOptions};
pub use model::{LoadOptions, Model};

/// The example of README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
