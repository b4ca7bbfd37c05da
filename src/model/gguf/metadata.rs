//! The keys and values of a file, found by key and asked for by type.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::strings::Strings;
use super::value::{Array, Value};
use crate::{Error, Result};

/// The keys and values of a file, in its order.
#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    pub(super) fn new(path: &Path, entries: Vec<(String, Value)>) -> Self {
        let index = entries.iter().enumerate().map(|(i, (key, _))| (key.clone(), i)).collect();
        Metadata { path: path.to_owned(), entries, index }
    }

    /// All entries.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key, of whatever type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// A text.
    ///
    /// # Errors
    /// If the key has a value of another type. So it is for all getters; a key that is absent is `None`.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", |v| if let Value::String(s) = v { Some(s.as_str()) } else { None })
    }

    /// A whole number of 32 bits, stored in any integer type.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "a whole number from 0 to 4294967295", |v| v.as_u64()?.try_into().ok())
    }

    /// A finite number, stored as f32 or f64.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite number", |v| v.as_f32().filter(|x| x.is_finite()))
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |v| if let Value::Bool(b) = *v { Some(b) } else { None })
    }

    /// An array of texts.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.typed(key, "an array of texts", |v| if let Value::Array(Array::Strings(a)) = v { Some(a) } else { None })
    }

    /// An array of f32.
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>> {
        self.typed(key, "an array of f32", |v| if let Value::Array(Array::F32(a)) = v { Some(a.as_slice()) } else { None })
    }

    /// An array of i32.
    pub fn i32s(&self, key: &str) -> Result<Option<&[i32]>> {
        self.typed(key, "an array of i32", |v| if let Value::Array(Array::I32(a)) = v { Some(a.as_slice()) } else { None })
    }

    /// A value that must be there: `metadata.required(key, metadata.u32(key)?)`.
    ///
    /// # Errors
    /// [`Error::Malformed`] naming the key, if the value is `None`.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.malformed(key, "is missing"))
    }

    /// An error about the value of a key: `problem` goes on after the key.
    pub fn malformed(&self, key: &str, problem: &str) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            reason: format!("metadata {key} {problem}; the file is damaged or was converted wrongly, convert or fetch it again"),
        }
    }

    fn typed<'a, T>(&'a self, key: &str, wanted: &str, pick: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match pick(value) {
            Some(picked) => Ok(Some(picked)),
            None => Err(self.malformed(key, &format!("is {}, not {wanted}", value.describe()))),
        }
    }
}
