//! `rml tokenize` and `rml detokenize`: a text as a model sees it, and back. A file that holds only a vocabulary will do.

use std::io::Write;
use std::path::Path;

use crate::model::Gguf;
use crate::text::{Encode, Tokenizer};
use crate::{Error, Result};

/// Writes the ids of a text on one line; or, as JSON, `{"ids":[…],"pieces":[…]}`. Returns what is doubtful about the
/// vocabulary, for standard error.
///
/// # Errors
/// As [`Tokenizer::from_gguf`] and [`Tokenizer::encode`]; [`Error::Io`] if `out` cannot be written.
pub fn tokenize(path: &Path, text: &str, how: Encode, json: bool, out: &mut dyn Write) -> Result<Vec<String>> {
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(path)?)?;
    let ids = tokenizer.encode(text, how)?;
    let written = if json {
        let pieces: Vec<String> = ids.iter().map(|&id| piece(&tokenizer, id)).collect();
        writeln!(out, "{}", serde_json::json!({ "ids": ids, "pieces": pieces }))
    } else {
        writeln!(out, "{}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
    };
    written.map_err(unwritten)?;
    Ok(tokenizer.warnings().to_vec())
}

/// Writes the text of tokens, special ones spelled out; or, as JSON, `{"text":…}`. Returns warnings as [`tokenize`] does.
///
/// # Errors
/// As [`Tokenizer::from_gguf`]; [`Error::OutOfRange`] if an id is beyond the vocabulary; [`Error::Io`] if `out` cannot be
/// written.
pub fn detokenize(path: &Path, ids: &[u32], json: bool, out: &mut dyn Write) -> Result<Vec<String>> {
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(path)?)?;
    let n = tokenizer.vocab_size();
    if let Some(id) = ids.iter().find(|&&id| id as usize >= n) {
        return Err(Error::out_of_range("tokens", format!("{id} is beyond the vocabulary, whose {n} tokens are 0 to {}", n - 1)));
    }
    let text = tokenizer.decode(ids, true);
    let written = if json { writeln!(out, "{}", serde_json::json!({ "text": text })) } else { writeln!(out, "{text}") };
    written.map_err(unwritten)?;
    Ok(tokenizer.warnings().to_vec())
}

/// The bytes of a token, as text.
fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    let mut bytes = Vec::new();
    tokenizer.append_bytes(id, true, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn unwritten(source: std::io::Error) -> Error {
    Error::Io { path: "standard output".into(), action: "write", source }
}
