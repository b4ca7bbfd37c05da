//! Metadata of a GGUF file: keys and typed values.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::{Error, Result};

/// A value. Whole numbers of all widths are held in 64 bits.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned whole number.
    U64(u64),
    /// A signed whole number.
    I64(i64),
    /// A float.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(String),
    /// A list of values of one type.
    Array(Array),
}

/// A list.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// 64-bit unsigned numbers.
    U64(Vec<u64>),
    /// Other whole numbers.
    I64(Vec<i64>),
    /// Floats.
    F64(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    String(Vec<String>),
    /// Lists.
    Array(Vec<Array>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Array(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The metadata of one file, in the file's order.
///
/// A getter gives `None` where the key is absent and an error, naming file and key, where its type is another.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pub(super) path: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Adds an entry; false if the key is there already.
    pub(super) fn insert(&mut self, key: String, value: Value) -> bool {
        let new = !self.index.contains_key(&key);
        if new {
            self.index.insert(key.clone(), self.entries.len());
            self.entries.push((key, value));
        }
        new
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// All entries in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The file, for messages.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn typed<'a, T>(&'a self, key: &str, want: &str, pick: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>> {
        self.get(key).map(|v| pick(v).ok_or_else(|| self.malformed(key, &format!("is not {want}")))).transpose()
    }

    /// An error about a key.
    pub fn malformed(&self, key: &str, problem: &str) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            reason: format!("metadata {key} {problem}; the file is damaged or was converted wrongly"),
        }
    }

    /// A value that must be there.
    ///
    /// # Errors
    /// If it is `None`: a message that names file and key.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.malformed(key, "is missing"))
    }

    /// A text.
    #[allow(missing_docs, reason = "see the type")]
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", |v| if let Value::String(s) = v { Some(s.as_str()) } else { None })
    }

    /// A whole number from 0 to 2^32 - 1.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "a whole number from 0 to 4294967295", |v| match *v {
            Value::U64(x) => x.try_into().ok(),
            Value::I64(x) => x.try_into().ok(),
            _ => None,
        })
    }

    /// A finite number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite number", |v| match *v {
            Value::F64(x) if x.is_finite() => Some(x as f32),
            Value::U64(x) => Some(x as f32),
            Value::I64(x) => Some(x as f32),
            _ => None,
        })
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |v| if let Value::Bool(b) = v { Some(*b) } else { None })
    }

    /// A list of texts.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>> {
        self.typed(key, "a list of texts", |v| match v {
            Value::Array(Array::String(s)) => Some(s.as_slice()),
            Value::Array(a) if a.is_empty() => Some(&[][..]),
            _ => None,
        })
    }

    /// A list of floats.
    pub fn f64s(&self, key: &str) -> Result<Option<&[f64]>> {
        self.typed(key, "a list of numbers", |v| if let Value::Array(Array::F64(x)) = v { Some(x.as_slice()) } else { None })
    }

    /// A list of whole numbers.
    pub fn i64s(&self, key: &str) -> Result<Option<&[i64]>> {
        self.typed(key, "a list of whole numbers", |v| if let Value::Array(Array::I64(x)) = v { Some(x.as_slice()) } else { None })
    }
}
