//! Model files and what they hold: GGUF, Hugging Face directories, the configuration, the tensors, the weights as the kernels take them.

mod config;
mod families;
mod fingerprint;
pub mod gguf;
mod hf;
pub(crate) mod load;
mod memory;
pub mod quantize;
mod tensors;
pub(crate) mod weights;

pub use config::{Config, Experts, LongFactors, Rope, Window, Yarn};
pub use families::{FAMILIES, Family, Gate, HeadNorm, Layers, Norms, RopeStyle};
pub use gguf::{Gguf, Metadata, OpenOptions, TensorInfo};
pub(crate) use hf::{BESIDE_WEIGHTS, CONFIG, TEMPLATES, is_weights, weight_files};
pub use load::{LoadOptions, Model, registry};
pub use memory::{BytesByType, KvPlan, MemoryPlan, WeightShare};
pub use tensors::{FfnTensors, LayerTensors, MatrixTensor, Tensors};
