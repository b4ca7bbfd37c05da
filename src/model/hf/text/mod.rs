//! Tokenizer and chat templates of a directory, as keys of GGUF.
//!
//! `tokenizer.json` itself becomes `tokenizer.huggingface.json`, a key of the GGUF specification, and text is encoded by it. The
//! other keys hold the same vocabulary in the way of GGUF: what a token stands for, which are control tokens, which begin and
//! end a text.

mod ids;
mod templates;
mod vocabulary;

use std::path::Path;

use super::fields::{self, Fields, malformed};
use crate::Result;
use crate::model::gguf::Value;
use ids::SpecialIds;
use vocabulary::Tokens;

/// Appends the keys of tokenizer and templates.
pub(super) fn translate(dir: &Path, config: &Fields, metadata: &mut Vec<(String, Value)>, notes: &mut Vec<String>) -> Result<()> {
    let path = dir.join("tokenizer.json");
    let Some(json) = Fields::read(&path)? else {
        return Err(malformed(dir, "the directory holds no tokenizer.json; fetch it too"));
    };
    let tokens = Tokens::of_json(&json)?;
    let ids = SpecialIds::read(dir, config, &json, &tokens)?;
    let text = fields::text(&path)?.expect("it was just read");
    tokens.write(metadata, notes);
    ids.write(metadata);
    metadata.push(("tokenizer.huggingface.json".into(), Value::String(text)));
    templates::write(dir, metadata)
}
