//! GGUF files, versions 2 and 3, little-endian: metadata and tensors, mapped.
//!
//! Nothing in a file is trusted. Every count and length is compared with the file's size before it is used or allocated,
//! so no input can make the reader panic, overflow, or take memory beyond a small multiple of the file.
//!
//! Source: `docs/gguf.md` in the repository of ggml, and where it is silent, `gguf.cpp` there.

mod cursor;
mod mapping;
mod metadata;
mod parse;
mod shards;
mod strings;
mod types;
mod value;
mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rml_kernels_ref::format::Format;

use mapping::Mapping;
use parse::Contents;
use shards::Part;

pub use metadata::Metadata;
pub use strings::Strings;
pub use types::TensorType;
pub use value::{Array, Value};
pub use write::Writer;

use crate::{Error, Result};

/// An open model: one file, or all files of a split set as if they were one.
#[derive(Debug)]
pub struct Gguf {
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Tensors by name.
    index: HashMap<String, usize>,
    shards: Vec<Shard>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    mapping: Mapping,
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
    /// Where it starts in its file, in bytes.
    pub offset: usize,
    /// Its size in bytes; 0 if rml does not know the type.
    pub bytes: usize,
    /// Which file of a split set it stands in, from 0.
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
    /// Opens a file, mapped, with the other parts if it is part of a split set.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read; [`Error::Malformed`] if it is no GGUF, damaged or incomplete, or a part is missing.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with a choice of how.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self> {
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
        let index = tensors.iter().enumerate().map(|(i, tensor)| (tensor.name.clone(), i)).collect();
        let metadata = Metadata::new(path, metadata);
        Ok(Gguf { version, metadata, tensors, index, shards: vec![Shard { path: path.to_owned(), mapping }], notes })
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

    /// The file, or the first of a split set.
    pub fn path(&self) -> &Path {
        &self.shards[0].path
    }

    /// The file, or all files of a split set.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Size of the file, or of all files of a split set, in bytes.
    pub fn file_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.mapping.bytes().len()).sum()
    }

    /// Number of files.
    pub fn n_files(&self) -> usize {
        self.shards.len()
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
            path: self.shards[tensor.shard].path.clone(),
            reason: format!("tensor {} is stored as {}, {}", tensor.name, tensor.kind, tensor.kind.obstacle()),
        })
    }

    /// The bytes of a tensor of this model: whole rows of `shape[0]` weights. They start at a multiple of the file's
    /// alignment, usually 32. Empty if the type is unknown.
    ///
    /// # Panics
    /// If the tensor is of another model.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.shards[tensor.shard].mapping.bytes()[tensor.offset..][..tensor.bytes]
    }

    /// Tells the system that a tensor's bytes will not be needed soon. They stay readable.
    pub fn release(&self, tensor: &TensorInfo) {
        self.shards[tensor.shard].mapping.release(tensor.offset, tensor.bytes);
    }

    /// What is wrong with the file without being an error, such as texts that are not valid UTF-8.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
