//! Loading a model: read the file, choose kernels, pack weights.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rml_backends::{CpuFeatures, KernelTable, Registry};
use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::format::Format;
use rml_kernels_ref::gate::scale;

use super::config::Config;
use super::gguf::{Gguf, OpenOptions, TensorInfo};
use super::quantize::{FileType, Quantized};
use super::tensors::{MatrixTensor, Tensors};
use super::weights::{Matrix, Packer, Storage};
use crate::exec::choice::{Choice, Request, Sample};
use crate::exec::{Block, Team, Trace};
use crate::text::Tokenizer;
use crate::{Error, Result};

/// How to load a model.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// A backend's name or `auto`, either followed by `,slot=backend`; `None` takes `RML_BACKEND`, else `auto`.
    pub backend: Option<String>,
    /// Threads; 0 for as many as this process may use.
    pub threads: usize,
    /// Read the file into memory rather than mapping it: slower, but safe if another program cuts the file short meanwhile.
    pub no_mmap: bool,
    /// Turn the matrices into this type in memory, as `rml quantize` does in a file: for models in floats, such as most
    /// Hugging Face directories.
    pub quantize: Option<FileType>,
}

/// A loaded model: immutable, and shared by any number of sessions.
#[derive(Debug)]
pub struct Model {
    storage: Storage,
    config: Config,
    choice: Choice,
    weights: ModelWeights,
    tokenizer: Tokenizer,
    team: Arc<Team>,
    trace: Option<Trace>,
    fingerprint: OnceLock<[u8; 32]>,
}

/// The weights as the forward pass takes them.
#[derive(Debug)]
pub(crate) struct ModelWeights {
    embedding: (TensorInfo, Format),
    pub(crate) head: Matrix,          // (n_vocab, d_model)
    pub(crate) output_norm: Vec<f32>, // (d_model)
    pub(crate) layers: Vec<LayerWeights>,
}

/// One layer of [`ModelWeights`].
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub(crate) attn_norm: Option<Vec<f32>>,           // (d_model)
    pub(crate) q: Matrix,                             // (heads * d, d_model)
    pub(crate) k: Matrix,                             // (kv_heads * d, d_model)
    pub(crate) v: Matrix,                             // (kv_heads * d, d_model)
    pub(crate) qk_norm: Option<(Vec<f32>, Vec<f32>)>, // (d) each, or (heads * d) and (kv_heads * d)
    pub(crate) sinks: Option<Vec<f32>>,               // (heads)
    pub(crate) output: Matrix,                        // (d_model, heads * d)
    pub(crate) post_attention_norm: Option<Vec<f32>>, // (d_model)
    pub(crate) ffn_norm: Option<Vec<f32>>,            // (d_model)
    pub(crate) router: Option<Matrix>,                // (experts, d_model)
    pub(crate) ffn: Vec<FeedForward>,                 // one, or one for each expert
    pub(crate) post_ffn_norm: Option<Vec<f32>>,       // (d_model)
}

/// A feed-forward part, or an expert.
#[derive(Debug)]
pub(crate) struct FeedForward {
    pub(crate) gate: Matrix, // (d_ff, d_model)
    pub(crate) up: Matrix,   // (d_ff, d_model)
    pub(crate) down: Matrix, // (d_model, d_ff)
}

impl Model {
    /// Loads a GGUF file or a Hugging Face directory.
    ///
    /// # Errors
    /// If the file cannot be read or run, the backend asked for is unknown or refuses, or `RML_TRACE` asks for what is unknown.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self> {
        let registry = registry()?;
        Self::load_with(path, options, &registry)
    }

    /// As [`load`](Self::load), with a registry of one's own.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: &Path, options: &LoadOptions, registry: &Registry) -> Result<Self> {
        Self::load_on(path, options, registry, None)
    }

    /// As [`load`](Self::load), on the threads of `other`: for models that take turns. The number in `options` does not count.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_beside(path: &Path, options: &LoadOptions, other: &Model) -> Result<Self> {
        Self::load_on(path, options, &registry()?, Some(other.team.clone()))
    }

    fn load_on(path: &Path, options: &LoadOptions, registry: &Registry, team: Option<Arc<Team>>) -> Result<Self> {
        let request: Request = requested_backend(options.backend.as_deref())?.parse()?;
        let trace = Trace::new(&std::env::var("RML_TRACE").unwrap_or_default())?;
        let mut file = Gguf::open_with(path, &OpenOptions { mmap: !options.no_mmap })?;
        let config = Config::from_gguf(&file)?;
        let team = team.map_or_else(|| Team::new(options.threads).map(Arc::new), Ok)?;
        if let Some(kind) = options.quantize {
            // What cannot be run is not worked on.
            Tensors::new(&file, &config)?;
            file = Quantized::new(&file, kind)?.in_memory(&team)?;
        }
        let tensors = Tensors::new(&file, &config)?;
        file.compute()?;
        // Building the tokenizer takes one thread about as long as packing takes the others.
        let (weights, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| Tokenizer::from_gguf(&file));
            let weights = load_weights(&file, &tensors, registry, &request, &team);
            (weights, tokenizer.join())
        });
        let tokenizer = tokenizer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (choice, weights, packed) = weights?;
        if tokenizer.vocab_size() > config.n_vocab {
            return Err(Error::Malformed {
                path: path.to_owned(),
                reason: format!(
                    "the tokenizer has {} tokens, the embedding only {}; the file is damaged or was converted wrongly",
                    tokenizer.vocab_size(),
                    config.n_vocab
                ),
            });
        }
        Ok(Model { storage: Storage::new(file, packed), config, choice, weights, tokenizer, team, trace, fingerprint: OnceLock::new() })
    }

    /// Sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The file it came from.
    pub fn file(&self) -> &Gguf {
        self.storage.file()
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Which kernels were chosen, and how they were measured.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What tells it from other models: a hash over metadata, tensor table and some weights of every tensor.
    pub fn fingerprint(&self) -> [u8; 32] {
        *self.fingerprint.get_or_init(|| super::fingerprint::fingerprint(self.file()))
    }

    /// Its threads.
    pub fn team(&self) -> &Team {
        &self.team
    }

    pub(crate) fn table(&self) -> &KernelTable {
        self.choice.table()
    }

    /// Who is told which kernels run, if anyone.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    pub(crate) fn weights(&self) -> &ModelWeights {
        &self.weights
    }

    /// The embedding of a token below `n_vocab`. `out` is (d_model).
    pub(crate) fn embed(&self, id: u32, out: &mut [f32]) {
        let (tensor, format) = &self.weights.embedding;
        if let Some(trace) = &self.trace {
            trace.embed_row(self.table(), *format, out.len());
        }
        let row_bytes = tensor.bytes / self.config.n_vocab;
        self.table().embed_row.get()(*format, &self.file().bytes(tensor)[id as usize * row_bytes..][..row_bytes], out);
        if self.config.embedding_scale != 1.0 {
            scale(out, self.config.embedding_scale);
        }
    }
}

/// The registry of this program on this CPU, less what `RML_DISABLE` takes away.
///
/// # Errors
/// If `RML_DISABLE` names something unknown.
pub fn registry() -> Result<Registry> {
    let disable = std::env::var("RML_DISABLE").unwrap_or_default();
    Ok(Registry::new(CpuFeatures::detect(&disable).map_err(Error::Backend)?))
}

/// What was asked for: the argument, else `RML_BACKEND`, else `auto`.
fn requested_backend(argument: Option<&str>) -> Result<String> {
    match argument {
        Some(name) => Ok(name.to_owned()),
        None => match std::env::var("RML_BACKEND") {
            Ok(name) if !name.is_empty() => Ok(name),
            Ok(_) | Err(std::env::VarError::NotPresent) => Ok("auto".to_owned()),
            Err(e) => Err(Error::Backend(format!("RML_BACKEND cannot be read: {e}"))),
        },
    }
}

fn load_weights(
    file: &Gguf,
    tensors: &Tensors<'_>,
    registry: &Registry,
    request: &Request,
    team: &Team,
) -> Result<(Choice, ModelWeights, Block)> {
    let choice = Choice::new(registry, request, &samples(file, tensors)?, team)?;
    let mut pass = team.pass();
    let mut packer = Packer::new(file, &choice, &mut pass, tensors.matrices())?;
    let mut matrix = |t: &MatrixTensor| {
        let mut matrix = packer.pack(&t.weight)?;
        matrix.bias = t.bias.as_ref().map(|bias| floats(file, bias)).transpose()?;
        Ok(matrix)
    };
    let vector = |t: Option<&TensorInfo>| t.map(|t| floats(file, t)).transpose();
    let layers = tensors
        .layers
        .iter()
        .map(|t| {
            Ok(LayerWeights {
                attn_norm: vector(t.attn_norm)?,
                q: matrix(&t.attn_q)?,
                k: matrix(&t.attn_k)?,
                v: matrix(&t.attn_v)?,
                qk_norm: vector(t.attn_q_norm)?.zip(vector(t.attn_k_norm)?),
                sinks: vector(t.attn_sinks)?,
                output: matrix(&t.attn_output)?,
                post_attention_norm: vector(t.post_attention_norm)?,
                ffn_norm: vector(t.ffn_norm)?,
                router: t.ffn_gate_inp.as_ref().map(&mut matrix).transpose()?,
                ffn: t
                    .ffn
                    .iter()
                    .map(|t| Ok(FeedForward { gate: matrix(&t.gate)?, up: matrix(&t.up)?, down: matrix(&t.down)? }))
                    .collect::<Result<_>>()?,
                post_ffn_norm: vector(t.post_ffw_norm)?,
            })
        })
        .collect::<Result<_>>()?;
    let embedding = (tensors.token_embd.clone(), file.format(tensors.token_embd)?);
    let head = packer.pack(tensors.head())?;
    let packed = packer.finish();
    let weights = ModelWeights { embedding, head, output_norm: floats(file, tensors.output_norm)?, layers };
    drop(pass);
    Ok((choice, weights, packed))
}

/// The largest matrix of each format.
fn samples<'a>(file: &'a Gguf, tensors: &Tensors<'_>) -> Result<Vec<Sample<'a>>> {
    let mut largest: BTreeMap<Format, &TensorInfo> = BTreeMap::new();
    for t in tensors.matrices() {
        let entry = largest.entry(file.format(t)?).or_insert(t);
        if t.bytes > entry.bytes {
            *entry = t;
        }
    }
    Ok(largest.into_iter().map(|(format, t)| Sample { format, n: t.shape[1], k: t.shape[0], bytes: file.bytes(t) }).collect())
}

/// A tensor as f32.
fn floats(file: &Gguf, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let mut out = vec![0.0; tensor.n_weights()];
    dequantize_row(file.format(tensor)?, file.bytes(tensor), &mut out);
    Ok(out)
}
