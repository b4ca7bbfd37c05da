//! `rml logits`: what the model says after given tokens.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Output;
use super::target::Target;
use crate::Error;
use crate::decode::{KvType, Rows, State};
use crate::program::{Halt, KV_NAMES, kv_type};

/// Tokens whose logits are held at once where all are asked for.
const CHUNK: usize = 32;

/// Print the logits after given tokens
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which model, as in rml-chat
    model: String,

    /// Ids of the tokens; none are added
    #[arg(long, value_name = "1,2,3", value_delimiter = ',', required = true)]
    tokens: Vec<u32>,

    /// After every token, not only the last
    #[arg(long)]
    all: bool,

    /// How many of the best to print
    #[arg(long, value_name = "K", default_value_t = 10)]
    top: usize,

    /// Write all logits here: little-endian f32, a row a position
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Type of the cached keys and values
    #[arg(long, default_value = "f16", value_parser = KV_NAMES)]
    kv: String,

    #[command(flatten)]
    target: Target,
}

struct Row {
    position: usize,
    top: Vec<(usize, f32)>, // id and logit, the best first
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> Result<(), Halt> {
        let kv = kv_type(&self.kv)?;
        let model = self.target.load(&self.model)?;
        let mut file = self.out.as_deref().map(OutFile::create).transpose()?;
        let mut rows = Vec::new();
        let chunk = if self.all { CHUNK } else { crate::decode::CHUNK };
        each_row(&model, &self.tokens, kv, chunk, |position, logits| {
            if self.all || position + 1 == self.tokens.len() {
                file.as_mut().map_or(Ok(()), |f| f.write(logits))?;
                rows.push(Row { position, top: best(logits, self.top) });
            }
            Ok(())
        })?;
        file.map_or(Ok(()), OutFile::finish)?;
        let n_vocab = model.config().n_vocab;
        out.either(|| document(n_vocab, &rows), || text(&model, &rows))
    }
}

/// Runs tokens, `chunk` at a time, and hands on the logits after each; after the last of a chunk alone if chunks are whole prefill chunks.
fn each_row(
    model: &crate::Model,
    tokens: &[u32],
    kv: KvType,
    chunk: usize,
    mut row: impl FnMut(usize, &[f32]) -> Result<(), Halt>,
) -> Result<(), Halt> {
    let rows = if chunk == CHUNK { Rows::All } else { Rows::Last };
    let mut state = State::with_chunk(model, kv, tokens.len(), chunk)?;
    let n_vocab = model.config().n_vocab;
    for (i, part) in tokens.chunks(chunk).enumerate() {
        let logits = state.forward(model, part, rows)?;
        let first = i * chunk + part.len() - logits.len() / n_vocab;
        for (j, logits) in logits.chunks_exact(n_vocab).enumerate() {
            row(first + j, logits)?;
        }
    }
    Ok(())
}

/// The `k` largest, ties to the lower id; what is no number comes last.
fn best(logits: &[f32], k: usize) -> Vec<(usize, f32)> {
    let key = |x: f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
    let mut order: Vec<(usize, f32)> = logits.iter().copied().enumerate().collect();
    order.sort_by(|a, b| key(b.1).total_cmp(&key(a.1)).then(a.0.cmp(&b.0)));
    order.truncate(k);
    order
}

fn document(n_vocab: usize, rows: &[Row]) -> Value {
    let position = |r: &Row| json!({"position": r.position, "top": r.top.iter().map(|(id, x)| json!([id, x])).collect::<Vec<_>>()});
    json!({"vocab": n_vocab, "positions": rows.iter().map(position).collect::<Vec<_>>()})
}

fn text(model: &crate::Model, rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        text += &format!("position {}\n", row.position);
        for (id, logit) in &row.top {
            text += &format!("  {logit:9.4}  {id:6}  {:?}\n", model.tokenizer().decode(&[*id as u32], true));
        }
    }
    text
}

/// The file of `--out`.
struct OutFile<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

impl<'a> OutFile<'a> {
    fn create(path: &'a Path) -> Result<Self, Halt> {
        let file = File::create(path).map_err(|source| Error::Io { path: path.to_owned(), action: "write", source })?;
        Ok(OutFile { path, file: BufWriter::new(file) })
    }

    fn write(&mut self, logits: &[f32]) -> Result<(), Halt> {
        let written = logits.iter().try_for_each(|x| self.file.write_all(&x.to_le_bytes()));
        Ok(written.map_err(|source| Error::Io { path: self.path.to_owned(), action: "write", source })?)
    }

    fn finish(mut self) -> Result<(), Halt> {
        Ok(self.file.flush().map_err(|source| Error::Io { path: self.path.to_owned(), action: "write", source })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_in_order_and_ties_go_to_the_lower_id() {
        assert_eq!(best(&[1.0, 3.0, f32::NAN, 3.0, -1.0], 3), [(1, 3.0), (3, 3.0), (0, 1.0)]);
        assert_eq!(best(&[1.0], 5).len(), 1);
    }
}
