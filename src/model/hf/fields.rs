//! JSON files of a directory, asked for by key and type. A key that is `null` counts as absent.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use crate::{Error, Result};

/// An object of a JSON file.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    path: PathBuf,
    /// Keys that lead to the object, each with a dot behind it.
    at: String,
    map: Map<String, Json>,
}

/// The bytes of a file that may be absent.
pub(super) fn bytes(path: &Path) -> Result<Option<Vec<u8>>> {
    let io = |source| Error::Io { path: path.to_owned(), action: "read", source };
    match fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io(e)),
        // To read a pipe may wait forever.
        Ok(about) if !about.is_file() => Err(malformed(path, "this is not a regular file; fetch it again")),
        Ok(_) => fs::read(path).map(Some).map_err(io),
    }
}

/// The text of a file that may be absent.
pub(super) fn text(path: &Path) -> Result<Option<String>> {
    let Some(bytes) = bytes(path)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| malformed(path, "this is not UTF-8; the file is damaged, fetch it again"))
}

pub(super) fn malformed(path: &Path, reason: impl Into<String>) -> Error {
    Error::Malformed { path: path.to_owned(), reason: reason.into() }
}

impl Fields {
    /// The object that a file holds; `None` if there is no such file.
    pub(super) fn read(path: &Path) -> Result<Option<Fields>> {
        let Some(text) = text(path)? else { return Ok(None) };
        let json = serde_json::from_str(&text);
        match json.map_err(|e| malformed(path, format!("this is no JSON: {e}; the file is damaged, fetch it again")))? {
            Json::Object(map) => Ok(Some(Fields { path: path.to_owned(), at: String::new(), map })),
            _ => Err(malformed(path, "this is no JSON object; the file is damaged, fetch it again")),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    /// An object within this one.
    pub(super) fn object(&self, key: &str) -> Result<Option<Fields>> {
        let object = self.typed(key, "an object", Json::as_object)?;
        Ok(object.map(|map| Fields { path: self.path.clone(), at: format!("{}{key}.", self.at), map: map.clone() }))
    }

    /// A whole number from 0 to 2^32 - 1.
    pub(super) fn u32(&self, key: &str) -> Result<Option<u32>> {
        // Some writers put 4096.0.
        let whole = |v: &Json| v.as_u64().or_else(|| v.as_f64().filter(|x| x.fract() == 0.0 && *x >= 0.0).map(|x| x as u64));
        self.typed(key, "a whole number from 0 to 4294967295", |v| whole(v)?.try_into().ok())
    }

    /// A finite number.
    pub(super) fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Json::as_f64)
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Json::as_bool)
    }

    pub(super) fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", Json::as_str)
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<&[Json]>> {
        self.typed(key, "a list", |v| v.as_array().map(Vec::as_slice))
    }

    /// A list of finite numbers.
    pub(super) fn f64s(&self, key: &str) -> Result<Option<Vec<f64>>> {
        self.typed(key, "a list of numbers", |v| v.as_array()?.iter().map(Json::as_f64).collect())
    }

    /// One id or a list of them.
    pub(super) fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |v: &Json| u32::try_from(v.as_u64()?).ok();
        let ids = self.typed(key, "a token's id or a list of them", |v| match v {
            Json::Array(list) => list.iter().map(id).collect::<Option<Vec<u32>>>(),
            one => Some(vec![id(one)?]),
        });
        Ok(ids?.unwrap_or_default())
    }

    /// A value that must be there: `fields.required(key, fields.u32(key)?)`.
    pub(super) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.wrong(key, "is missing"))
    }

    /// An error about the value of a key: `problem` goes on after the key.
    pub(super) fn wrong(&self, key: &str, problem: &str) -> Error {
        malformed(&self.path, format!("{}{key} {problem}; the file is damaged or was edited wrongly, fetch it again", self.at))
    }

    /// An error about a value that changes the computation in a way that rml does not have.
    pub(super) fn unsupported(&self, key: &str, problem: &str) -> Error {
        let reason = format!("{}{key} {problem}, which rml does not run; take another model", self.at);
        Error::Unsupported { path: self.path.clone(), reason }
    }

    fn typed<'a, T>(&'a self, key: &str, wanted: &str, pick: impl FnOnce(&'a Json) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match pick(value) {
            Some(picked) => Ok(Some(picked)),
            None => {
                let mut shown = value.to_string();
                if let Some((end, _)) = shown.char_indices().nth(60) {
                    shown.truncate(end);
                    shown.push('…');
                }
                Err(self.wrong(key, &format!("is {shown}, not {wanted}")))
            }
        }
    }
}
