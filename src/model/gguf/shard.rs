//! Where the bytes of tensors are: a file, or memory that is computed from files.

use std::borrow::Cow;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::mapping::Mapping;
use crate::{Error, Result};

/// A file, or one tensor that is computed from files.
#[derive(Debug)]
pub(in crate::model) struct Shard {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    File(Mapping),
    /// Empty until somebody asks.
    Made(Box<dyn Make>, OnceLock<Mapping>),
}

/// How a tensor's bytes come about.
pub(in crate::model) trait Make: Debug + Send + Sync {
    /// How many they are.
    fn n_bytes(&self) -> usize;

    /// Writes them, all of them. `files` has the bytes of each file.
    fn make(&self, files: &[&[u8]], out: &mut [u8]);
}

impl Shard {
    pub(in crate::model) fn file(path: &Path, mapping: Mapping) -> Self {
        Shard { path: path.to_owned(), place: Place::File(mapping) }
    }

    /// `path` is the file that has most of it, for messages.
    pub(in crate::model) fn made(path: &Path, make: Box<dyn Make>) -> Self {
        Shard { path: path.to_owned(), place: Place::Made(make, OnceLock::new()) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of a file.
    pub(in crate::model) fn file_bytes(&self) -> Option<&[u8]> {
        match &self.place {
            Place::File(mapping) => Some(mapping.bytes()),
            Place::Made(..) => None,
        }
    }

    /// All bytes, computed now if they were not yet. `all` are the model's shards, files first.
    pub(super) fn bytes(&self, all: &[Shard]) -> Result<&[u8]> {
        let (make, made) = match &self.place {
            Place::File(mapping) => return Ok(mapping.bytes()),
            Place::Made(make, made) => (make, made),
        };
        if made.get().is_none() {
            let files: Vec<&[u8]> = all.iter().map_while(Shard::file_bytes).collect();
            let mapping = Mapping::make(make.n_bytes(), |out| make.make(&files, out));
            let mapping =
                mapping.map_err(|source| Error::Io { path: self.path.clone(), action: "find memory for the weights of", source })?;
            // Another thread may have been quicker, with the same bytes.
            let _ = made.set(mapping);
        }
        Ok(made.get().expect("it was set").bytes())
    }

    /// As [`bytes`](Self::bytes), but what has to be computed is the caller's and not kept.
    pub(super) fn bytes_once(&self, all: &[Shard]) -> Result<Cow<'_, [u8]>> {
        match &self.place {
            Place::Made(make, made) if made.get().is_none() => {
                let no_room = |_| {
                    let source = std::io::ErrorKind::OutOfMemory.into();
                    Error::Io { path: self.path.clone(), action: "find memory for the weights of", source }
                };
                let files: Vec<&[u8]> = all.iter().map_while(Shard::file_bytes).collect();
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(make.n_bytes()).map_err(no_room)?;
                bytes.resize(make.n_bytes(), 0);
                make.make(&files, &mut bytes);
                Ok(bytes.into())
            }
            _ => self.bytes(all).map(Cow::Borrowed),
        }
    }

    pub(super) fn release(&self, offset: usize, n_bytes: usize) {
        if let Place::File(mapping) = &self.place {
            mapping.release(offset, n_bytes);
        }
    }
}
