//! Models split over several files: `NAME-00001-of-00003.gguf` and so on, each a GGUF file of its own.
//!
//! Source: `gguf-split` of llama.cpp. Each part says its number (from 0) in `split.no` and how many there are in
//! `split.count`; the first part holds the metadata. Any part may be given, the others are found beside it.

use std::path::{Path, PathBuf};

use super::metadata::Metadata;
use crate::{Error, Result};

/// Which part of a set a file is.
pub(super) struct Part {
    /// From 0.
    pub(super) number: u32,
    /// How many parts there are, at least 2.
    pub(super) count: u32,
}

impl Part {
    /// What the metadata of a file says; `None` if the file stands alone.
    pub(super) fn of(metadata: &Metadata) -> Result<Option<Part>> {
        let count = metadata.u32("split.count")?.unwrap_or(1);
        let number = metadata.u32("split.no")?.unwrap_or(0);
        if count > 1 && number >= count {
            return Err(metadata.malformed("split.no", &format!("is {number}, but split.count is {count}")));
        }
        Ok((count > 1).then_some(Part { number, count }))
    }

    /// Paths of all parts, given the path of this one.
    pub(super) fn paths(&self, path: &Path) -> Result<impl Iterator<Item = PathBuf>> {
        let count = self.count;
        let own = suffix(self.number, count);
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(&own)).map(str::to_owned);
        let Some(name) = name else {
            return Err(Error::Malformed {
                path: path.to_owned(),
                reason: format!(
                    "this is part {} of a model in {count} files, but is not named so; name it NAME{own}, and the other parts alike",
                    self.number + 1
                ),
            });
        };
        let path = path.to_owned();
        Ok((0..count).map(move |i| path.with_file_name(format!("{name}{}", suffix(i, count)))))
    }
}

fn suffix(number: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", number + 1)
}
