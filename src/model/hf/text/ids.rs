//! Which tokens begin and end a text, and which end a reply: several files of a directory say so.

use std::path::Path;

use serde_json::Value as Json;

use super::super::fields::Fields;
use super::sentencepiece::SentencePiece;
use super::vocabulary::Tokens;
use crate::Result;
use crate::model::gguf::{Array, Value};

/// Special tokens by their part.
#[derive(Debug, Default)]
pub(super) struct SpecialIds {
    bos: Option<u32>,
    eos: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// All that end a reply.
    ends: Vec<u32>,
}

impl SpecialIds {
    pub(super) fn read(dir: &Path, config: &Fields, around: &Around, tokens: &Tokens) -> Result<Self> {
        let of_tokenizer = Fields::read(&dir.join("tokenizer_config.json"))?;
        let map = Fields::read(&dir.join("special_tokens_map.json"))?;
        let generation = Fields::read(&dir.join("generation_config.json"))?;
        let text = config.object("text_config")?;
        let spelled = |key: &str| {
            let files = of_tokenizer.iter().chain(&map);
            files.filter_map(|f| f.get(key)).find_map(token_text).and_then(|text| tokens.id(text))
        };
        let numbers = |key: &str| -> Result<Vec<u32>> {
            let mut ids = Vec::new();
            for fields in text.iter().chain([config]).chain(&generation) {
                let given = fields.ids(key)?;
                // A bound that models have in their configuration and not in their vocabulary.
                ids.extend(given.into_iter().filter(|&id| (id as usize) < tokens.len()));
            }
            Ok(ids)
        };
        let id = |key: &str, of_config: &str| -> Result<Option<u32>> { Ok(spelled(key).or(numbers(of_config)?.first().copied())) };
        let flag = |key: &str| of_tokenizer.as_ref().map(|f| f.bool(key)).transpose().map(Option::flatten);
        let mut ids = SpecialIds {
            bos: around.first.or(id("bos_token", "bos_token_id")?),
            eos: id("eos_token", "eos_token_id")?.or(around.last),
            unk: spelled("unk_token").or(around.unk),
            pad: id("pad_token", "pad_token_id")?,
            add_bos: flag("add_bos_token")?.unwrap_or(around.adds_first),
            add_eos: flag("add_eos_token")?.unwrap_or(around.adds_last),
            ends: Vec::new(),
        };
        for end in ids.eos.into_iter().chain(numbers("eos_token_id")?) {
            if !ids.ends.contains(&end) {
                ids.ends.push(end);
            }
        }
        Ok(ids)
    }

    /// Appends the keys.
    pub(super) fn write(self, metadata: &mut Vec<(String, Value)>) {
        let mut put = |key: &str, value: Value| metadata.push((format!("tokenizer.ggml.{key}"), value));
        let eot = self.ends.iter().copied().find(|&id| Some(id) != self.eos);
        for (name, id) in [("bos", self.bos), ("eos", self.eos), ("eot", eot), ("unknown", self.unk), ("padding", self.pad)] {
            if let Some(id) = id {
                put(&format!("{name}_token_id"), Value::U32(id));
            }
        }
        put("add_bos_token", Value::Bool(self.add_bos && self.bos.is_some()));
        put("add_eos_token", Value::Bool(self.add_eos && self.eos.is_some()));
        if self.ends.len() > 2 {
            metadata.push((crate::text::END_IDS.into(), Value::Array(Array::U32(self.ends))));
        }
    }
}

/// The text of a token, which is given plainly or as an object.
fn token_text(value: &Json) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// The tokens that the tokenizer itself puts around a text, or knows.
#[derive(Default)]
pub(super) struct Around {
    first: Option<u32>,
    last: Option<u32>,
    unk: Option<u32>,
    adds_first: bool,
    adds_last: bool,
}

impl Around {
    /// What `post_processor` says.
    pub(super) fn of_json(json: &Fields, tokens: &Tokens) -> Self {
        fn single(part: &Json) -> Option<&Vec<Json>> {
            match part["type"].as_str()? {
                "TemplateProcessing" => part["single"].as_array(),
                "Sequence" => part["processors"].as_array()?.iter().find_map(single),
                _ => None,
            }
        }
        let Some(template) = json.get("post_processor").and_then(single) else {
            return Around { unk: tokens.unknown(), ..Around::default() };
        };
        let special = |item: Option<&Json>| item.and_then(|i| i["SpecialToken"]["id"].as_str()).and_then(|text| tokens.id(text));
        let (first, last) = (special(template.first()), special(template.last()));
        Around { first, last, unk: tokens.unknown(), adds_first: first.is_some(), adds_last: last.is_some() }
    }

    /// The numbers of the file; models of merges begin a text, others end it, unless `tokenizer_config.json` says otherwise.
    pub(super) fn of_sentence_piece(model: &SentencePiece, tokens: &Tokens) -> Self {
        let id = |id: i64| u32::try_from(id).ok().filter(|&id| (id as usize) < tokens.len());
        Around { first: id(model.bos), last: id(model.eos), unk: id(model.unk), adds_first: !model.unigram, adds_last: model.unigram }
    }
}
