//! GGUF files, versions 2 and 3: metadata and a tensor table, mapped.
//!
//! Nothing in the file is trusted: each count, length and offset is checked before it is used. Source: the GGUF
//! specification in the repository of ggml.

mod cursor;
mod mapping;
mod metadata;
mod types;

use std::path::Path;

use rml_kernels_ref::format::Format;

use cursor::{Cursor, Read};
use mapping::Mapping;
pub use metadata::{Array, Metadata, Value};
pub use types::TensorType;

use crate::{Error, Result};

/// An open file.
#[derive(Debug)]
pub struct Gguf {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    mapping: Mapping,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// How its numbers are stored.
    pub kind: TensorType,
    /// Sizes, the fastest-running first: a matrix of `n` outputs and `k` inputs is `[k, n]`.
    pub shape: Vec<usize>,
    /// Offset in the file.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

impl TensorInfo {
    /// Number of weights.
    pub fn n_weights(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Gguf {
    /// Opens a file, mapped.
    ///
    /// # Errors
    /// If it cannot be read, is not GGUF, or is damaged: the message names thing, place and remedy.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, false)
    }

    /// As [`open`](Self::open); with `no_mmap` the file is read into memory, so that nothing another program does to it later can do harm.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, no_mmap: bool) -> Result<Self> {
        let mapping = Mapping::open(path, no_mmap)?;
        let (mut metadata, tensors) = parse(mapping.bytes()).map_err(|reason| Error::Malformed { path: path.to_owned(), reason })?;
        metadata.path = path.to_owned();
        let file = Gguf { metadata, tensors, mapping };
        if file.metadata.u32("split.count")?.is_some_and(|n| n > 1) {
            return Err(Error::Unsupported {
                path: path.to_owned(),
                reason: "this is one part of a split model, which rml does not read yet; join the parts with llama-gguf-split --merge"
                    .into(),
            });
        }
        Ok(file)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.metadata.path
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> usize {
        self.mapping.bytes().len()
    }

    /// Keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// The format of a tensor, if rml can multiply it.
    ///
    /// # Errors
    /// [`Error::Unsupported`], naming tensor and type.
    pub fn format(&self, tensor: &TensorInfo) -> Result<Format> {
        Format::from_gguf(tensor.kind.0).ok_or_else(|| Error::Unsupported {
            path: self.path().to_owned(),
            reason: format!(
                "tensor {} is {}, which rml does not multiply; it does {}",
                tensor.name,
                tensor.kind,
                Format::ALL.map(Format::name).join(", ")
            ),
        })
    }

    /// The bytes of a tensor of this file.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.mapping.bytes()[tensor.offset..][..tensor.bytes]
    }

    /// Tells the system that a tensor's bytes will not be needed soon.
    pub fn release(&self, tensor: &TensorInfo) {
        self.mapping.release(tensor.offset, tensor.bytes);
    }
}

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u32 = 32;
const MAX_DIMENSIONS: u32 = 4;

fn parse(bytes: &[u8]) -> Read<(Metadata, Vec<TensorInfo>)> {
    let mut c = Cursor::new(bytes);
    match bytes.get(..4) {
        Some(magic) if magic == MAGIC => {}
        Some(b"ggml" | b"lmgg" | b"ggjt" | b"tjgg" | b"ggla") => {
            return Err("a file of the time before GGUF; convert the model anew".into());
        }
        Some(magic) => {
            return Err(format!("not a GGUF file: it starts with {:?}; rml reads models in GGUF", magic.escape_ascii().to_string()));
        }
        None => return Err(format!("not a GGUF file: it has only {} bytes; the download is incomplete", bytes.len())),
    }
    c.u32("the magic")?;
    match c.u32("the version")? {
        2 | 3 => {}
        1 => return Err("GGUF version 1 is not supported; convert the model anew".into()),
        v if matches!(v.swap_bytes(), 1..=3) => {
            return Err("a big-endian GGUF file; convert it with gguf_convert_endian.py of the package gguf".into());
        }
        v => return Err(format!("GGUF version {v} is newer than this program, which reads 2 and 3")),
    }
    // A tensor takes at least name length, dimensions, one size, type and offset; an entry key length, type and a byte.
    let n_tensors = c.count("the number of tensors", 8 + 4 + 8 + 4 + 8)?;
    let n_entries = c.count("the number of metadata entries", 8 + 4 + 1)?;
    let mut metadata = Metadata::default();
    for i in 0..n_entries {
        let key = c.name(&format!("key of metadata entry {i}"))?;
        if key.is_empty() {
            return Err(format!("metadata entry {i} has an empty key; the file is damaged"));
        }
        let kind = c.u32(key)?;
        let value = c.value(kind, key)?;
        if !metadata.insert(key.to_owned(), value) {
            return Err(format!("metadata {key} stands twice; the file is damaged"));
        }
    }
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT.into(),
        Some(&Value::U64(a)) if a.is_power_of_two() && a <= 1 << 20 => a,
        Some(a) => return Err(format!("metadata general.alignment is {a:?}; it must be a power of two")),
    };
    let raw: Vec<_> = (0..n_tensors).map(|i| tensor_header(&mut c, i)).collect::<Read<_>>()?;
    let data = (c.at() as u64).next_multiple_of(alignment);
    let mut tensors = Vec::with_capacity(n_tensors);
    let mut names = std::collections::HashSet::new();
    for (name, shape, kind, offset) in raw {
        if !names.insert(name) {
            return Err(format!("tensor {name} stands twice; the file is damaged"));
        }
        tensors.push(place(name, shape, kind, offset, data, alignment, bytes.len() as u64)?);
    }
    Ok((metadata, tensors))
}

type Header<'a> = (&'a str, Vec<u64>, TensorType, u64);

fn tensor_header<'a>(c: &mut Cursor<'a>, i: usize) -> Read<Header<'a>> {
    let name = c.name(&format!("name of tensor {i}"))?;
    let what = format!("tensor {name}");
    let n_dims = c.u32(&what)?;
    if !(1..=MAX_DIMENSIONS).contains(&n_dims) {
        return Err(format!("{what} has {n_dims} dimensions; from 1 to {MAX_DIMENSIONS} are possible, so the file is damaged"));
    }
    let shape = (0..n_dims).map(|_| c.u64(&what)).collect::<Read<Vec<_>>>()?;
    let kind = TensorType(c.u32(&what)?);
    Ok((name, shape, kind, c.u64(&what)?))
}

/// Checks a tensor's sizes and place.
fn place(name: &str, shape: Vec<u64>, kind: TensorType, offset: u64, data: u64, alignment: u64, file: u64) -> Read<TensorInfo> {
    let shown = || shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
    let Some((block_len, block_bytes)) = kind.block() else {
        return Err(format!("tensor {name} has the unknown {kind}; the file is damaged or newer than this program"));
    };
    if shape.contains(&0) {
        return Err(format!("tensor {name} has the shape {}, which is empty; the file is damaged", shown()));
    }
    let n = shape
        .iter()
        .try_fold(1_u64, |n, &d| n.checked_mul(d))
        .ok_or_else(|| format!("tensor {name} of {} is larger than can be addressed", shown()))?;
    if !shape[0].is_multiple_of(block_len) {
        return Err(format!("tensor {name} has rows of {} in {kind}, whose blocks hold {block_len}; the file is damaged", shape[0]));
    }
    let bytes =
        (n / block_len).checked_mul(block_bytes).ok_or_else(|| format!("tensor {name} of {} is larger than can be addressed", shown()))?;
    if !offset.is_multiple_of(alignment) {
        return Err(format!("tensor {name} stands at {offset}, which is no multiple of the alignment {alignment}; the file is damaged"));
    }
    let start = data.checked_add(offset);
    match start.and_then(|s| s.checked_add(bytes)) {
        Some(end) if end <= file => {}
        _ => {
            return Err(format!(
                "tensor {name} needs {bytes} bytes at {}, file ends at {file}; the download is incomplete",
                start.map_or_else(|| format!("{data} + {offset}"), |s| s.to_string())
            ));
        }
    }
    Ok(TensorInfo {
        name: name.to_owned(),
        kind,
        shape: shape.iter().map(|&d| d as usize).collect(),
        offset: (data + offset) as usize,
        bytes: bytes as usize,
    })
}
