//! Encoders of the crate `tokenizers`: as a `tokenizer.json` describes one, or made of a vocabulary in the way of GGUF.

use std::collections::HashSet;

use serde::Deserialize as _;
use serde_json::Value as Json;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::normalizers::{BertNormalizer, Precompiled};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, ModelWrapper};

use super::pretokenizer::pre_tokenizer;
use super::steps::{Changes, Cuts};
use super::vocabulary::{TokenType, Vocabulary, VocabularyKind};
use crate::{Error, Result};

/// SentencePiece's sign for a space.
pub(super) const SPACE: &str = "▁";

/// What encodes text: its steps, in order.
pub(super) struct Encoder {
    /// Found in text first.
    pub(super) added: Vec<AddedToken>,
    pub(super) changes: Changes,
    pub(super) cuts: Cuts,
    pub(super) model: ModelWrapper,
}

impl Encoder {
    fn new(model: impl Into<ModelWrapper>) -> Self {
        Encoder { added: Vec::new(), changes: Changes::default(), cuts: Cuts::default(), model: model.into() }
    }
}

fn build_error(e: impl std::fmt::Display) -> Error {
    Error::Tokenizer(format!("the vocabulary cannot be used: {e}; the file is damaged or was converted wrongly"))
}

/// The encoder of a `tokenizer.json`.
pub(super) fn of_json(json: &str) -> Result<Encoder> {
    let wrong =
        |part: &str, e: &dyn std::fmt::Display| Error::Tokenizer(format!("tokenizer.json cannot be used: {part}{e}; fetch it again"));
    let mut json: Json = serde_json::from_str(json).map_err(|e| wrong("", &e))?;
    if !json.is_object() {
        return Err(wrong("", &"it is no object"));
    }
    check_merges(&json["model"]).map_err(|e| wrong("model: ", &e))?;
    // With dropout the same text would be other tokens each time; it is for training.
    if let Some(model) = json["model"].as_object_mut() {
        model.remove("dropout");
    }
    let changes = Changes::of_json(&json["normalizer"]).map_err(|e| wrong("normalizer: ", &e))?;
    let cuts = Cuts::of_json(&json["pre_tokenizer"]).map_err(|e| wrong("pre_tokenizer: ", &e))?;
    let model = ModelWrapper::deserialize(json["model"].take()).map_err(|e| wrong("model: ", &e))?;
    let mut added = Vec::new();
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        added.push((token["id"].as_u64(), AddedToken::deserialize(token).map_err(|e| wrong("added_tokens: ", &e))?));
    }
    added.sort_by_key(|(id, _)| *id);
    Ok(Encoder { added: added.into_iter().map(|(_, token)| token).collect(), changes, cuts, model })
}

/// Merges of tokens to a token: the crate puts them together in a buffer as long as the longest token, without looking.
fn check_merges(model: &Json) -> std::result::Result<(), String> {
    let (Some(merges), Some(vocab)) = (model["merges"].as_array(), model["vocab"].as_object()) else { return Ok(()) };
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    for merge in merges {
        let pair = match merge {
            Json::String(text) => text.split_once(' '),
            other => other[0].as_str().zip(other[1].as_str()),
        };
        let united = pair.and_then(|(a, b)| {
            let united = format!("{a}{}", b.strip_prefix(prefix)?);
            [a, b, &united].into_iter().all(|token| vocab.contains_key(token)).then_some(())
        });
        let is_heading = merge.as_str().is_some_and(|text| text.starts_with("#version"));
        if united.is_none() && !is_heading {
            return Err(format!("the merge {merge} is not of tokens to a token"));
        }
    }
    Ok(())
}

/// The encoder of a vocabulary, and what the user should know. Takes the merges out of it, which nothing else needs.
pub(super) fn of_vocabulary(vocabulary: &mut Vocabulary) -> Result<(Encoder, Option<String>)> {
    let mut warning = None;
    let mut encoder = match vocabulary.kind {
        VocabularyKind::ByteLevel => {
            let (encoder, w) = byte_level(vocabulary)?;
            warning = w;
            encoder
        }
        VocabularyKind::SentencePiece => sentence_piece(vocabulary)?,
        VocabularyKind::Merges => merges(vocabulary)?,
        VocabularyKind::Unigram => unigram(vocabulary)?,
        VocabularyKind::WordPiece => word_piece(vocabulary)?,
    };
    encoder.added = added(vocabulary);
    Ok((encoder, warning))
}

/// Tokens that are found in text before it is encoded.
fn added(vocabulary: &Vocabulary) -> Vec<AddedToken> {
    let drops_space = |text: &str| vocabulary.phi3 && !["<unk>", "<s>", "<|endoftext|>"].contains(&text);
    vocabulary
        .tokens
        .iter()
        .zip(&vocabulary.types)
        .filter(|(text, kind)| !text.is_empty() && matches!(kind, TokenType::Control | TokenType::Unknown | TokenType::UserDefined))
        .map(|(text, kind)| AddedToken::from(text.as_str(), *kind != TokenType::UserDefined).normalized(false).rstrip(drops_space(text)))
        .collect()
}

/// Ids by token; of equal tokens the first counts.
fn ids(tokens: &[String]) -> ahash::AHashMap<String, u32> {
    let mut ids = ahash::AHashMap::with_capacity(tokens.len());
    for (id, token) in (0..).zip(tokens) {
        ids.entry(token.clone()).or_insert(id);
    }
    ids
}

/// The merges of a vocabulary, each of tokens to a token.
fn checked_merges(vocabulary: &mut Vocabulary, ids: &ahash::AHashMap<String, u32>) -> Result<Vec<(String, String)>> {
    let merges = std::mem::take(&mut vocabulary.merges);
    let strange = |(a, b): &&(String, String)| !ids.contains_key(a) || !ids.contains_key(b) || !ids.contains_key(&format!("{a}{b}"));
    match merges.iter().find(strange) {
        Some((a, b)) => Err(build_error(format!("the merge of {a:?} and {b:?} is not of tokens"))),
        None => Ok(merges),
    }
}

fn byte_level(vocabulary: &mut Vocabulary) -> Result<(Encoder, Option<String>)> {
    let (pre, warning) = pre_tokenizer(vocabulary.pre.as_deref());
    let ids = ids(&vocabulary.tokens);
    let merges = checked_merges(vocabulary, &ids)?;
    let bpe = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(pre.whole_words).build().map_err(build_error)?;
    let mut encoder = Encoder::new(bpe);
    let cuts = &mut encoder.cuts;
    pre.patterns.iter().try_for_each(|p| cuts.isolate(p)).map_err(build_error)?;
    cuts.push(ByteLevel::new(false, false, false));
    pre.late.iter().try_for_each(|p| cuts.isolate(p)).map_err(build_error)?;
    if pre.nfc {
        encoder.changes.push(NFC);
    }
    Ok((encoder, warning))
}

/// SentencePiece merges the pair whose union has the best score; as merges in that order it is a byte pair encoding.
fn sentence_piece(vocabulary: &Vocabulary) -> Result<Encoder> {
    let usable = |kind: TokenType| matches!(kind, TokenType::Normal | TokenType::UserDefined | TokenType::Unused);
    let ids = ids(&vocabulary.tokens);
    let mut merges = Vec::new();
    let mut seen = HashSet::new();
    for ((token, &score), &kind) in vocabulary.tokens.iter().zip(&vocabulary.scores).zip(&vocabulary.types) {
        if !usable(kind) || !seen.insert(token) {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (a, b) = token.split_at(at);
            if ids.contains_key(a) && ids.contains_key(b) {
                merges.push((score, a.to_owned(), b.to_owned()));
            }
        }
    }
    // The sort is stable, so pairs of one token stay in the order of their cuts.
    merges.sort_by(|a, b| b.0.total_cmp(&a.0));
    let merges = merges.into_iter().map(|(_, a, b)| (a, b)).collect();
    normalized(characters(ids, merges, vocabulary)?, vocabulary)
}

/// Gemma 4: merges of characters, of a text as a whole.
fn merges(vocabulary: &mut Vocabulary) -> Result<Encoder> {
    let ids = ids(&vocabulary.tokens);
    let merges = checked_merges(vocabulary, &ids)?;
    normalized(characters(ids, merges, vocabulary)?, vocabulary)
}

/// Byte pair encoding of characters; those that are no token become bytes.
fn characters(ids: ahash::AHashMap<String, u32>, merges: Vec<(String, String)>, vocabulary: &Vocabulary) -> Result<Encoder> {
    let mut builder = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unk) = vocabulary.unk.and_then(|id| vocabulary.tokens.get(id as usize)) {
        builder = builder.unk_token(unk.clone());
    }
    Ok(Encoder::new(builder.build().map_err(build_error)?))
}

/// What SentencePiece does to text first; the space in front comes later.
fn normalized(mut encoder: Encoder, vocabulary: &Vocabulary) -> Result<Encoder> {
    let changes = &mut encoder.changes;
    if !vocabulary.charsmap.is_empty() {
        changes.push(Precompiled::from(&vocabulary.charsmap).map_err(build_error)?);
    }
    if vocabulary.remove_extra_whitespaces {
        // Spaces alone: other white space is left as it is.
        for (what, with) in [(r"\A +| +\z", ""), (" {2,}", " ")] {
            changes.replace(what, with).map_err(build_error)?;
        }
    }
    changes.replace(" ", SPACE).map_err(build_error)?;
    Ok(encoder)
}

fn unigram(vocabulary: &Vocabulary) -> Result<Encoder> {
    /// Of tokens that text is never cut into, however it spells them.
    const NEVER: f64 = -1e6;
    let score = |(&score, kind): (&f32, &TokenType)| match kind {
        TokenType::Normal | TokenType::UserDefined => f64::from(score),
        _ => NEVER,
    };
    let pieces = vocabulary.tokens.iter().cloned().zip(vocabulary.scores.iter().zip(&vocabulary.types).map(score)).collect();
    let has_bytes = vocabulary.types.contains(&TokenType::Byte);
    let model = Unigram::from(pieces, vocabulary.unk.map(|id| id as usize), has_bytes).map_err(build_error)?;
    normalized(Encoder::new(model), vocabulary)
}

/// GGUF marks starts of words, the crate their continuations.
fn word_piece(vocabulary: &Vocabulary) -> Result<Encoder> {
    let words: Vec<String> = vocabulary
        .tokens
        .iter()
        .zip(&vocabulary.types)
        .map(|(text, kind)| match text.strip_prefix(SPACE) {
            Some(start) => start.to_owned(),
            None if *kind == TokenType::Normal => format!("##{text}"),
            None => text.clone(),
        })
        .collect();
    let unk = vocabulary.unk.and_then(|id| words.get(id as usize).cloned()).unwrap_or_else(|| "[UNK]".to_owned());
    let model = WordPiece::builder().vocab(ids(&words)).unk_token(unk).build().map_err(build_error)?;
    let mut encoder = Encoder::new(model);
    encoder.changes.push(BertNormalizer::default());
    encoder.cuts.push(BertPreTokenizer);
    Ok(encoder)
}
