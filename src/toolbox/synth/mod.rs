//! `rml synth`: models of random weights, so that anyone can measure a shape and a format without fetching anything.

mod blocks;
mod file;
mod shapes;
mod vocabulary;

use std::fs;
use std::path::{Path, PathBuf};

use rml_kernels_ref::format::Format;
use serde_json::json;

pub use blocks::Blocks;
pub use file::{Replaced, Synthetic};
pub use shapes::{MatrixShape, Shape};

use super::Output;
use super::new_file::write_new;
use crate::program::{Halt, note};
use crate::{Error, Result};

/// Write a model of random weights, to measure with
///
/// The matrices of the layers are in the format given. As llama.cpp's quantizer does it, the head (or an embedding that serves
/// as head) of a quantized file is in Q6_K, in Q8_0 where rows are no multiple of 256 or the file is Q8_0; where rows of a layer
/// are no multiple of 256, Q4_K becomes Q5_0, Q5_K Q5_1, Q6_K Q8_0, Q2_K, Q3_K and the
/// ternary formats Q4_0, and those of IQ1 to IQ4 IQ4_NL. Norms are ones in F32.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// tiny, smollm2-135m, llama-1b or llama-8b
    #[arg(value_parser = Shape::named)]
    shape: Shape,

    /// The file to write
    #[arg(value_name = "OUT.gguf")]
    out: PathBuf,

    /// Format of the layers' matrices, such as Q4_0, Q4_K or F16
    #[arg(long, default_value = "Q4_0", value_parser = format_named)]
    format: Format,

    /// Where the random weights start: the same seed gives the same file
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> std::result::Result<(), Halt> {
        let model = Synthetic::new(&self.shape, self.format)?;
        for Replaced { asked, written, k, n_matrices } in model.replaced() {
            note(&format!("rows of {k} weights are no multiple of 256: {n_matrices} matrices are in {written}, not in {asked}"));
        }
        write_file(&model, self.seed, &self.out, self.force)?;
        let bytes = fs::metadata(&self.out).map_err(|source| Error::Io { path: self.out.clone(), action: "read", source })?.len();
        let n_weights = self.shape.n_weights();
        let formats = || model.n_matrices().map(|(format, n)| (format.name().to_owned(), n));
        out.either(
            || {
                let matrices: serde_json::Map<_, _> = formats().map(|(format, n)| (format, n.into())).collect();
                json!({"path": self.out, "bytes": bytes, "weights": n_weights, "matrices": matrices, "seed": self.seed})
            },
            || {
                let formats = formats().map(|(format, n)| format!("{n} in {format}")).collect::<Vec<_>>().join(", ");
                format!("{}: {bytes} bytes, {n_weights} weights, matrices: {formats}", self.out.display())
            },
        )
    }
}

/// Writes a model to `path`, under another name until it is whole.
///
/// # Errors
/// [`Error::InvalidArgument`] if the file is there and may not be overwritten; [`Error::Io`] if writing fails.
pub fn write_file(model: &Synthetic, seed: u64, path: &Path, force: bool) -> Result<()> {
    write_new(path, force, |file| model.write(path, seed, file))
}

fn format_named(name: &str) -> std::result::Result<Format, String> {
    let found = Format::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("formats are {}", Format::ALL.map(Format::name).join(", ")))
}
