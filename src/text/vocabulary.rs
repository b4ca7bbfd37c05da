//! A vocabulary as data, whatever file it came from.

use crate::model::Gguf;
use crate::model::gguf::Metadata;
use crate::{Error, Result};

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabularyKind {
    /// Byte-level byte pair encoding, with merges (GPT-2 and most models since).
    ByteLevel,
    /// SentencePiece's byte pair encoding, with scores (Llama 1 and 2, Mistral, Phi-3).
    SentencePiece,
}

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
    /// SentencePiece: a score for each; the best merges first.
    pub scores: Vec<f32>,
    /// Byte-level: pairs in order of rank.
    pub merges: Vec<(String, String)>,
    /// Byte-level: name of the pre-tokenizer, where the file gives one.
    pub pre: Option<String>,
    /// Token that begins a text.
    pub bos: Option<u32>,
    /// Token that ends a text.
    pub eos: Option<u32>,
    /// Token that ends a turn.
    pub eot: Option<u32>,
    /// Token for what cannot be spelled.
    pub unk: Option<u32>,
    /// Whether a text begins with `bos`.
    pub add_bos: bool,
    /// Whether a text ends with `eos`.
    pub add_eos: bool,
    /// SentencePiece: whether a text gets a space in front.
    pub add_space_prefix: bool,
}

impl Vocabulary {
    /// Reads `tokenizer.ggml.*`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a tokenizer model that rml does not have; [`Error::Malformed`] naming the key otherwise.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let meta = file.metadata();
        let model = meta.required("tokenizer.ggml.model", meta.str("tokenizer.ggml.model")?)?;
        let kind = match model {
            "gpt2" => VocabularyKind::ByteLevel,
            "llama" => VocabularyKind::SentencePiece,
            other => {
                return Err(Error::Unsupported {
                    path: file.path().to_owned(),
                    reason: format!("tokenizer model {other:?} is not supported; rml has gpt2 (byte-level) and llama (SentencePiece)"),
                });
            }
        };
        let tokens = meta.required("tokenizer.ggml.tokens", meta.strings("tokenizer.ggml.tokens")?)?.to_vec();
        if tokens.is_empty() || u32::try_from(tokens.len()).is_err() {
            return Err(meta.malformed("tokenizer.ggml.tokens", &format!("has {} tokens", tokens.len())));
        }
        let byte_level = kind == VocabularyKind::ByteLevel;
        let id = |key: &str| token_id(meta, key, tokens.len());
        Ok(Vocabulary {
            kind,
            types: token_types(meta, tokens.len())?,
            scores: if byte_level { Vec::new() } else { scores(meta, tokens.len())? },
            merges: if byte_level { merges(meta)? } else { Vec::new() },
            pre: meta.str("tokenizer.ggml.pre")?.map(str::to_owned),
            bos: id("bos")?.or((!byte_level).then_some(1)).filter(|&b| (b as usize) < tokens.len()),
            eos: id("eos")?.or((!byte_level).then_some(2)).filter(|&b| (b as usize) < tokens.len()),
            eot: id("eot")?,
            unk: id("unknown")?.or((!byte_level).then_some(0)),
            add_bos: meta
                .bool("tokenizer.ggml.add_bos_token")?
                .unwrap_or(!byte_level || meta.str("tokenizer.ggml.pre")? == Some("llama-bpe")),
            add_eos: meta.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            add_space_prefix: meta.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(!byte_level),
            tokens,
        })
    }
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
