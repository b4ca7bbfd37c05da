//! Tokenizer and chat templates of a directory, as keys of GGUF.
//!
//! `tokenizer.json` itself becomes `tokenizer.huggingface.json`, a key of the GGUF specification, and text is encoded by it. The
//! other keys hold the same vocabulary in the way of GGUF: what a token stands for, which are control tokens, which begin and
//! end a text. Where there is only `tokenizer.model`, text is encoded by these keys.

mod ids;
mod sentencepiece;
mod templates;
mod vocabulary;

use std::path::Path;

use super::fields::{self, Fields, malformed};
use crate::Result;
use crate::model::gguf::Value;
use ids::{Around, SpecialIds};
use sentencepiece::SentencePiece;
use vocabulary::Tokens;

/// Appends the keys of tokenizer and templates.
pub(super) fn translate(dir: &Path, config: &Fields, metadata: &mut Vec<(String, Value)>, notes: &mut Vec<String>) -> Result<()> {
    let path = dir.join("tokenizer.json");
    if let Some(json) = Fields::read(&path)? {
        let tokens = Tokens::of_json(&json)?;
        let ids = SpecialIds::read(dir, config, &Around::of_json(&json, &tokens), &tokens)?;
        tokens.write(metadata, notes);
        ids.write(metadata);
        let text = fields::text(&path)?.ok_or_else(|| malformed(&path, "this file went away while it was read"))?;
        metadata.push(("tokenizer.huggingface.json".into(), Value::String(text)));
        return templates::write(dir, metadata);
    }
    let path = dir.join("tokenizer.model");
    let Some(bytes) = fields::bytes(&path)? else {
        return Err(malformed(dir, "the directory holds neither tokenizer.json nor tokenizer.model; fetch one of them too"));
    };
    let model = SentencePiece::read(&path, &bytes)?;
    let tokens = Tokens::of_sentence_piece(dir, &path, &model)?;
    let ids = SpecialIds::read(dir, config, &Around::of_sentence_piece(&model, &tokens), &tokens)?;
    tokens.write(metadata, notes);
    ids.write(metadata);
    templates::write(dir, metadata)
}
