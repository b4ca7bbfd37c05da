//! The weights of a directory: one `.safetensors` file, or several with an index.
//!
//! Source: the format page of `safetensors`; `model.safetensors.index.json` as `transformers` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value as Json;

use super::fields::{Fields, malformed};
use crate::model::gguf::mapping::Mapping;
use crate::model::gguf::shard::Shard;
use crate::{Error, Result};

pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const SINGLE: &str = "model.safetensors";

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// The slowest first, as PyTorch has it.
    pub(super) shape: Vec<usize>,
    pub(super) file: usize,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// The files and what stands in them, in the order of files and places.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) paths: Vec<PathBuf>,
    pub(super) files: Vec<Shard>,
    pub(super) tensors: Vec<Stored>,
}

impl Checkpoint {
    /// Opens the files of a directory, mapped if `mmap`.
    pub(super) fn open(dir: &Path, mmap: bool) -> Result<Self> {
        let index = Index::read(dir)?;
        let paths = match &index {
            Some(index) => index.files.iter().map(|file| dir.join(file)).collect(),
            None => single(dir)?.into_iter().collect(),
        };
        let mut checkpoint = Checkpoint { paths, files: Vec::new(), tensors: Vec::new() };
        let mut homes: BTreeMap<String, usize> = BTreeMap::new();
        for (number, path) in checkpoint.paths.iter().enumerate() {
            if !path.exists() {
                let n = checkpoint.paths.len();
                return Err(malformed(
                    path,
                    format!("this is one of the model's {n} files and is missing; fetch it into the same directory"),
                ));
            }
            let mapping = Mapping::open(path, mmap)?;
            for tensor in contents(path, number, mapping.bytes())? {
                if let Some(other) = homes.insert(tensor.name.clone(), number) {
                    let other = checkpoint.paths[other].display();
                    return Err(malformed(path, format!("tensor {} stands in {other} too; fetch the files again", tensor.name)));
                }
                checkpoint.tensors.push(tensor);
            }
            checkpoint.files.push(Shard::file(path, mapping));
        }
        if let Some(index) = index {
            index.check(&homes)?;
        }
        Ok(checkpoint)
    }
}

/// The names of the files that hold the weights of a directory: those of its index, if it has one.
pub(crate) fn weight_files(dir: &Path) -> Result<BTreeSet<String>> {
    Ok(match Index::read(dir)? {
        Some(index) => index.files,
        None => BTreeSet::from([SINGLE.to_owned()]),
    })
}

/// The one file of a directory without an index; `None` if it holds only a vocabulary.
fn single(dir: &Path) -> Result<Option<PathBuf>> {
    let path = dir.join(SINGLE);
    if path.exists() {
        return Ok(Some(path));
    }
    let entries = std::fs::read_dir(dir).map_err(|source| Error::Io { path: dir.to_owned(), action: "read", source })?;
    let names: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    let of = |extensions: &[&str]| names.iter().filter(|p| p.extension().is_some_and(|e| extensions.iter().any(|x| e == *x))).count();
    let why = if of(&["safetensors"]) > 0 {
        format!("the weights stand in several files, but {INDEX}, which says how they belong together, is missing; fetch it too")
    } else if of(&["bin", "pt", "pth"]) > 0 {
        "the weights are PyTorch's .bin files, which can hold programs and are not read; save the model as safetensors".to_owned()
    } else {
        return Ok(None);
    };
    Err(malformed(dir, why))
}

/// What `model.safetensors.index.json` says.
struct Index {
    path: PathBuf,
    files: BTreeSet<String>,
    map: BTreeMap<String, String>,
}

impl Index {
    fn read(dir: &Path) -> Result<Option<Index>> {
        let Some(fields) = Fields::read(&dir.join(INDEX))? else { return Ok(None) };
        let map = fields.required("weight_map", fields.object("weight_map")?)?;
        let mut index = Index { path: fields.path().to_owned(), files: BTreeSet::new(), map: BTreeMap::new() };
        for name in map.keys() {
            let Some(Json::String(file)) = map.get(name) else { return Err(map.wrong(name, "is not the name of a file")) };
            // A name that leads elsewhere is an attack or an accident, and either way no part of this model.
            if Path::new(file).file_name().is_none_or(|f| f != file.as_str()) || file.contains('\\') {
                return Err(map.wrong(name, &format!("is {file:?}, which is no file of this directory")));
            }
            index.files.insert(file.clone());
            index.map.insert(name.to_owned(), file.clone());
        }
        match index.files.is_empty() {
            true => Err(fields.wrong("weight_map", "names no tensors")),
            false => Ok(Some(index)),
        }
    }

    /// Every tensor is where the index says.
    fn check(&self, homes: &BTreeMap<String, usize>) -> Result<()> {
        for (name, file) in &self.map {
            let found = homes.get(name).is_some_and(|&number| self.files.iter().nth(number) == Some(file));
            if !found {
                return Err(malformed(
                    &self.path,
                    format!("tensor {name} does not stand in {file}; index and files do not belong together, fetch them again"),
                ));
            }
        }
        Ok(())
    }
}

/// The tensors of a file. Every one is within the file, and none overlaps another.
fn contents(path: &Path, file: usize, bytes: &[u8]) -> Result<Vec<Stored>> {
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(malformed(path, "this is a Git LFS pointer in place of the weights; run `git lfs pull`"));
    }
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| {
        malformed(path, format!("this is no whole safetensors file: {e}; the download is incomplete or damaged, fetch it again"))
    })?;
    let data = header.checked_add(size_of::<u64>()).filter(|&start| start <= bytes.len());
    let data = data.ok_or_else(|| malformed(path, "the header is longer than the file; fetch it again"))?;
    let mut tensors = Vec::new();
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let place = data.checked_add(end).filter(|&end| end <= bytes.len() && start <= info.data_offsets.1);
        if place.is_none() {
            return Err(malformed(path, format!("tensor {name} stands beyond the end of the file; fetch it again")));
        }
        let shape = info.shape.clone();
        tensors.push(Stored { name, dtype: info.dtype, shape, file, offset: data + start, bytes: end - start });
    }
    tensors.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
    Ok(tensors)
}
