//! `rml inspect`: what stands in a model file, without loading it.

use std::io::Write;
use std::path::Path;

use rml_kernels_ref::format::Format;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::decode::KvType;
use crate::model::gguf::{Array, Metadata, Value};
use crate::model::{Config, Gguf, MemoryPlan, TensorInfo, Tensors, WeightShare, registry};
use crate::{Error, Result};

/// Longest text and longest array that are shown whole to people.
const SHOWN_CHARS: usize = 100;
const SHOWN_ELEMENTS: usize = 6;

/// Writes metadata, tensor table and memory plan of a file: for people, with long values cut short; or as one JSON
/// document, complete.
///
/// A file that rml can read but not run is shown too, with the reason. With each type stands the backend that would multiply
/// it here if none is asked for by name, and whether it decodes the weights when they are loaded.
///
/// # Errors
/// As [`Gguf::open`]; [`Error::Io`] if `out` cannot be written.
pub fn inspect(path: &Path, json: bool, out: &mut dyn Write) -> Result<()> {
    let file = Gguf::open(path)?;
    let config = Config::from_gguf(&file);
    let obstacle = match &config {
        Ok(config) => Tensors::new(&file, config).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    let document = Document {
        architecture: file.metadata().str("general.architecture").ok().flatten(),
        version: file.version(),
        files: file.n_files(),
        metadata: Entries(file.metadata()),
        tensors: file.tensors().iter().map(TensorRow::new).collect(),
        kernels: kernels(&file)?,
        memory: MemoryPlan::new(&file, config.as_ref().ok()),
        notes: file.notes().iter().cloned().chain(obstacle).collect(),
    };
    let written = if json { document.write_json(out) } else { document.write_text(path, out) };
    written.map_err(|source| Error::Io { path: "standard output".into(), action: "write", source })
}

#[derive(Serialize)]
struct Document<'a> {
    architecture: Option<&'a str>,
    version: Option<u32>,
    files: usize,
    metadata: Entries<'a>,
    tensors: Vec<TensorRow<'a>>,
    kernels: Vec<KernelRow>,
    memory: MemoryPlan,
    notes: Vec<String>,
}

struct Entries<'a>(&'a Metadata);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct TensorRow<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: String,
    shape: &'a [usize],
    file: usize,
    offset: usize,
    bytes: usize,
}

impl<'a> TensorRow<'a> {
    fn new(t: &'a TensorInfo) -> Self {
        TensorRow { name: &t.name, kind: t.kind.to_string(), shape: &t.shape, file: t.shard, offset: t.offset, bytes: t.bytes }
    }
}

/// What multiplies a type on this machine.
#[derive(Serialize)]
struct KernelRow {
    #[serde(rename = "type")]
    kind: &'static str,
    backend: &'static str,
    kernel: &'static str,
    /// Bits a weight, in the file and as the kernel wants them.
    bits: f64,
    loaded_bits: f64,
}

/// The kernels of highest rank for the types in the file.
fn kernels(file: &Gguf) -> Result<Vec<KernelRow>> {
    let table = registry()?.table();
    let here = |format: &Format| file.tensors().iter().any(|t| t.kind.format() == Some(*format));
    let row = |format: Format| {
        /// Whole blocks and whole panels of every kernel.
        const SIDE: usize = 256;
        let &(backend, kernel) = table.matmul(format).last()?;
        let layout = kernel.layout(SIDE, SIDE).ok()?;
        let bits = 8.0 * format.block_bytes() as f64 / format.block_len() as f64;
        let loaded_bits = 8.0 * layout.panel_bytes as f64 / (layout.panel_rows * SIDE) as f64;
        Some(KernelRow { kind: format.name(), backend, kernel: kernel.id(), bits, loaded_bits })
    };
    Ok(Format::ALL.into_iter().filter(here).filter_map(row).collect())
}

impl Document<'_> {
    /// `, by avx512`, and what it makes of the weights.
    fn multiplied(&self, share: &WeightShare) -> String {
        match self.kernels.iter().find(|row| row.kind == share.kind) {
            None => String::new(),
            Some(KernelRow { backend, bits, loaded_bits, .. }) if loaded_bits > bits => {
                format!(", multiplied by {backend}, decoded to {loaded_bits:.1} bits each when loaded")
            }
            Some(KernelRow { backend, .. }) => format!(", multiplied by {backend}"),
        }
    }

    fn write_json(&self, out: &mut dyn Write) -> std::io::Result<()> {
        // Buffered here: the standard output flushes at each newline, and this has hundreds of thousands of small writes.
        let mut out = std::io::BufWriter::new(out);
        serde_json::to_writer(&mut out, self)?;
        writeln!(out)?;
        out.flush()
    }

    fn write_text(&self, path: &Path, out: &mut dyn Write) -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(out);
        let MemoryPlan { file_bytes, weight_bytes, weights, kv } = &self.memory;
        let files = if self.files == 1 { String::new() } else { format!(" in {} files", self.files) };
        let form = self.version.map_or("Hugging Face directory".to_owned(), |version| format!("GGUF version {version}"));
        writeln!(out, "{}: {form}, {}{files}", path.display(), size(*file_bytes))?;

        writeln!(out, "\nMetadata ({})", self.metadata.0.len())?;
        let width = self.metadata.0.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
        for (key, value) in self.metadata.0.iter() {
            writeln!(out, "  {key:width$}  {}", shown(value))?;
        }

        writeln!(out, "\nTensors ({}), shape with the row length first", self.tensors.len())?;
        let width = self.tensors.iter().map(|t| t.name.chars().count()).max().unwrap_or(0);
        for t in &self.tensors {
            let shape = t.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
            writeln!(out, "  {:width$}  {:8}  {shape:16}  {:>10}", t.name, t.kind, size(t.bytes as u64))?;
        }

        writeln!(out, "\nMemory")?;
        writeln!(out, "  {:20}  {:>10}", "weights", size(*weight_bytes))?;
        for share in weights {
            let n = format!("  {} ({})", share.kind, share.tensors);
            writeln!(out, "  {n:20}  {:>10}  {} weights{}", size(share.bytes), share.weights, self.multiplied(share))?;
        }
        if let Some(kv) = kv {
            for kind in KvType::ALL {
                let (token, all) = (kv.bytes_per_token.of(kind), kv.bytes_at_context.of(kind));
                let what = format!("KV cache in {}", kind.name());
                writeln!(out, "  {what:20}  {:>10}  for {} tokens, {token} bytes each", size(all), kv.context_length)?;
            }
        }
        for note in &self.notes {
            writeln!(out, "\nNote: {note}")?;
        }
        out.flush()
    }
}

/// A size for people.
fn size(bytes: u64) -> String {
    let (mut x, mut unit) = (bytes as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if x < 1024.0 {
            break;
        }
        (x, unit) = (x / 1024.0, larger);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{x:.1} {unit}") }
}

/// A value on one line, safe for a terminal, cut short where it is long.
fn shown(value: &Value) -> String {
    match value {
        Value::U8(x) => x.to_string(),
        Value::I8(x) => x.to_string(),
        Value::U16(x) => x.to_string(),
        Value::I16(x) => x.to_string(),
        Value::U32(x) => x.to_string(),
        Value::I32(x) => x.to_string(),
        Value::F32(x) => x.to_string(),
        Value::Bool(x) => x.to_string(),
        Value::String(x) => shown_text(x),
        Value::Array(x) => shown_array(x),
        Value::U64(x) => x.to_string(),
        Value::I64(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
    }
}

fn shown_text(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

fn shown_array(array: &Array) -> String {
    fn few<T>(elements: impl Iterator<Item = T>, show: impl Fn(T) -> String) -> String {
        elements.take(SHOWN_ELEMENTS).map(show).collect::<Vec<_>>().join(", ")
    }
    let elements = match array {
        Array::U8(a) => few(a.iter(), u8::to_string),
        Array::I8(a) => few(a.iter(), i8::to_string),
        Array::U16(a) => few(a.iter(), u16::to_string),
        Array::I16(a) => few(a.iter(), i16::to_string),
        Array::U32(a) => few(a.iter(), u32::to_string),
        Array::I32(a) => few(a.iter(), i32::to_string),
        Array::F32(a) => few(a.iter(), f32::to_string),
        Array::Bool(a) => few(a.iter(), bool::to_string),
        Array::Strings(a) => few(a.iter(), shown_text),
        Array::Arrays(a) => few(a.iter(), |inner| format!("{} {}", inner.len(), inner.element_name())),
        Array::U64(a) => few(a.iter(), u64::to_string),
        Array::I64(a) => few(a.iter(), i64::to_string),
        Array::F64(a) => few(a.iter(), f64::to_string),
    };
    if array.len() > SHOWN_ELEMENTS {
        format!("[{elements}, … ({} {})]", array.len(), array.element_name())
    } else {
        format!("[{elements}]")
    }
}
