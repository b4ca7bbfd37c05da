//! GGUF files, versions 2 and 3, little-endian: metadata and tensors, mapped.
//!
//! Nothing in a file is trusted. Every count and length is compared with the file's size before it is used or allocated,
//! so no input can make the reader panic, overflow, or take memory beyond a small multiple of the file.
//!
//! Source: `docs/gguf.md` in the repository of ggml, and where it is silent, `gguf.cpp` there.

mod cursor;
pub(super) mod mapping;
mod metadata;
mod parse;
pub(super) mod shard;
mod shards;
mod strings;
mod types;
mod value;
mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rml_kernels_ref::format::Format;

use mapping::Mapping;
use parse::Contents;
use shard::Shard;
use shards::Part;

pub use metadata::Metadata;
pub use strings::Strings;
pub use types::TensorType;
pub use value::{Array, Value};
pub use write::Writer;

use crate::{Error, Result};

/// An open model: one file, or all files of a split set or of a Hugging Face directory as if they were one.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    version: Option<u32>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Tensors by name.
    index: HashMap<String, usize>,
    shards: Vec<Shard>,
    notes: Vec<String>,
}

/// A model that was read from another form than GGUF.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) path: PathBuf,
    pub(super) metadata: Vec<(String, Value)>,
    /// Each within its shard.
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) shards: Vec<Shard>,
    pub(super) notes: Vec<String>,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// How its weights are stored.
    pub kind: TensorType,
    /// Sizes, the fastest first: a matrix of `n` outputs and `k` inputs is `[k, n]`. One to four, none of them 0.
    pub shape: Vec<usize>,
    /// Where it starts in its file, or in what was computed from one, in bytes.
    pub offset: usize,
    /// Its size in bytes; 0 if rml does not know the type.
    pub bytes: usize,
    /// Which file of a split set it stands in, from 0. In a Hugging Face directory, tensors that had to be computed come
    /// behind the files.
    pub shard: usize,
}

impl TensorInfo {
    /// Number of weights.
    pub fn n_weights(&self) -> usize {
        self.shape.iter().product()
    }
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Map the file: quick, and weights are read when they are touched. Another program that cuts a mapped file short
    /// makes the system end this one. If `false`, the file is read into memory, and what happens to it later does not matter.
    pub mmap: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { mmap: true }
    }
}

impl Gguf {
    /// Opens a file, mapped, with the other parts if it is part of a split set; or a Hugging Face directory, presented with
    /// the keys and names of GGUF.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read; [`Error::Malformed`] if it is no GGUF, damaged or incomplete, or a part is missing;
    /// [`Error::Unsupported`] for a directory whose model needs what rml does not have.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with a choice of how.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self> {
        if path.is_dir() {
            return Ok(Self::from_parts(super::hf::read(path, options)?));
        }
        let file = Self::from_mapping(path, Mapping::open(path, options.mmap)?, 0)?;
        match Part::of(&file.metadata)? {
            None => Ok(file),
            Some(part) => Self::join(file, &part, options),
        }
    }

    /// Reads a file that is in memory; `path` only names it in messages.
    ///
    /// # Errors
    /// [`Error::Malformed`] as for [`open`](Self::open), also for a part of a split set.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self> {
        let mapping = Mapping::copy(bytes).map_err(|source| Error::Io { path: path.to_owned(), action: "copy", source })?;
        let file = Self::from_mapping(path, mapping, 0)?;
        match Part::of(&file.metadata)? {
            None => Ok(file),
            Some(part) => Err(Error::Malformed {
                path: path.to_owned(),
                reason: format!("this is part {} of a model in {} files; open it from its directory", part.number + 1, part.count),
            }),
        }
    }

    fn from_mapping(path: &Path, mapping: Mapping, shard: usize) -> Result<Self> {
        let Contents { version, metadata, tensors, notes } =
            parse::parse(mapping.bytes(), shard).map_err(|reason| Error::Malformed { path: path.to_owned(), reason })?;
        let shards = vec![Shard::file(path, mapping)];
        let parts = Parts { path: path.to_owned(), metadata, tensors, shards, notes };
        Ok(Gguf { version: Some(version), ..Self::from_parts(parts) })
    }

    fn from_parts(parts: Parts) -> Self {
        let Parts { path, metadata, tensors, shards, notes } = parts;
        let index = tensors.iter().enumerate().map(|(i, tensor)| (tensor.name.clone(), i)).collect();
        Gguf { version: None, metadata: Metadata::new(&path, metadata), path, tensors, index, shards, notes }
    }

    /// All parts of the set that `given` belongs to, as one.
    fn join(given: Gguf, part: &Part, options: &OpenOptions) -> Result<Self> {
        let path = given.path().to_owned();
        let mut given = Some(given);
        let mut whole: Option<Gguf> = None;
        for (number, path) in part.paths(&path)?.enumerate() {
            let malformed = |reason| Error::Malformed { path: path.clone(), reason };
            let mut file = match given.take_if(|_| number == part.number as usize) {
                Some(file) => file,
                None if !path.exists() => {
                    return Err(malformed(format!(
                        "part {} of {} of this model is missing; fetch it into the same directory",
                        number + 1,
                        part.count
                    )));
                }
                None => Self::from_mapping(&path, Mapping::open(&path, options.mmap)?, 0)?,
            };
            match Part::of(&file.metadata)? {
                Some(found) if found.count == part.count && found.number as usize == number => {}
                _ => {
                    return Err(malformed(format!(
                        "this is named as part {} of {}, but its split.no and split.count say otherwise; fetch it again",
                        number + 1,
                        part.count
                    )));
                }
            }
            let Some(whole) = &mut whole else {
                whole = Some(file);
                continue;
            };
            for mut tensor in file.tensors {
                tensor.shard = number;
                if whole.index.insert(tensor.name.clone(), whole.tensors.len()).is_some() {
                    return Err(malformed(format!("tensor {} stands in an earlier part too; fetch the parts again", tensor.name)));
                }
                whole.tensors.push(tensor);
            }
            whole.shards.append(&mut file.shards);
            whole.notes.append(&mut file.notes);
        }
        let whole = whole.expect("a set has two parts or more");
        match whole.metadata.u32("split.tensors.count")? {
            Some(n) if n as usize != whole.tensors.len() => Err(whole
                .metadata
                .malformed("split.tensors.count", &format!("is {n}, but the {} parts hold {} tensors", part.count, whole.tensors.len()))),
            _ => Ok(whole),
        }
    }

    /// The file, or the first of a split set, or the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, or all files of a split set or a directory.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(Shard::path)
    }

    /// Version of the format; none for a Hugging Face directory.
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// Size of the file, or of all files that hold weights, in bytes.
    pub fn file_bytes(&self) -> usize {
        self.shards.iter().filter_map(Shard::file_bytes).map(<[u8]>::len).sum()
    }

    /// Number of files that hold weights.
    pub fn n_files(&self) -> usize {
        self.shards.iter().filter_map(Shard::file_bytes).count()
    }

    /// Keys and values; those of the first file, if there are several.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in the file's order; none if it holds only a vocabulary.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The format of a tensor, if rml reads it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] naming tensor and type.
    pub fn format(&self, tensor: &TensorInfo) -> Result<Format> {
        tensor.kind.format().ok_or_else(|| Error::Unsupported {
            path: self.shards[tensor.shard].path().to_owned(),
            reason: format!("tensor {} is stored as {}, {}", tensor.name, tensor.kind, tensor.kind.obstacle()),
        })
    }

    /// The bytes of a tensor of this model: whole rows of `shape[0]` weights. They start at a multiple of the file's
    /// alignment, usually 32, in a directory 8. Empty if the type is unknown.
    ///
    /// # Panics
    /// If the tensor is of another model; or if it has to be computed, [`compute`](Self::compute) was not called, and memory is
    /// short.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        let bytes = self.shards[tensor.shard].bytes(&self.shards).expect("memory for a tensor");
        &bytes[tensor.offset..][..tensor.bytes]
    }

    /// As [`bytes`](Self::bytes), for who reads a tensor once: what has to be computed is not kept.
    ///
    /// # Errors
    /// [`Error::Io`] if memory is short.
    ///
    /// # Panics
    /// If the tensor is of another model.
    pub fn bytes_once(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        Ok(match self.shards[tensor.shard].bytes_once(&self.shards)? {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[tensor.offset..][..tensor.bytes]),
            Cow::Owned(mut bytes) => {
                bytes.drain(..tensor.offset);
                bytes.truncate(tensor.bytes);
                Cow::Owned(bytes)
            }
        })
    }

    /// Computes the tensors of a Hugging Face directory that do not stand in its files as GGUF has them, which otherwise
    /// happens when each is first asked for. A GGUF file has none.
    ///
    /// # Errors
    /// [`Error::Io`] if memory is short.
    pub fn compute(&self) -> Result<()> {
        self.shards.iter().try_for_each(|shard| shard.bytes(&self.shards).map(drop))
    }

    /// Tells the system that a tensor's bytes will not be needed soon. They stay readable.
    pub fn release(&self, tensor: &TensorInfo) {
        self.shards[tensor.shard].release(tensor.offset, tensor.bytes);
    }

    /// What is wrong with the file without being an error, such as texts that are not valid UTF-8.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
