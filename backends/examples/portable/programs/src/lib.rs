//! rml, with the backend `portable` linked.

pub use engine::*;
use rml_portable as _;
