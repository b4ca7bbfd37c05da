//! The vocabulary of a `tokenizer.json`.
//!
//! Source: the serialized form of the crate `tokenizers`; for what GGUF makes of it, `gguf` and the converter of llama.cpp.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value as Json;

use super::super::fields::{Fields, malformed};
use super::sentencepiece::SentencePiece;
use crate::Result;
use crate::model::gguf::{Array, Value};
use crate::text::{Cut, DIGITS, GPT2, ONE_DIGIT, PUNCTUATION, charsmap_of_base64, is_sound_charsmap, pre_tokenizer_name};

/// GGUF's numbers of token types.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// What GGUF calls the kinds of tokenizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    /// Byte-level byte pair encoding.
    Gpt2,
    /// Byte pair encoding of characters, with a score for each piece.
    Llama,
    /// Pieces with probabilities.
    T5,
    /// Words and their continuations.
    Bert,
}

/// Tokens, and how they are put together.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) model: Model,
    texts: Vec<String>,
    types: Vec<i32>,
    scores: Vec<f32>,
    merges: Vec<String>,
    /// Name of the pre-tokenizer, if it has one.
    pre: Option<&'static str>,
    /// Whether a text gets a space in front.
    space_prefix: bool,
    charsmap: Option<Vec<u8>>,
    remove_extra_whitespaces: bool,
    index: HashMap<String, u32>,
}

impl Tokens {
    pub(super) fn of_json(json: &Fields) -> Result<Self> {
        let model = json.required("model", json.object("model")?)?;
        let kind = kind(json, &model)?;
        let mut entries = match kind {
            Model::T5 => unigram(&model)?,
            _ => vocab(&model)?,
        };
        let added = added(json)?;
        let mut types: HashMap<u32, i32> = HashMap::new();
        for token in &added {
            entries.texts.insert(token.id, token.content.clone());
            types.insert(token.id, if token.special { CONTROL } else { USER_DEFINED });
        }
        if let Some(unk) = unknown(&model, &entries)? {
            types.insert(unk, UNKNOWN);
        }
        let mut tokens = Tokens::collect(kind, entries, &types).map_err(|id| too_far(json, id))?;
        match kind {
            Model::T5 | Model::Bert => {}
            Model::Gpt2 | Model::Llama => tokens.merges = merges(&model)?,
        }
        if kind == Model::Llama {
            tokens.scores = tokens.ranks();
            tokens.merges.clear();
        }
        tokens.space_prefix = space_prefix(json);
        tokens.charsmap = charsmap(json)?;
        if kind == Model::Gpt2 {
            let whole_words = model.bool("ignore_merges")?.unwrap_or(false);
            tokens.pre = cuts(json).and_then(|cuts| pre_tokenizer_name(&cuts, normal_form(json), whole_words));
        }
        Ok(tokens)
    }

    /// The tokens of a `tokenizer.model`, and of the files that add some.
    pub(super) fn of_sentence_piece(dir: &Path, path: &Path, model: &SentencePiece) -> Result<Self> {
        let mut entries = Entries { texts: HashMap::new(), scores: HashMap::new() };
        let mut types: HashMap<u32, i32> = HashMap::new();
        for (id, piece) in (0..).zip(&model.pieces) {
            entries.texts.insert(id, piece.text.clone());
            entries.scores.insert(id, piece.score);
            types.insert(id, piece.kind);
        }
        for (id, text, kind) in added_beside(dir)? {
            // A normal piece of this text and id stays what it is.
            if entries.texts.insert(id, text.clone()).as_ref() != Some(&text) || kind == CONTROL {
                types.insert(id, kind);
            }
        }
        let kind = if model.unigram { Model::T5 } else { Model::Llama };
        let far = |id| malformed(dir, format!("an added token has the id {id}, far beyond the number of tokens; fetch the files again"));
        let mut tokens = Tokens::collect(kind, entries, &types).map_err(far)?;
        tokens.space_prefix = model.add_dummy_prefix;
        tokens.remove_extra_whitespaces = model.remove_extra_whitespaces;
        if !model.charsmap.is_empty() {
            if !is_sound_charsmap(&model.charsmap) {
                return Err(malformed(path, "its map of characters points beyond its end; the file is damaged, fetch it again"));
            }
            tokens.charsmap = Some(model.charsmap.clone());
        }
        Ok(tokens)
    }

    /// Tokens in order of their ids, which may leave gaps; an id far beyond their number is the error.
    fn collect(model: Model, mut entries: Entries, types: &HashMap<u32, i32>) -> std::result::Result<Self, u32> {
        let n = entries.texts.keys().max().map_or(0, |&id| id as usize + 1);
        // Ids are numbers of a file, and each missing one below the largest costs memory.
        if n > 2 * entries.texts.len() + 4096 {
            return Err((n - 1) as u32);
        }
        let mut tokens = Tokens {
            model,
            texts: Vec::with_capacity(n),
            types: Vec::with_capacity(n),
            scores: Vec::new(),
            merges: Vec::new(),
            pre: None,
            space_prefix: false,
            charsmap: None,
            remove_extra_whitespaces: false,
            index: HashMap::new(),
        };
        if !entries.scores.is_empty() {
            tokens.scores = (0..n as u32).map(|id| entries.scores.get(&id).copied().unwrap_or(0.0)).collect();
        }
        for id in 0..n as u32 {
            let (text, given) = match entries.texts.remove(&id) {
                Some(text) => (text, types.get(&id).copied()),
                None => (format!("[PAD{id}]"), Some(UNUSED)),
            };
            let fallback = if model != Model::Gpt2 && is_byte(&text) { BYTE } else { NORMAL };
            tokens.index.entry(text.clone()).or_insert(id);
            tokens.types.push(given.unwrap_or(fallback));
            tokens.texts.push(text);
        }
        Ok(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.index.get(text).copied()
    }

    /// The token for what cannot be spelled.
    pub(super) fn unknown(&self) -> Option<u32> {
        self.types.iter().position(|&kind| kind == UNKNOWN).map(|id| id as u32)
    }

    /// For each token less the sooner it is merged, as SentencePiece scores them.
    fn ranks(&self) -> Vec<f32> {
        let mut scores = vec![0.0; self.texts.len()];
        for (rank, merge) in self.merges.iter().enumerate().rev() {
            if let Some((a, b)) = merge.split_once(' ')
                && let Some(id) = self.id(&format!("{a}{b}"))
            {
                scores[id as usize] = -(rank as f32) - 1.0;
            }
        }
        scores
    }

    /// Appends the keys.
    pub(super) fn write(self, metadata: &mut Vec<(String, Value)>, notes: &mut Vec<String>) {
        let mut put = |key: &str, value: Value| metadata.push((format!("tokenizer.ggml.{key}"), value));
        let name = match self.model {
            Model::Gpt2 => "gpt2",
            Model::Llama => "llama",
            Model::T5 => "t5",
            Model::Bert => "bert",
        };
        put("model", Value::String(name.into()));
        match (self.model, self.pre) {
            (Model::Gpt2, Some(pre)) => put("pre", Value::String(pre.into())),
            (Model::Gpt2, None) => notes.push(
                "the pre-tokenizer of tokenizer.json has no name in GGUF; a GGUF file converted from this directory would cut text otherwise"
                    .into(),
            ),
            _ => put("pre", Value::String("default".into())),
        }
        let texts = self.texts.iter().zip(&self.types).map(|(text, kind)| match (self.model, *kind) {
            (Model::Llama | Model::T5, USER_DEFINED) => text.replace('▁', " "),
            (Model::Bert, NORMAL) => text.strip_prefix("##").map_or_else(|| format!("▁{text}"), str::to_owned),
            _ => text.clone(),
        });
        put("tokens", Value::Array(Array::Strings(texts.collect())));
        put("token_type", Value::Array(Array::I32(self.types)));
        if !self.scores.is_empty() {
            put("scores", Value::Array(Array::F32(self.scores)));
        }
        if self.model == Model::Gpt2 {
            put("merges", Value::Array(Array::Strings(self.merges.iter().collect())));
        }
        if self.model != Model::Gpt2 {
            put("add_space_prefix", Value::Bool(self.space_prefix));
            put("remove_extra_whitespaces", Value::Bool(self.remove_extra_whitespaces));
        }
        if let Some(map) = self.charsmap {
            put("precompiled_charsmap", Value::Array(Array::U8(map)));
        }
    }
}

fn too_far(json: &Fields, id: u32) -> crate::Error {
    json.wrong("added_tokens or model.vocab", &format!("has the id {id}, far beyond the number of tokens"))
}

/// Tokens that stand beside a `tokenizer.model`: in `added_tokens.json`, and in `tokenizer_config.json`, which knows more of each.
fn added_beside(dir: &Path) -> Result<Vec<(u32, String, i32)>> {
    let mut added = Vec::new();
    if let Some(file) = Fields::read(&dir.join("added_tokens.json"))? {
        for text in file.keys() {
            added.push((file.required(text, file.u32(text)?)?, text.to_owned(), USER_DEFINED));
        }
    }
    if let Some(file) = Fields::read(&dir.join("tokenizer_config.json"))?
        && let Some(list) = file.object("added_tokens_decoder")?
    {
        for key in list.keys() {
            let token = list.required(key, list.object(key)?)?;
            let (Ok(id), Some(text)) = (key.parse(), token.str("content")?) else {
                return Err(list.wrong(key, "is no token with an id and content"));
            };
            added.push((id, text.to_owned(), if token.bool("special")?.unwrap_or(false) { CONTROL } else { USER_DEFINED }));
        }
    }
    Ok(added)
}

/// Texts and scores by id.
struct Entries {
    texts: HashMap<u32, String>,
    scores: HashMap<u32, f32>,
}

struct Added {
    id: u32,
    content: String,
    special: bool,
}

fn added(json: &Fields) -> Result<Vec<Added>> {
    let list = json.list("added_tokens")?.unwrap_or_default();
    list.iter()
        .map(|v| {
            let id = v["id"].as_u64().and_then(|id| u32::try_from(id).ok());
            match (id, v["content"].as_str()) {
                (Some(id), Some(content)) => {
                    Ok(Added { id, content: content.to_owned(), special: v["special"].as_bool().unwrap_or(false) })
                }
                _ => Err(json.wrong("added_tokens", "holds something that is no token with an id and content")),
            }
        })
        .collect()
}

/// Whether the type of a part, or of a part within it, is this.
fn has_type(part: Option<&Json>, name: &str) -> bool {
    match part {
        Some(Json::Object(map)) => map.get("type").and_then(Json::as_str) == Some(name) || map.values().any(|v| has_type(Some(v), name)),
        Some(Json::Array(list)) => list.iter().any(|v| has_type(Some(v), name)),
        _ => false,
    }
}

fn kind(json: &Fields, model: &Fields) -> Result<Model> {
    let byte_level = ["pre_tokenizer", "decoder", "normalizer"].iter().any(|part| has_type(json.get(part), "ByteLevel"));
    // Old files do not name the type, but each has what only it has.
    let kind = model.str("type")?.unwrap_or(match (model.get("merges"), model.get("vocab")) {
        (Some(_), _) => "BPE",
        (None, Some(Json::Array(_))) => "Unigram",
        _ => "WordPiece",
    });
    match kind {
        "BPE" if byte_level => Ok(Model::Gpt2),
        "BPE" => Ok(Model::Llama),
        "Unigram" => Ok(Model::T5),
        "WordPiece" => Ok(Model::Bert),
        other => Err(model.unsupported("type", &format!("is {other:?}"))),
    }
}

fn vocab(model: &Fields) -> Result<Entries> {
    let vocab = model.required("vocab", model.get("vocab").and_then(Json::as_object))?;
    let mut texts = HashMap::with_capacity(vocab.len());
    for (text, id) in vocab {
        let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
            return Err(model.wrong("vocab", &format!("gives {text:?} the id {id}")));
        };
        texts.insert(id, text.clone());
    }
    Ok(Entries { texts, scores: HashMap::new() })
}

fn unigram(model: &Fields) -> Result<Entries> {
    let vocab = model.required("vocab", model.list("vocab")?)?;
    let mut entries = Entries { texts: HashMap::new(), scores: HashMap::new() };
    for (id, piece) in (0..).zip(vocab) {
        let (Some(text), Some(score)) = (piece[0].as_str(), piece[1].as_f64()) else {
            return Err(model.wrong("vocab", &format!("holds {piece} at {id}, where a piece and its score must be")));
        };
        entries.texts.insert(id, text.to_owned());
        entries.scores.insert(id, score as f32);
    }
    Ok(entries)
}

fn merges(model: &Fields) -> Result<Vec<String>> {
    let list = model.required("merges", model.list("merges")?)?;
    let merge = |v: &Json| match v {
        Json::String(text) => Some(text.clone()),
        Json::Array(pair) => match &pair[..] {
            [Json::String(a), Json::String(b)] => Some(format!("{a} {b}")),
            _ => None,
        },
        _ => None,
    };
    list.iter().map(|v| merge(v).ok_or_else(|| model.wrong("merges", &format!("holds {v}, which is not two pieces")))).collect()
}

fn unknown(model: &Fields, entries: &Entries) -> Result<Option<u32>> {
    if let Some(id) = model.u32("unk_id")? {
        return Ok(Some(id));
    }
    let Some(text) = model.str("unk_token")? else { return Ok(None) };
    Ok(entries.texts.iter().find(|(_, t)| *t == text).map(|(id, _)| *id))
}

fn is_byte(text: &str) -> bool {
    text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>')).is_some_and(|hex| hex.len() == 2 && u8::from_str_radix(hex, 16).is_ok())
}

/// Whether the start of a text gets a space: by the normalizer in older files, by the pre-tokenizer in newer ones.
fn space_prefix(json: &Fields) -> bool {
    fn metaspace(part: &Json) -> bool {
        match part {
            Json::Object(map) if map.get("type").and_then(Json::as_str) == Some("Metaspace") => match map.get("prepend_scheme") {
                Some(scheme) => scheme != "never",
                None => map.get("add_prefix_space") != Some(&Json::Bool(false)),
            },
            Json::Object(map) => map.values().any(metaspace),
            Json::Array(list) => list.iter().any(metaspace),
            _ => false,
        }
    }
    has_type(json.get("normalizer"), "Prepend") || json.get("pre_tokenizer").is_some_and(metaspace)
}

/// SentencePiece's map of characters.
fn charsmap(json: &Fields) -> Result<Option<Vec<u8>>> {
    fn find(part: &Json) -> Option<&str> {
        match part {
            Json::Object(map) => map.get("precompiled_charsmap").and_then(Json::as_str).or_else(|| map.values().find_map(find)),
            Json::Array(list) => list.iter().find_map(find),
            _ => None,
        }
    }
    let Some(text) = json.get("normalizer").and_then(find) else { return Ok(None) };
    match charsmap_of_base64(text) {
        Some(map) => Ok(Some(map).filter(|map| !map.is_empty())),
        None => Err(json.wrong("normalizer", "holds a precompiled_charsmap that is no base 64, or points beyond its end")),
    }
}

/// The steps that cut text, in order; `None` if it is cut in another way too.
fn cuts(json: &Fields) -> Option<Vec<Cut<'_>>> {
    fn collect<'a>(part: &'a Json, out: &mut Vec<Cut<'a>>) -> Option<()> {
        match part["type"].as_str()? {
            "Sequence" => part["pretokenizers"].as_array()?.iter().try_for_each(|p| collect(p, out))?,
            "Split" if part["behavior"] == "Isolated" && part["invert"] != true => {
                out.push(Cut::Matches(part["pattern"]["Regex"].as_str()?));
            }
            // How the pieces of a split are named does not matter where nothing is between them.
            "Split" if part["behavior"] == "Removed" && part["invert"] == true => {
                out.push(Cut::Matches(part["pattern"]["Regex"].as_str()?));
            }
            "Digits" => out.push(Cut::Matches(if part["individual_digits"] == true { ONE_DIGIT } else { DIGITS })),
            "Punctuation" if part["behavior"] == "Contiguous" => out.push(Cut::Matches(PUNCTUATION)),
            "ByteLevel" if part["add_prefix_space"] == true => return None,
            "ByteLevel" => {
                if part["use_regex"] != false {
                    out.push(Cut::Matches(GPT2));
                }
                out.push(Cut::Bytes);
            }
            _ => return None,
        }
        Some(())
    }
    let mut out = Vec::new();
    collect(json.get("pre_tokenizer")?, &mut out)?;
    Some(out)
}

/// Name of the Unicode form that text is brought to.
fn normal_form(json: &Fields) -> Option<&str> {
    let normalizer = json.get("normalizer")?;
    match normalizer["type"].as_str()? {
        "Sequence" if normalizer["normalizers"].as_array().is_some_and(Vec::is_empty) => None,
        name => Some(name),
    }
}
