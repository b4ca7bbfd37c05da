//! Language models on the CPU: fast, and reproducible to the bit.
#![deny(unsafe_code)]

mod error;
pub mod generate;
pub mod model;
pub mod text;

pub use error::{Error, Result};
