//! The file of a synthetic model: which tensor in which format, the metadata, and the bytes as they are written.

use std::io::{self, Write};
use std::path::Path;

use rml_kernels_ref::exam::fills::Random;
use rml_kernels_ref::format::Format;

use super::blocks::Blocks;
use super::shapes::{MatrixShape, Shape};
use super::vocabulary::{LEAST, set_vocabulary};
use crate::model::gguf::{TensorType, Value, Writer};
use crate::model::quantize::fallback;
use crate::{Error, Result};

/// Bytes that are made before they are written.
const PIECE: usize = 1 << 20;

/// A model to be written.
#[derive(Clone, Debug)]
pub struct Synthetic {
    writer: Writer,
    tensors: Vec<Tensor>,
    replaced: Vec<Replaced>,
}

/// What the weights of a tensor are.
#[derive(Clone, Copy, Debug)]
struct Tensor {
    format: Format,
    n_bytes: usize,
    deviation: Option<f32>, // of random weights; a norm has ones
}

/// A format that rows of some length cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// What was asked for.
    pub asked: Format,
    /// What is written.
    pub written: Format,
    /// Length of the rows.
    pub k: usize,
    /// Number of matrices.
    pub n_matrices: usize,
}

impl Synthetic {
    /// A model of this shape with its layers' matrices in `format`.
    ///
    /// As llama.cpp's quantizer does it, the head (or an embedding that serves as head) of a quantized file is Q6_K, or Q8_0
    /// where rows are no multiple of 256 and in a Q8_0 file; an embedding of its own is as the layers are.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a shape that no file can have.
    pub fn new(shape: &Shape, format: Format) -> Result<Self> {
        if shape.n_vocab < LEAST {
            return Err(Error::invalid("shape", format!("{} has {} tokens, where {LEAST} are needed", shape.name, shape.n_vocab)));
        }
        let mut model = Synthetic { writer: Writer::new(), tensors: Vec::new(), replaced: Vec::new() };
        model.set_metadata(shape, format);
        let head = shape.head();
        if shape.tied {
            model.matrix("token_embd.weight", head, head_format(format, head.k))?;
        } else {
            let stored = model.stored(format, head.k);
            model.matrix("token_embd.weight", head, stored)?;
        }
        for layer in 0..shape.n_layers {
            model.norm(&format!("blk.{layer}.attn_norm.weight"), shape.d_model)?;
            for m in shape.layer() {
                if m.role == "ffn_gate" {
                    model.norm(&format!("blk.{layer}.ffn_norm.weight"), shape.d_model)?;
                }
                let stored = model.stored(format, m.k);
                model.matrix(&format!("blk.{layer}.{}.weight", m.role), m, stored)?;
            }
        }
        model.norm("output_norm.weight", shape.d_model)?;
        if !shape.tied {
            model.matrix("output.weight", head, head_format(format, head.k))?;
        }
        Ok(model)
    }

    /// Formats that were replaced, each once a length of rows.
    pub fn replaced(&self) -> &[Replaced] {
        &self.replaced
    }

    /// Number of matrices in each format that occurs, in the order of [`Format::ALL`]; norms do not count.
    pub fn n_matrices(&self) -> impl Iterator<Item = (Format, usize)> {
        let count = |f: Format| self.tensors.iter().filter(|t| t.format == f && t.deviation.is_some()).count();
        Format::ALL.into_iter().map(move |f| (f, count(f))).filter(|(_, n)| *n > 0)
    }

    /// Writes the file, holding no more than a small part of it. `path` only names it in messages.
    /// The same shape, format and seed give the same bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails.
    pub fn write(&self, path: &Path, seed: u64, out: &mut dyn Write) -> Result<()> {
        let mut random = Random::new(seed);
        let blocks = Format::ALL.map(Blocks::new);
        let mut piece = Vec::new();
        let io = |source| Error::Io { path: path.to_owned(), action: "write", source };
        self.writer.write_streamed(path, out, |i, out| {
            let tensor = self.tensors[i];
            match tensor.deviation {
                None => ones(tensor.n_bytes, out).map_err(io),
                Some(deviation) => {
                    let whole = PIECE / tensor.format.block_bytes() * tensor.format.block_bytes();
                    let mut left = tensor.n_bytes;
                    while left > 0 {
                        piece.resize(left.min(whole), 0);
                        blocks[tensor.format as usize].fill(deviation, &mut piece, &mut random);
                        out.write_all(&piece).map_err(io)?;
                        left -= piece.len();
                    }
                    Ok(())
                }
            }
        })
    }

    fn set_metadata(&mut self, shape: &Shape, format: Format) {
        let w = &mut self.writer;
        w.set("general.architecture", Value::String("llama".into()));
        w.set("general.name", Value::String(format!("synthetic {} {format}", shape.name)));
        for (key, n) in [
            ("block_count", shape.n_layers),
            ("embedding_length", shape.d_model),
            ("feed_forward_length", shape.d_ff),
            ("attention.head_count", shape.n_heads),
            ("attention.head_count_kv", shape.n_kv_heads),
            ("attention.key_length", shape.d_head),
            ("attention.value_length", shape.d_head),
            ("rope.dimension_count", shape.d_head),
            ("vocab_size", shape.n_vocab),
            ("context_length", shape.context_length as usize),
        ] {
            w.set(&format!("llama.{key}"), Value::U32(n as u32));
        }
        w.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
        w.set("llama.rope.freq_base", Value::F32(shape.rope_base));
        set_vocabulary(w, shape.n_vocab);
    }

    fn norm(&mut self, name: &str, d: usize) -> Result<()> {
        self.writer.tensor(name, TensorType::from(Format::F32), &[d])?;
        self.tensors.push(Tensor { format: Format::F32, n_bytes: 4 * d, deviation: None });
        Ok(())
    }

    fn matrix(&mut self, name: &str, m: MatrixShape, format: Format) -> Result<()> {
        self.writer.tensor(name, TensorType::from(format), &[m.k, m.n])?;
        let n_bytes = m.n * m.k / format.block_len() * format.block_bytes();
        // Outputs then spread as inputs do.
        self.tensors.push(Tensor { format, n_bytes, deviation: Some(1.0 / (m.k as f32).sqrt()) });
        Ok(())
    }

    /// The format that rows of `k` weights get where `asked` is wanted.
    fn stored(&mut self, asked: Format, k: usize) -> Format {
        let written = fallback(asked, k);
        if written != asked {
            match self.replaced.iter_mut().find(|r| r.k == k) {
                Some(replaced) => replaced.n_matrices += 1,
                None => self.replaced.push(Replaced { asked, written, k, n_matrices: 1 }),
            }
        }
        written
    }
}

/// The format of the head of a file whose layers are in `format`.
fn head_format(format: Format, k: usize) -> Format {
    match format {
        _ if format.is_float() => format,
        Format::Q8_0 => Format::Q8_0,
        _ => fallback(Format::Q6_K, k),
    }
}

fn ones(n_bytes: usize, out: &mut dyn Write) -> io::Result<()> {
    (0..n_bytes / 4).try_for_each(|_| out.write_all(&1_f32.to_le_bytes()))
}
