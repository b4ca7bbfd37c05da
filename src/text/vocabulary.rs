//! A vocabulary as data, whatever file it came from.

use crate::model::Gguf;
use crate::model::gguf::{Array, Metadata, Value};
use crate::{Error, Result};

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabularyKind {
    /// Byte-level byte pair encoding, with merges (GPT-2 and most models since).
    ByteLevel,
    /// SentencePiece's byte pair encoding, with scores (Llama 1 and 2, Mistral, Phi-3).
    SentencePiece,
    /// Byte pair encoding of characters, with merges and a sign for the space (Gemma 4).
    Merges,
    /// SentencePiece's pieces with probabilities (T5).
    Unigram,
    /// Words and their continuations (BERT).
    WordPiece,
}

/// The kinds by the values of `tokenizer.ggml.model`.
const KINDS: [(&str, VocabularyKind); 5] = [
    ("gpt2", VocabularyKind::ByteLevel),
    ("llama", VocabularyKind::SentencePiece),
    ("gemma4", VocabularyKind::Merges),
    ("t5", VocabularyKind::Unigram),
    ("bert", VocabularyKind::WordPiece),
];

/// Key of a list of all tokens that end a reply, where GGUF's own keys have no room for them.
pub(crate) const END_IDS: &str = "tokenizer.rml.end_token_ids";

/// What a token is for. The numbers are GGUF's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Text.
    Normal,
    /// Stands for what the vocabulary cannot spell.
    Unknown,
    /// Structure, such as the end of a turn; never text.
    Control,
    /// Added by the model's author; found in text before it is encoded.
    UserDefined,
    /// Not used.
    Unused,
    /// One byte, spelled `<0xE2>`.
    Byte,
}

/// Tokens, and how they are put together.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// Kind of encoding.
    pub kind: VocabularyKind,
    /// The pieces, by id.
    pub tokens: Vec<String>,
    /// What each is for.
    pub types: Vec<TokenType>,
    /// SentencePiece and Unigram: a score for each; the best merges first.
    pub scores: Vec<f32>,
    /// Byte-level and Merges: pairs in order of rank.
    pub merges: Vec<(String, String)>,
    /// Byte-level: name of the pre-tokenizer, where the file gives one.
    pub pre: Option<String>,
    /// Token that begins a text.
    pub bos: Option<u32>,
    /// Token that ends a text.
    pub eos: Option<u32>,
    /// Token that ends a turn.
    pub eot: Option<u32>,
    /// More tokens that end a reply.
    pub ends: Vec<u32>,
    /// Token for what cannot be spelled.
    pub unk: Option<u32>,
    /// Whether a text begins with `bos`.
    pub add_bos: bool,
    /// Whether a text ends with `eos`.
    pub add_eos: bool,
    /// Not byte-level: whether a text gets a space in front.
    pub add_space_prefix: bool,
    /// Not byte-level: whether text after a special token gets a space in front too, and white space behind such a token is
    /// dropped, as Phi-3 was trained.
    pub phi3: bool,
    /// Not byte-level: whether runs of spaces count as one, and none at the ends.
    pub remove_extra_whitespaces: bool,
    /// Not byte-level: SentencePiece's map of characters.
    pub charsmap: Vec<u8>,
}

impl Vocabulary {
    /// Reads `tokenizer.ggml.*`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a tokenizer model that rml does not have; [`Error::Malformed`] naming the key otherwise.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let meta = file.metadata();
        let model = meta.required("tokenizer.ggml.model", meta.str("tokenizer.ggml.model")?)?;
        let Some(&(_, kind)) = KINDS.iter().find(|(name, _)| *name == model) else {
            return Err(Error::Unsupported {
                path: file.path().to_owned(),
                reason: format!("tokenizer model {model:?} is not supported; rml has {}", KINDS.map(|(name, _)| name).join(", ")),
            });
        };
        let tokens = meta.required("tokenizer.ggml.tokens", meta.strings("tokenizer.ggml.tokens")?)?.to_vec();
        if tokens.is_empty() || u32::try_from(tokens.len()).is_err() {
            return Err(meta.malformed("tokenizer.ggml.tokens", &format!("has {} tokens", tokens.len())));
        }
        use VocabularyKind::{ByteLevel, Merges, SentencePiece, Unigram, WordPiece};
        let id = |key: &str| token_id(meta, key, tokens.len());
        let usual = |id: u32| Some(id).filter(|&id| (id as usize) < tokens.len());
        // What llama.cpp takes where the file is silent: begins, ends, unknown.
        let (bos, eos, unk) = match kind {
            SentencePiece => (usual(1), usual(2), usual(0)),
            Unigram => (None, usual(1), usual(2)),
            WordPiece => (usual(101), usual(102), usual(100)),
            ByteLevel | Merges => (None, None, None),
        };
        let pre = meta.str("tokenizer.ggml.pre")?;
        let flag = |name: &str, default: bool| Ok::<_, Error>(meta.bool(&format!("tokenizer.ggml.{name}"))?.unwrap_or(default));
        // A file that has the model's own tokenizer.json is encoded by it.
        let own = meta.str(HUGGING_FACE)?.is_some();
        let eos_key = if kind == WordPiece { "seperator" } else { "eos" };
        let phi3 = meta.str("general.architecture")? == Some("phi3");
        Ok(Vocabulary {
            kind,
            types: token_types(meta, tokens.len())?,
            scores: if !own && matches!(kind, SentencePiece | Unigram) { scores(meta, tokens.len())? } else { Vec::new() },
            merges: if !own && matches!(kind, ByteLevel | Merges) { merges(meta)? } else { Vec::new() },
            pre: pre.map(str::to_owned),
            bos: id("bos")?.or(bos),
            eos: id(eos_key)?.or(id("eos")?).or(eos),
            eot: id("eot")?,
            ends: ends(meta, tokens.len())?,
            unk: id("unknown")?.or(unk),
            add_bos: flag("add_bos_token", matches!(kind, SentencePiece | WordPiece) || matches!(pre, Some("llama-bpe" | "tekken")))?,
            add_eos: flag("add_eos_token", matches!(kind, Unigram | WordPiece))?,
            add_space_prefix: flag("add_space_prefix", matches!(kind, SentencePiece | Unigram))?,
            phi3: phi3 && kind == SentencePiece,
            remove_extra_whitespaces: flag("remove_extra_whitespaces", false)?,
            charsmap: charsmap(meta)?,
            tokens,
        })
    }
}

/// Key of the model's own tokenizer, a file of Hugging Face's.
pub(super) const HUGGING_FACE: &str = "tokenizer.huggingface.json";

fn ends(meta: &Metadata, n: usize) -> Result<Vec<u32>> {
    match meta.get(END_IDS) {
        None => Ok(Vec::new()),
        Some(Value::Array(Array::U32(ids))) if ids.iter().all(|&id| (id as usize) < n) => Ok(ids.clone()),
        Some(_) => Err(meta.malformed(END_IDS, &format!("is no list of ids below {n}"))),
    }
}

fn charsmap(meta: &Metadata) -> Result<Vec<u8>> {
    let key = "tokenizer.ggml.precompiled_charsmap";
    let bytes = match meta.get(key) {
        None => return Ok(Vec::new()),
        Some(Value::Array(Array::U8(bytes))) => bytes.clone(),
        // The package gguf writes bytes as i8 at times.
        Some(Value::Array(Array::I8(bytes))) => bytes.iter().map(|&b| b as u8).collect(),
        Some(_) => return Err(meta.malformed(key, "is no array of bytes")),
    };
    if bytes.is_empty() || super::charsmap::is_sound(&bytes) { Ok(bytes) } else { Err(meta.malformed(key, "points beyond its end")) }
}

fn token_id(meta: &Metadata, name: &str, n: usize) -> Result<Option<u32>> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    match meta.u32(&key)? {
        // Writers put 2^32 - 1 where there is none.
        Some(u32::MAX) => Ok(None),
        Some(id) if id as usize >= n => Err(meta.malformed(&key, &format!("is {id}, but there are {n} tokens"))),
        id => Ok(id),
    }
}

fn token_types(meta: &Metadata, n: usize) -> Result<Vec<TokenType>> {
    let key = "tokenizer.ggml.token_type";
    let Some(numbers) = meta.i32s(key)? else { return Ok(vec![TokenType::Normal; n]) };
    if numbers.len() != n {
        return Err(meta.malformed(key, &format!("has {} entries for {n} tokens", numbers.len())));
    }
    numbers
        .iter()
        .map(|t| match t {
            0 | 1 => Ok(TokenType::Normal),
            2 => Ok(TokenType::Unknown),
            3 => Ok(TokenType::Control),
            4 => Ok(TokenType::UserDefined),
            5 => Ok(TokenType::Unused),
            6 => Ok(TokenType::Byte),
            other => Err(meta.malformed(key, &format!("holds the type {other}; types are 1 to 6"))),
        })
        .collect()
}

fn scores(meta: &Metadata, n: usize) -> Result<Vec<f32>> {
    let key = "tokenizer.ggml.scores";
    let scores = meta.required(key, meta.f32s(key)?)?;
    if scores.len() != n || scores.iter().any(|s| s.is_nan()) {
        return Err(meta.malformed(key, &format!("has {} entries for {n} tokens, or one that is no number", scores.len())));
    }
    Ok(scores.to_vec())
}

fn merges(meta: &Metadata) -> Result<Vec<(String, String)>> {
    let key = "tokenizer.ggml.merges";
    let merges = meta.required(key, meta.strings(key)?)?;
    merges
        .iter()
        .enumerate()
        .map(|(i, m)| match m.split_once(' ') {
            Some((a, b)) if !a.is_empty() && !b.is_empty() => Ok((a.to_owned(), b.to_owned())),
            _ => Err(meta.malformed(key, &format!("entry {i} is {m:?}, which is not two pieces with a space between"))),
        })
        .collect()
}
