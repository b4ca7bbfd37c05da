//! Writing GGUF, version 3, little-endian.

use std::io::{self, Write};
use std::path::Path;

use super::parse::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use super::types::TensorType;
use super::value::{Array, Value};
use crate::{Error, Result};

/// A file to be written: metadata and the tensor table now, the tensors' bytes when they are asked for.
///
/// ```
/// use rml::model::gguf::{Gguf, TensorType, Value, Writer};
/// let mut writer = Writer::new();
/// writer.set("general.architecture", Value::String("llama".into()));
/// writer.tensor("output_norm.weight", TensorType(0), &[2])?;
/// let mut bytes = Vec::new();
/// writer.write("tiny.gguf".as_ref(), &mut bytes, |_, out| {
///     out.extend([1.0_f32, 2.0].iter().flat_map(|x| x.to_le_bytes()));
///     Ok(())
/// })?;
/// let file = Gguf::from_bytes("tiny.gguf".as_ref(), &bytes)?;
/// assert_eq!(file.metadata().str("general.architecture")?, Some("llama"));
/// # Ok::<(), rml::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Writer {
    metadata: Vec<(String, Value)>,
    tensors: Vec<Planned>,
}

#[derive(Clone, Debug)]
struct Planned {
    name: String,
    kind: TensorType,
    shape: Vec<usize>,
    n_bytes: usize,
}

impl Writer {
    /// A file with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key, in place of an earlier value. `general.alignment` is the writer's own and is left out.
    pub fn set(&mut self, key: &str, value: Value) {
        if key == ALIGNMENT_KEY {
            return;
        }
        match self.metadata.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
    }

    /// Adds a tensor; `shape` starts with the row length. Returns its index.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the type is unknown, or the shape is impossible or no whole number of blocks.
    pub fn tensor(&mut self, name: &str, kind: TensorType, shape: &[usize]) -> Result<usize> {
        let invalid = || Error::invalid("tensor", format!("{name} cannot have the shape {shape:?} in {kind}"));
        let (block_len, block_bytes) = kind.block().ok_or_else(invalid)?;
        if !(1..=4).contains(&shape.len()) || shape.contains(&0) || !shape[0].is_multiple_of(block_len) {
            return Err(invalid());
        }
        let n_weights = shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d)).ok_or_else(invalid)?;
        let n_bytes = (n_weights / block_len).checked_mul(block_bytes).ok_or_else(invalid)?;
        self.tensors.push(Planned { name: name.to_owned(), kind, shape: shape.to_vec(), n_bytes });
        Ok(self.tensors.len() - 1)
    }

    /// Writes the file. `fill` is called for each tensor in order and appends its bytes to the empty buffer it gets.
    /// `path` only names the file in messages.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails, [`Error::InvalidArgument`] if `fill` gives another number of bytes than the tensor has,
    /// and whatever `fill` returns.
    pub fn write(&self, path: &Path, out: &mut dyn Write, mut fill: impl FnMut(usize, &mut Vec<u8>) -> Result<()>) -> Result<()> {
        let io = |source| Error::Io { path: path.to_owned(), action: "write", source };
        let mut buffer = self.header();
        out.write_all(&buffer).map_err(io)?;
        for (i, tensor) in self.tensors.iter().enumerate() {
            buffer.clear();
            fill(i, &mut buffer)?;
            tensor.check(buffer.len())?;
            buffer.resize(aligned(buffer.len()), 0);
            out.write_all(&buffer).map_err(io)?;
        }
        out.flush().map_err(io)
    }

    /// As [`write`](Self::write), for tensors that are too large to be held: `fill` writes the bytes of each as they come.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_streamed(
        &self,
        path: &Path,
        out: &mut dyn Write,
        mut fill: impl FnMut(usize, &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let io = |source| Error::Io { path: path.to_owned(), action: "write", source };
        out.write_all(&self.header()).map_err(io)?;
        for (i, tensor) in self.tensors.iter().enumerate() {
            let mut counted = Counted { out: &mut *out, n_bytes: 0 };
            fill(i, &mut counted)?;
            let n_bytes = counted.n_bytes;
            tensor.check(n_bytes)?;
            out.write_all(&[0; DEFAULT_ALIGNMENT as usize][..aligned(n_bytes) - n_bytes]).map_err(io)?;
        }
        out.flush().map_err(io)
    }

    /// Everything before the tensors' bytes, padded.
    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(3_u32.to_le_bytes());
        put_len(&mut out, self.tensors.len());
        put_len(&mut out, self.metadata.len());
        for (key, value) in &self.metadata {
            put_text(&mut out, key);
            out.extend(value.type_id().to_le_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_text(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|&d| put_len(&mut out, d));
            out.extend(tensor.kind.0.to_le_bytes());
            put_len(&mut out, offset);
            offset += aligned(tensor.n_bytes);
        }
        out.resize(aligned(out.len()), 0);
        out
    }
}

impl Planned {
    fn check(&self, n_bytes: usize) -> Result<()> {
        if n_bytes == self.n_bytes {
            return Ok(());
        }
        Err(Error::invalid("fill", format!("tensor {} has {} bytes, got {n_bytes}", self.name, self.n_bytes)))
    }
}

/// Counts what goes through it.
struct Counted<'a> {
    out: &'a mut dyn Write,
    n_bytes: usize,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.n_bytes += n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn aligned(n_bytes: usize) -> usize {
    n_bytes.next_multiple_of(DEFAULT_ALIGNMENT as usize)
}

fn put_len(out: &mut Vec<u8>, n: usize) {
    out.extend((n as u64).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(x) => out.push(*x),
        Value::I8(x) => out.extend(x.to_le_bytes()),
        Value::U16(x) => out.extend(x.to_le_bytes()),
        Value::I16(x) => out.extend(x.to_le_bytes()),
        Value::U32(x) => out.extend(x.to_le_bytes()),
        Value::I32(x) => out.extend(x.to_le_bytes()),
        Value::F32(x) => out.extend(x.to_le_bytes()),
        Value::Bool(x) => out.push((*x).into()),
        Value::String(x) => put_text(out, x),
        Value::Array(x) => put_array(out, x),
        Value::U64(x) => out.extend(x.to_le_bytes()),
        Value::I64(x) => out.extend(x.to_le_bytes()),
        Value::F64(x) => out.extend(x.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend(array.element_id().to_le_bytes());
    put_len(out, array.len());
    match array {
        Array::U8(a) => out.extend(a),
        Array::I8(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(a) => out.extend(a.iter().map(|&x| u8::from(x))),
        Array::Strings(a) => a.iter().for_each(|x| put_text(out, x)),
        Array::Arrays(a) => a.iter().for_each(|x| put_array(out, x)),
        Array::U64(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(a) => out.extend(a.iter().flat_map(|x| x.to_le_bytes())),
    }
}
