//! Model files and what they hold: GGUF, Hugging Face directories, the configuration, the tensors, the weights as the kernels take them.

mod config;
mod families;
mod fingerprint;
pub mod gguf;
mod hf;
mod load;
mod memory;
pub mod quantize;
mod tensors;
pub(crate) mod weights;

pub use config::{Config, Rope};
pub use families::{FAMILIES, Family, RopeStyle};
pub use gguf::{Gguf, Metadata, OpenOptions, TensorInfo};
pub(crate) use hf::CONFIG;
pub use load::{LoadOptions, Model, registry};
pub use memory::{BytesByType, KvPlan, MemoryPlan, WeightShare};
pub use tensors::{LayerTensors, Tensors};
