//! `rml widen`: a model that computes the same as another and takes longer.
//!
//! Layers are added whose last matrices, of attention and of the feed-forward part, are zero, so that what they add to the
//! residual stream is zero; the rest of their weights are those of the layers that were there. With it a draft can be had
//! that is right as often as one likes and that costs any share of the target.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Output;
use super::new_file::write_new;
use super::target;
use crate::model::gguf::{TensorType, Value, Writer};
use crate::model::{Config, Gguf, TensorInfo, Tensors};
use crate::program::Halt;
use crate::{Error, Result};

/// Where the bytes of a widened file would be more than anyone wants.
const DEAREST: f64 = 1000.0;

/// Write a model that computes the same but takes longer, to measure what guessing ahead brings
///
/// Layers are added that multiply as much as the others and add zero. Bytes of weights that a step reads grow by the factor
/// given, as near as whole layers allow.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which model, as in rml-chat
    model: String,

    /// The file to write
    #[arg(value_name = "OUT.gguf")]
    out: PathBuf,

    /// How many times longer a step should take, 1 to 1000
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    cost: f64,

    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,
}

fn factor(text: &str) -> std::result::Result<f64, String> {
    text.parse().ok().filter(|n| (1.0..=DEAREST).contains(n)).ok_or_else(|| format!("it must be a number from 1 to {DEAREST}"))
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> std::result::Result<(), Halt> {
        let file = Gguf::open(&target::file(&self.model)?)?;
        let wide = Wide::new(&file, self.cost)?;
        write_new(&self.out, self.force, |file| wide.write(&self.out, file))?;
        let (n_layers, cost) = (wide.n_layers, wide.cost);
        out.either(
            || json!({"path": self.out, "layers": n_layers, "cost": cost}),
            || format!("{}: {n_layers} layers, {cost:.2} times the weights", self.out.display()),
        )
    }
}

/// A file to be written.
struct Wide<'a> {
    file: &'a Gguf,
    writer: Writer,
    tensors: Vec<Source<'a>>,
    n_layers: usize,
    cost: f64, // as it came out
}

/// What comes last before the residual stream: where it is 0, a layer adds nothing.
const LAST: [&str; 4] = ["attn_output.", "post_attention_norm.", "ffn_down", "post_ffw_norm."];

/// Where the bytes of a tensor come from.
enum Source<'a> {
    Copy(&'a TensorInfo),
    Zeros(usize),
}

impl<'a> Wide<'a> {
    fn new(file: &'a Gguf, cost: f64) -> Result<Self> {
        let config = Config::from_gguf(file)?;
        let tensors = Tensors::new(file, &config)?;
        let all: usize = tensors.matrices().map(|t| t.bytes).sum();
        let of_layers = all - tensors.head().bytes;
        let a_layer = of_layers as f64 / config.n_layers as f64;
        let n_added = ((cost - 1.0) * all as f64 / a_layer).round() as usize;
        let mut wide = Wide {
            file,
            writer: Writer::new(),
            tensors: Vec::new(),
            n_layers: config.n_layers + n_added,
            cost: 1.0 + n_added as f64 * a_layer / all as f64,
        };
        for (key, value) in file.metadata().iter().filter(|(key, _)| !key.starts_with("split.")) {
            wide.writer.set(key, value.clone());
        }
        let n = u32::try_from(wide.n_layers).map_err(|_| Error::invalid("cost", "more layers than a file can have"))?;
        wide.writer.set(&format!("{}.block_count", config.architecture), Value::U32(n));
        for t in file.tensors() {
            wide.add(&t.name, t, false)?;
        }
        if config.family.scaled_by_width.is_some() {
            // What the number of layers says of it no longer holds.
            wide.writer.set(&format!("{}.attention.scale", config.architecture), Value::F32(config.attention_scale));
        }
        for layer in config.n_layers..wide.n_layers {
            let from = format!("blk.{}.", layer % config.n_layers);
            for (role, t) in file.tensors().iter().filter_map(|t| Some((t.name.strip_prefix(&from)?, t))) {
                wide.add(&format!("blk.{layer}.{role}"), t, LAST.iter().any(|last| role.starts_with(last)))?;
            }
        }
        Ok(wide)
    }

    fn add(&mut self, name: &str, like: &'a TensorInfo, zero: bool) -> Result<()> {
        self.writer.tensor(name, TensorType(like.kind.0), &like.shape)?;
        // Zero bytes are zero weights in every format: a block of scale 0, or the number 0.
        self.tensors.push(if zero { Source::Zeros(like.bytes) } else { Source::Copy(like) });
        Ok(())
    }

    fn write(&self, path: &Path, out: &mut dyn Write) -> Result<()> {
        self.writer.write_streamed(path, out, |i, out| {
            let written = match self.tensors[i] {
                Source::Copy(tensor) => out.write_all(self.file.bytes(tensor)),
                Source::Zeros(n_bytes) => zeros(n_bytes, out),
            };
            written.map_err(|source| Error::Io { path: path.to_owned(), action: "write", source })
        })
    }
}

fn zeros(n_bytes: usize, out: &mut dyn Write) -> io::Result<()> {
    let piece = [0; 1 << 12];
    let mut left = n_bytes;
    while left > 0 {
        let n = left.min(piece.len());
        out.write_all(&piece[..n])?;
        left -= n;
    }
    Ok(())
}
