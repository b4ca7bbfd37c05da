//! `rml perplexity`: how well the model predicts a text, by llama.cpp's protocol, so that the figures compare.
//!
//! The text's tokens are cut into consecutive chunks of the context's size. Each chunk starts afresh, its first token replaced
//! by BOS if the model asks for one, and only tokens of its second half are scored, so that each has half a context before it.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::Output;
use super::target::Target;
use crate::decode::{Rows, State};
use crate::program::{Halt, KV_NAMES, at_least_one, kv_type, note};
use crate::text::Encode;
use crate::{Error, Model, Result};

/// Tokens whose logits are held at once.
const CHUNK: usize = 32;

/// Measure how well a model predicts a text
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which model, as in rml-chat
    model: String,

    /// The text, in UTF-8
    #[arg(long, value_name = "FILE")]
    file: PathBuf,

    /// Tokens a chunk
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = at_least_one)]
    ctx: usize,

    /// Type of the cached keys and values
    #[arg(long, default_value = "f16", value_parser = KV_NAMES)]
    kv: String,

    #[command(flatten)]
    target: Target,
}

/// Sums over scored tokens.
#[derive(Default)]
struct Score {
    tokens: usize,
    nats: f64,
}

impl Score {
    fn mean(&self) -> f64 {
        self.nats / self.tokens as f64
    }
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> std::result::Result<(), Halt> {
        let kv = kv_type(&self.kv)?;
        if self.ctx < 4 {
            return Err(Halt::Usage(format!("--ctx {}: chunks of fewer than 4 tokens have nothing to score", self.ctx)));
        }
        let text = fs::read(&self.file).map_err(|source| Error::Io { path: self.file.clone(), action: "read", source })?;
        let text = String::from_utf8(text).map_err(|e| Halt::Failed(format!("{}: not UTF-8: {e}", self.file.display())))?;
        let model = self.target.load(&self.model)?;
        let tokens = model.tokenizer().encode(&text, Encode { add_special: true, parse_special: false })?;
        let n_chunks = tokens.len() / self.ctx;
        if n_chunks == 0 {
            let (name, have) = (self.file.display(), tokens.len());
            return Err(Halt::Failed(format!(
                "{name}: its {have} tokens make no chunk of {}; take a longer text or a smaller --ctx",
                self.ctx
            )));
        }
        let mut state = State::with_chunk(&model, kv, self.ctx, CHUNK)?;
        let mut score = Score::default();
        for (i, chunk) in tokens.chunks_exact(self.ctx).enumerate() {
            add_chunk(&model, &mut state, chunk, &mut score)?;
            note(&format!("chunk {} of {n_chunks}: perplexity {:.4} so far", i + 1, score.mean().exp()));
        }
        let (nll, perplexity) = (score.mean(), score.mean().exp());
        out.either(
            || json!({"tokens": score.tokens, "nll": nll, "perplexity": perplexity}),
            || {
                format!(
                    "perplexity {perplexity:.4} ({nll:.5} nats a token, {} tokens scored in {n_chunks} chunks of {})",
                    score.tokens, self.ctx
                )
            },
        )
    }
}

fn add_chunk(model: &Model, state: &mut State, chunk: &[u32], score: &mut Score) -> Result<()> {
    let mut tokens = chunk.to_vec();
    let vocabulary = model.tokenizer().vocabulary();
    if let Some(bos) = vocabulary.bos.filter(|_| vocabulary.add_bos) {
        tokens[0] = bos;
    }
    state.truncate(0);
    let n_vocab = model.config().n_vocab;
    let first_scored = tokens.len() / 2 + 1;
    for (i, part) in tokens.chunks(CHUNK).enumerate() {
        let logits = state.forward(model, part, Rows::All)?;
        for (logits, next) in logits.chunks_exact(n_vocab).zip(i * CHUNK + 1..tokens.len()) {
            if next >= first_scored {
                let nats = surprise(logits, chunk[next] as usize);
                if !nats.is_finite() {
                    return Err(Error::Forward { position: next - 1, reason: "the logits are no finite numbers".into() });
                }
                score.nats += nats;
                score.tokens += 1;
            }
        }
    }
    Ok(())
}

/// Minus the logarithm of the probability that the logits give to `id`, in f64: sums over a vocabulary lose digits in f32.
fn surprise(logits: &[f32], id: usize) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    sum.ln() - (f64::from(logits[id]) - max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// e^2 / (e^2 + 2) for the first of [2, 0, 0], and a third each for equal logits.
    #[test]
    fn surprise_is_minus_log_probability() {
        let first = -(2f64.exp() / (2f64.exp() + 2.0)).ln();
        assert!((surprise(&[2.0, 0.0, 0.0], 0) - first).abs() < 1e-12);
        assert!((surprise(&[-900.0; 3], 2) - 3f64.ln()).abs() < 1e-12);
    }
}
