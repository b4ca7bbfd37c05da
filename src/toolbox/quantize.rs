//! `rml quantize` and `rml convert`: a model written with its matrices in another type.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::Output;
use super::new_file::{tidy_on_interrupt, write_new};
use super::target;
use crate::exec::Team;
use crate::fetch::Progress;
use crate::model::Gguf;
use crate::model::quantize::{FileType, Quantized};
use crate::program::{Halt, counted, file_type, note, thread_count};
use crate::{Error, Result};

/// Write a model with its matrices in another type
///
/// Types are those of llama.cpp, and so are the blocks and the choice of formats: q4_k_m, for one, has some layers and the head
/// in Q6_K. Rows that are no multiple of 256 get a format of blocks of 32 instead, and F16 where they are no multiple of 32.
/// Norms and biases stay as they are. A model that is quantized already can be quantized again, but loses by it: better take
/// the original.
#[derive(Debug, clap::Args)]
pub(super) struct QuantizeArgs {
    /// Which model, as in rml-chat
    #[arg(value_name = "IN.gguf")]
    model: String,

    /// The file to write
    #[arg(value_name = "OUT.gguf")]
    out: PathBuf,

    /// f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q5_0, q5_1, q4_k_m, q4_k_s, q4_0, q4_1, q3_k_l, q3_k_m, q3_k_s or q2_k
    #[arg(value_name = "TYPE", value_parser = file_type)]
    kind: FileType,

    #[command(flatten)]
    how: How,
}

/// Write a GGUF file of a Hugging Face directory
///
/// The directory holds config.json, weights in .safetensors files and a tokenizer. Types are those of rml quantize; without
/// one, weights stay in the float type that most of them have, and in MXFP4 where they are.
#[derive(Debug, clap::Args)]
pub(super) struct ConvertArgs {
    /// The directory
    #[arg(value_name = "HF_DIR")]
    dir: PathBuf,

    /// The file to write
    #[arg(value_name = "OUT.gguf")]
    out: PathBuf,

    /// Type of the file, as for rml quantize, such as q8_0 or q4_k_m
    #[arg(long = "type", value_name = "TYPE", value_parser = file_type)]
    kind: Option<FileType>,

    #[command(flatten)]
    how: How,
}

/// How both subcommands write.
#[derive(Debug, clap::Args)]
struct How {
    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,

    /// Threads; as many as this process may use unless given
    #[arg(short, long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
}

impl QuantizeArgs {
    pub(super) fn run(&self, out: &mut Output) -> std::result::Result<(), Halt> {
        let file = Gguf::open(&target::file(&self.model)?)?;
        self.how.write(&file, self.kind, Quantized::new(&file, self.kind)?, &self.out, out)
    }
}

impl ConvertArgs {
    pub(super) fn run(&self, out: &mut Output) -> std::result::Result<(), Halt> {
        if self.dir.is_file() {
            let path = self.dir.display();
            return Err(Halt::Usage(format!(
                "{path} is a file; give the directory that it stands in, or for a .gguf file try rml quantize"
            )));
        }
        let file = Gguf::open(&self.dir)?;
        file.notes().iter().for_each(|text| note(&format!("note: {text}")));
        let (kind, plan) = match self.kind {
            Some(kind) => (kind, Quantized::new(&file, kind)?),
            None => (Quantized::plainest(&file), Quantized::as_it_is(&file)?),
        };
        self.how.write(&file, kind, plan, &self.out, out)
    }
}

impl How {
    fn write(&self, file: &Gguf, kind: FileType, quantized: Quantized<'_>, path: &Path, out: &mut Output) -> std::result::Result<(), Halt> {
        refuse_itself(file, path)?;
        if let n @ 1.. = quantized.n_requantized() {
            let are = if n == 1 { "is" } else { "are" };
            note(&format!(
                "warning: {} {are} quantized already and lose once more; better quantize the original model",
                counted(n, "tensor")
            ));
        }
        if let n @ 1.. = quantized.n_fallbacks() {
            let get = if n == 1 { "gets" } else { "get" };
            note(&format!(
                "note: {} {get} another format than was meant, as their rows are no whole number of its blocks",
                counted(n, "tensor")
            ));
        }
        let team = Team::new(self.threads.unwrap_or(0))?;
        tidy_on_interrupt();
        let meter = Progress::of_stderr().bytes(&format!("writing {}", path.display()), Some(quantized.source_bytes()), 0);
        write_new(path, self.force, |file| quantized.write(path, file, &team, |bytes| meter.add(bytes)))?;
        drop(meter);
        let bytes = std::fs::metadata(path).map_err(|source| Error::Io { path: path.to_owned(), action: "read", source })?.len();
        let shares = quantized.shares();
        out.either(
            || {
                let tensors: serde_json::Map<_, _> = shares.iter().map(|(kind, n, _)| (kind.to_string(), (*n).into())).collect();
                json!({"path": path, "type": kind.name(), "bytes": bytes, "tensors": tensors, "requantized": quantized.n_requantized()})
            },
            || {
                let shares = shares.iter().map(|(kind, n, _)| format!("{n} in {kind}")).collect::<Vec<_>>().join(", ");
                format!("{}: {bytes} bytes, tensors: {shares}", path.display())
            },
        )
    }
}

/// The model is read while the new file is written.
fn refuse_itself(file: &Gguf, path: &Path) -> Result<()> {
    let same = |a: &Path| matches!((a.canonicalize(), path.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if file.paths().any(same) {
        return Err(Error::invalid("output file", format!("{} is the model itself; give another name", path.display())));
    }
    Ok(())
}
