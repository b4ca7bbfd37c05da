//! A model written anew with its matrices in other formats: which tensor gets which, and the file.
//!
//! Blocks and the choice of formats are those of llama.cpp's own quantizer without an importance matrix.

mod file_type;
mod mixture;

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::encode::{Unencodable, encode_row};
use rml_kernels_ref::format::Format;

use super::gguf::{Gguf, TensorInfo, TensorType, Value, Writer};
use crate::exec::{Chunks, Pass, Team};
use crate::{Error, Result};

pub use file_type::FileType;
use mixture::Mixture;
pub(crate) use mixture::fallback;

/// Weights that are turned into blocks before they are written: what bounds the memory, beside a row a thread.
const PIECE: usize = 1 << 22;

/// A model to be written in other formats.
///
/// ```no_run
/// use rml::exec::Team;
/// use rml::model::Gguf;
/// use rml::model::quantize::{FileType, Quantized};
/// let file = Gguf::open("model-f16.gguf".as_ref())?;
/// let quantized = Quantized::new(&file, FileType::named("q4_k_m").expect("a file type"))?;
/// let mut out = std::fs::File::create("model-q4_k_m.gguf").expect("a file");
/// quantized.write("model-q4_k_m.gguf".as_ref(), &mut out, &Team::new(0)?, |_| ())?;
/// # Ok::<(), rml::Error>(())
/// ```
#[derive(Debug)]
pub struct Quantized<'a> {
    file: &'a Gguf,
    writer: Writer,
    targets: Vec<Target>,
}

/// What becomes of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Its bytes are kept.
    Kept,
    /// Its weights are written in a format.
    Written {
        /// What it is stored as.
        from: Format,
        /// What it will be stored as.
        to: Format,
        /// Whether its rows are too short or uneven for what was meant.
        fallback: bool,
    },
}

impl<'a> Quantized<'a> {
    /// The type of file that keeps most weights as they are: F32, F16 or BF16; F16 for a model that is quantized.
    pub fn plainest(file: &Gguf) -> FileType {
        let weights = |format: Format| -> usize {
            file.tensors().iter().filter(|t| t.shape.len() > 1 && t.kind.format() == Some(format)).map(TensorInfo::n_weights).sum()
        };
        let most = [Format::BF16, Format::F32, Format::F16].into_iter().max_by_key(|&format| weights(format));
        FileType::named(most.expect("there are three").name()).expect("every float format is a type of file")
    }

    /// Plans the file: metadata are kept but for the type of the file, and what belongs to split sets.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a tensor that is to be written anew and is stored in a type that rml does not read.
    pub fn new(file: &'a Gguf, file_type: FileType) -> Result<Self> {
        Self::plan(file, file_type, false)
    }

    /// Plans a file of the [`plainest`](Self::plainest) type that keeps what is quantized, such as the experts of gpt-oss.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn as_it_is(file: &'a Gguf) -> Result<Self> {
        Self::plan(file, Self::plainest(file), true)
    }

    fn plan(file: &'a Gguf, file_type: FileType, keep_quantized: bool) -> Result<Self> {
        let mut writer = Writer::new();
        for (key, value) in file.metadata().iter().filter(|(key, _)| !key.starts_with("split.")) {
            writer.set(key, value.clone());
        }
        writer.set("general.file_type", Value::U32(file_type.number()));
        writer.set("general.quantization_version", Value::U32(2));
        let mut mixture = Mixture::new(file, file_type)?;
        // llama.cpp goes through the layers in order, whatever the order of the file.
        let mut by_layer: Vec<(usize, &TensorInfo)> = file.tensors().iter().enumerate().collect();
        by_layer.sort_by_key(|(_, t)| mixture::layer(&t.name));
        let mut targets = vec![Target::Kept; file.tensors().len()];
        for (i, tensor) in by_layer {
            let wanted = mixture.format(tensor);
            let is_quantized = tensor.kind.format().is_some_and(|format| !format.is_float());
            if !(keep_quantized && is_quantized) {
                targets[i] = target(file, tensor, wanted)?;
            }
        }
        for (tensor, target) in file.tensors().iter().zip(&targets) {
            let kind = match *target {
                Target::Kept => tensor.kind,
                Target::Written { to, .. } => TensorType::from(to),
            };
            writer.tensor(&tensor.name, kind, &tensor.shape)?;
        }
        Ok(Quantized { file, writer, targets })
    }

    /// Tensors that were quantized before, and lose once more by being quantized again.
    pub fn n_requantized(&self) -> usize {
        let lossy = |t: &&Target| matches!(t, Target::Written { from, to, .. } if !from.is_float() && !to.is_float());
        self.targets.iter().filter(lossy).count()
    }

    /// Tensors with rows that the format meant for them cannot have, and which got another.
    pub fn n_fallbacks(&self) -> usize {
        self.targets.iter().filter(|t| matches!(t, Target::Written { fallback: true, .. })).count()
    }

    /// Number of tensors and bytes of each type in the new file, most bytes first.
    pub fn shares(&self) -> Vec<(TensorType, usize, usize)> {
        let mut shares: Vec<(TensorType, usize, usize)> = Vec::new();
        for (tensor, target) in self.file.tensors().iter().zip(&self.targets) {
            let (kind, bytes) = match *target {
                Target::Kept => (tensor.kind, tensor.bytes),
                Target::Written { to, .. } => (to.into(), tensor.n_weights() / to.block_len() * to.block_bytes()),
            };
            match shares.iter_mut().find(|share| share.0 == kind) {
                Some(share) => (share.1, share.2) = (share.1 + 1, share.2 + bytes),
                None => shares.push((kind, 1, bytes)),
            }
        }
        shares.sort_by_key(|share| std::cmp::Reverse(share.2));
        shares
    }

    /// Bytes of the old file's tensors: what `progress` of [`write`](Self::write) adds up to.
    pub fn source_bytes(&self) -> u64 {
        self.file.tensors().iter().map(|t| t.bytes as u64).sum()
    }

    /// Writes the file on the threads of `team`, holding a few megabytes of it, and of a Hugging Face directory a tensor. `path` only names it in messages; `progress`
    /// is told how many bytes of the old file were worked off.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails; [`Error::Malformed`] naming tensor and place of a weight that is not finite, or too large
    /// for its format.
    pub fn write(&self, path: &Path, out: &mut dyn Write, team: &Team, mut progress: impl FnMut(u64)) -> Result<()> {
        let io = |source| Error::Io { path: path.to_owned(), action: "write", source };
        let mut pass = team.pass();
        let mut rows = vec![Vec::new(); pass.n_threads()];
        let mut piece = Vec::new();
        self.writer.write_streamed(path, out, |i, out| {
            let tensor = &self.file.tensors()[i];
            let bytes = self.file.bytes_once(tensor)?;
            let (k, n) = (tensor.shape[0], tensor.n_weights() / tensor.shape[0]);
            let row_bytes = bytes.len() / n;
            let at_once = (PIECE / k).clamp(1, n);
            for first in (0..n).step_by(at_once) {
                let count = at_once.min(n - first);
                let source = &bytes[first * row_bytes..][..count * row_bytes];
                match self.targets[i] {
                    Target::Kept => out.write_all(source).map_err(io)?,
                    Target::Written { from, to, .. } => {
                        piece.resize(count * to.row_bytes(k).expect("formats were chosen so"), 0);
                        encode((from, source), (to, &mut piece), k, &mut pass, &mut rows)
                            .map_err(|(row, what)| self.unencodable(tensor, to, first + row, what))?;
                        out.write_all(&piece).map_err(io)?;
                    }
                }
                progress(source.len() as u64);
            }
            self.file.release(tensor);
            Ok(())
        })
    }

    /// The file in memory, under the path of the old one.
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Error::Io`] if memory is short.
    pub fn in_memory(&self, team: &Team) -> Result<Gguf> {
        let path = self.file.path();
        let mut bytes = Vec::new();
        let room = self.shares().iter().map(|share| share.2).sum();
        bytes.try_reserve(room).map_err(|e| Error::Io {
            path: path.to_owned(),
            action: "find memory for the weights of",
            source: std::io::Error::other(e),
        })?;
        self.write(path, &mut bytes, team, |_| ())?;
        Gguf::from_bytes(path, &bytes)
    }

    fn unencodable(&self, tensor: &TensorInfo, to: Format, row: usize, what: Unencodable) -> Error {
        let remedy =
            if what.weight.is_finite() { "choose a type with more range, such as bf16" } else { "the model is damaged, fetch it again" };
        Error::Malformed {
            path: self.file.path().to_owned(),
            reason: format!("tensor {}, row {row}: {what}, so it cannot be written as {to}; {remedy}", tensor.name),
        }
    }
}

/// What becomes of a tensor that is meant to be in `wanted`: the format, and whether it is a fallback.
fn target(file: &Gguf, tensor: &TensorInfo, wanted: Option<(Format, bool)>) -> Result<Target> {
    let stored = tensor.kind.format();
    let (to, fallback) = match wanted {
        Some(wanted) => wanted,
        // Norms and biases stay exact; llama.cpp computes with them in f32.
        None if matches!(stored, Some(Format::F16 | Format::BF16)) => (Format::F32, false),
        None => return Ok(Target::Kept),
    };
    if stored == Some(to) {
        return Ok(Target::Kept);
    }
    Ok(Target::Written { from: file.format(tensor)?, to, fallback })
}

/// Rows of `k` weights from one format into another, a row a task. Each thread has a row of f32.
///
/// The error is that of the first row that has one, whichever thread met it.
fn encode(
    (from, source): (Format, &[u8]),
    (to, out): (Format, &mut [u8]),
    k: usize,
    pass: &mut Pass<'_>,
    own: &mut [Vec<f32>],
) -> std::result::Result<(), (usize, Unencodable)> {
    let row_bytes = from.row_bytes(k).expect("the reader checked that rows are whole blocks");
    let failed: Mutex<Option<(usize, Unencodable)>> = Mutex::new(None);
    let out = Chunks::new(out, to.row_bytes(k).expect("formats were chosen so"));
    pass.each_with(own, out, |weights, row, out| {
        weights.resize(k, 0.0);
        dequantize_row(from, &source[row * row_bytes..][..row_bytes], weights);
        if let Err(what) = encode_row(to, weights, out) {
            let mut failed = failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if failed.is_none_or(|(first, _)| row < first) {
                *failed = Some((row, what));
            }
        }
    });
    failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
}
