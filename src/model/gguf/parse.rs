//! The file's table of contents: header, metadata, tensor table.

use std::collections::HashSet;

use super::TensorInfo;
use super::cursor::{Cursor, Read};
use super::types::TensorType;
use super::value::Value;

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
/// Alignment of tensors where the file does not say.
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
const MOST_DIMENSIONS: u32 = 4;

/// What a file says that it holds, checked against its size.
pub(super) struct Contents {
    pub(super) version: u32,
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) tensors: Vec<TensorInfo>,
    /// What was tolerated.
    pub(super) notes: Vec<String>,
}

/// Reads the contents of file number `shard` of a set.
pub(super) fn parse(bytes: &[u8], shard: usize) -> Read<Contents> {
    let mut c = Cursor::new(bytes);
    let version = version(&mut c, bytes)?;
    // At least: length of the name and a letter, number of dimensions, a dimension, type, offset.
    let n_tensors = c.count(8 + 1 + 4 + 8 + 4 + 8, "the number of tensors")?;
    // At least: length of the key and a letter, type, a byte.
    let n_entries = c.count(8 + 1 + 4 + 1, "the number of metadata entries")?;
    let mut notes = Vec::new();
    let metadata = entries(&mut c, n_entries, &mut notes)?;
    let alignment = alignment(&metadata)?;
    let headers = (0..n_tensors).map(|i| TensorHeader::read(&mut c, i)).collect::<Read<Vec<_>>>()?;
    let mut names = HashSet::with_capacity(n_tensors);
    if let Some(twice) = headers.iter().find(|h| !names.insert(h.name.as_str())) {
        return Err(format!("tensor {} stands twice in the tensor table; the file is damaged or was written wrongly", twice.name));
    }
    let Some(data) = (c.at() as u64).checked_next_multiple_of(alignment) else {
        return Err(format!("metadata {ALIGNMENT_KEY} is {alignment}, beyond the end of any file; the file is damaged"));
    };
    let place = Place { shard, alignment, data, file: bytes.len() as u64 };
    let tensors = headers.into_iter().map(|h| place.put(h)).collect::<Read<_>>()?;
    Ok(Contents { version, metadata, tensors, notes })
}

/// Files that are often taken for models: how they start, what they are, and the remedy.
const OTHER_FILES: &[(&[u8], &str)] = &[
    (b"version https://git-lfs", "a Git LFS pointer in place of the model; run `git lfs pull`"),
    (b"lmgg", "a model from before GGUF (GGML); convert the original model again"),
    (b"fmgg", "a model from before GGUF (GGMF); convert the original model again"),
    (b"tjgg", "a model from before GGUF (GGJT); convert the original model again"),
    (b"algg", "an adapter from before GGUF (GGLA); convert the original again"),
    (b"PK\x03\x04", "a ZIP archive, perhaps PyTorch weights; convert it to GGUF"),
    (b"<", "a web page or XML, so the download went wrong; fetch the file itself"),
];

fn version(c: &mut Cursor<'_>, bytes: &[u8]) -> Read<u32> {
    if !bytes.starts_with(MAGIC) {
        // First, as their length may look like the start of another file.
        if is_safetensors(bytes) {
            return Err("not a GGUF file but safetensors, which hold weights alone; give the directory that it stands in".into());
        }
        if let Some((_, what)) = OTHER_FILES.iter().find(|(start, _)| bytes.starts_with(start)) {
            return Err(format!("not a GGUF file but {what}"));
        }
        let start = bytes[..bytes.len().min(MAGIC.len())].escape_ascii();
        return Err(format!("not a GGUF file: it starts with \"{start}\", not with \"GGUF\"; give a .gguf file"));
    }
    c.take(MAGIC.len() as u64, "the magic")?;
    match c.u32("the version")? {
        v @ (2 | 3) => Ok(v),
        1 => Err("GGUF version 1, which is not read any more; convert the original model again".into()),
        v if (1..=3).contains(&v.swap_bytes()) => Err(format!(
            "big-endian GGUF (version {}); convert it to little-endian with the gguf package's gguf-convert-endian",
            v.swap_bytes()
        )),
        v => Err(format!("GGUF version {v} at 4, but versions 2 and 3 are read; the file is newer than this program, or damaged")),
    }
}

/// Safetensors start with the length of a JSON object, which follows.
fn is_safetensors(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    length.is_some_and(|n| (2..bytes.len() as u64).contains(&n)) && bytes[8..].starts_with(b"{\"")
}

fn entries(c: &mut Cursor<'_>, n: usize, notes: &mut Vec<String>) -> Read<Vec<(String, Value)>> {
    let mut entries = Vec::with_capacity(n);
    let mut keys = HashSet::with_capacity(n);
    for i in 0..n {
        let key = c.name(&format!("the key of metadata entry {i}"))?;
        let what = format!("metadata {key}");
        if !keys.insert(key.clone()) {
            return Err(format!("{what} stands twice; the file is damaged or was written wrongly"));
        }
        let id = c.u32(&what)?;
        let value = Value::read(c, id, &what, notes)?;
        entries.push((key, value));
    }
    Ok(entries)
}

fn alignment(metadata: &[(String, Value)]) -> Read<u64> {
    let Some((_, value)) = metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    value.as_u64().filter(|a| a.is_power_of_two()).ok_or_else(|| {
        format!(
            "metadata {ALIGNMENT_KEY} is {}; it must be a power of two, so the file is damaged or was written wrongly",
            value.describe()
        )
    })
}

/// An entry of the tensor table, as it stands there.
struct TensorHeader {
    name: String,
    shape: Vec<u64>,
    kind: TensorType,
    offset: u64,
}

impl TensorHeader {
    fn read(c: &mut Cursor<'_>, i: usize) -> Read<Self> {
        let name = c.name(&format!("the name of tensor {i}"))?;
        let what = format!("tensor {name}");
        let at = c.at();
        let n_dims = c.u32(&what)?;
        if !(1..=MOST_DIMENSIONS).contains(&n_dims) {
            return Err(format!("{what} has {n_dims} dimensions at {at}, where 1 to {MOST_DIMENSIONS} are possible; the file is damaged"));
        }
        let shape = (0..n_dims).map(|_| c.u64(&what)).collect::<Read<Vec<_>>>()?;
        if shape.contains(&0) {
            return Err(format!("{what} has the shape {shape:?} at {at}, which holds nothing; the file is damaged or was written wrongly"));
        }
        Ok(TensorHeader { name, shape, kind: TensorType(c.u32(&what)?), offset: c.u64(&what)? })
    }
}

/// Where the tensors of a file stand.
struct Place {
    shard: usize,
    alignment: u64,
    /// Start of the data that offsets count from.
    data: u64,
    /// Length of the file.
    file: u64,
}

impl Place {
    /// Checks a tensor's size and place.
    fn put(&self, header: TensorHeader) -> Read<TensorInfo> {
        let TensorHeader { name, shape, kind, offset } = header;
        let too_large = || format!("tensor {name} has the shape {shape:?}, which no file can hold; the file is damaged");
        let n_weights = shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d)).ok_or_else(too_large)?;
        let n_bytes = match kind.block() {
            Some((block_len, _)) if !shape[0].is_multiple_of(block_len as u64) => {
                return Err(format!(
                    "tensor {name} has rows of {}, but its type {kind} stores {block_len} together; the file is damaged",
                    shape[0]
                ));
            }
            Some((block_len, block_bytes)) => (n_weights / block_len as u64).checked_mul(block_bytes as u64).ok_or_else(too_large)?,
            None => 0,
        };
        if !offset.is_multiple_of(self.alignment) {
            return Err(format!(
                "tensor {name} stands at offset {offset}, which is no multiple of the alignment {}; the file is damaged or was written wrongly",
                self.alignment
            ));
        }
        let start = self.data.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(n_bytes));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(format!("tensor {name} stands at offset {offset}, which no file can hold; the file is damaged"));
        };
        if end > self.file {
            return Err(format!("tensor {name} needs {n_bytes} bytes at {start}, file ends at {}; the download is incomplete", self.file));
        }
        // The file's length was addressable, and so are places within it.
        usize::try_from(n_weights).map_err(|_| too_large())?;
        let shape = shape.iter().map(|&d| d as usize).collect();
        let [offset, bytes] = [start, n_bytes].map(|x| usize::try_from(x).expect("within the file's length"));
        Ok(TensorInfo { name, kind, shape, offset, bytes, shard: self.shard })
    }
}
