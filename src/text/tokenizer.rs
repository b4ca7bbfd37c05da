//! Text to tokens and back.
//!
//! Special tokens are found here, not in the encoder: control tokens only where the caller says that the text may hold
//! them, so what a user writes never becomes structure.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer as Encoder};

use super::pretokenizer::pre_tokenizer;
use super::vocabulary::{TokenType, Vocabulary, VocabularyKind};
use crate::model::Gguf;
use crate::{Error, Result};

/// How [`Tokenizer::encode`] treats special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encode {
    /// Adds the tokens that begin and end a text, by the model's rule.
    pub add_special: bool,
    /// Takes the spelling of a control token in the text for that token.
    pub parse_special: bool,
}

/// Texts of tokens that end a turn in published models, beside the ones a file names.
const ENDS: [&str; 10] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<EOT>",
    "<|return|>",
];

/// SentencePiece's sign for a space.
const SPACE: char = '▁';

/// A model's tokenizer.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    encoder: Encoder,
    special: Specials, // control and user-defined
    user: Specials,
    ends: Vec<u32>,
    warnings: Vec<String>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("kind", &self.vocabulary.kind)
            .field("tokens", &self.vocabulary.tokens.len())
            .finish_non_exhaustive()
    }
}

/// Tokens that are found in text before it is encoded: the leftmost, and of those the longest.
struct Specials {
    finder: Option<AhoCorasick>,
    ids: Vec<u32>,
}

impl Specials {
    fn new(vocabulary: &Vocabulary, wanted: impl Fn(TokenType) -> bool) -> Result<Self> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = (0..)
            .zip(&vocabulary.tokens)
            .zip(&vocabulary.types)
            .filter(|((_, t), k)| wanted(**k) && !t.is_empty())
            .map(|((i, t), _)| (i, t.as_str()))
            .unzip();
        let finder = if ids.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
            Some(built.map_err(|e| Error::Tokenizer(format!("special tokens: {e}")))?)
        };
        Ok(Specials { finder, ids })
    }

    /// The special tokens of a text: start, end and id of each.
    fn find<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, usize, u32)> + 'a {
        self.finder.iter().flat_map(move |f| f.find_iter(text)).map(|m| (m.start(), m.end(), self.ids[m.pattern().as_usize()]))
    }
}

impl Tokenizer {
    /// The tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// If the file's tokenizer is of an unsupported kind or damaged, naming the key.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        Self::new(Vocabulary::from_gguf(file)?)
    }

    /// The tokenizer of a vocabulary.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if merges and tokens do not fit together.
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self> {
        let (encoder, warnings) = match vocabulary.kind {
            VocabularyKind::ByteLevel => byte_level(&mut vocabulary)?,
            VocabularyKind::SentencePiece => (sentence_piece(&vocabulary)?, Vec::new()),
        };
        let special = Specials::new(&vocabulary, |t| matches!(t, TokenType::Control | TokenType::Unknown | TokenType::UserDefined))?;
        let user = Specials::new(&vocabulary, |t| t == TokenType::UserDefined)?;
        let mut ends: Vec<u32> = vocabulary.eos.into_iter().chain(vocabulary.eot).collect();
        for (id, (token, kind)) in (0..).zip(vocabulary.tokens.iter().zip(&vocabulary.types)) {
            if matches!(kind, TokenType::Control | TokenType::UserDefined) && ENDS.contains(&token.as_str()) && !ends.contains(&id) {
                ends.push(id);
            }
        }
        Ok(Tokenizer { vocabulary, encoder, special, user, ends, warnings })
    }

    /// What the user should know, such as a pre-tokenizer that is not known.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.tokens.len()
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Tokens that end a reply.
    pub fn end_ids(&self) -> &[u32] {
        &self.ends
    }

    /// The text of a token as the vocabulary spells it.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.vocabulary.tokens.get(id as usize).map(String::as_str)
    }

    /// Whether a token is structure rather than text.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocabulary.types.get(id as usize), Some(TokenType::Control | TokenType::Unknown))
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the encoder fails, which a sound vocabulary does not make it do.
    pub fn encode(&self, text: &str, how: Encode) -> Result<Vec<u32>> {
        self.encode_with(text, how, |plain| plain.to_owned())
    }

    /// As [`encode`](Self::encode), with the text between special tokens changed by `plain` first.
    pub(super) fn encode_with(&self, text: &str, how: Encode, plain: impl Fn(&str) -> String) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let specials = if how.parse_special { &self.special } else { &self.user };
        let mut from = 0;
        for (start, end, id) in specials.find(text) {
            self.encode_plain(&plain(&text[from..start]), &mut ids)?;
            ids.push(id);
            from = end;
        }
        self.encode_plain(&plain(&text[from..]), &mut ids)?;
        if how.add_special {
            self.add_special(&mut ids);
        }
        Ok(ids)
    }

    /// Start and end of the first spelling of a special token from byte `from` on. Tokens of one character or of
    /// white space, which an author adds to spell text, are passed over.
    pub(super) fn next_special(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let mut found = self.special.find(&text[from..]).map(|(start, end, _)| (from + start, from + end));
        found.find(|&(start, end)| text[start..end].trim().chars().nth(1).is_some())
    }

    /// Puts the tokens that begin and end a text where the model wants them, unless they are there.
    pub fn add_special(&self, ids: &mut Vec<u32>) {
        let v = &self.vocabulary;
        if let Some(bos) = v.bos.filter(|&bos| v.add_bos && ids.first() != Some(&bos)) {
            ids.insert(0, bos);
        }
        if let Some(eos) = v.eos.filter(|&eos| v.add_eos && ids.last() != Some(&eos)) {
            ids.push(eos);
        }
    }

    /// Appends the tokens of text without special tokens. `ids` holds what stands before it.
    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let failed = |e: tokenizers::Error| Error::Tokenizer(format!("encoding failed: {e}"));
        let encoding = match self.vocabulary.kind {
            VocabularyKind::ByteLevel => self.encoder.encode_fast(text, false).map_err(failed)?,
            VocabularyKind::SentencePiece => {
                // Only the start of a text gets the space; after a special token the text goes on as it is.
                let prefix = self.vocabulary.add_space_prefix && ids.is_empty();
                let mut escaped = String::with_capacity(text.len() + 8);
                escaped.extend(prefix.then_some(SPACE));
                escaped.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
                self.encoder.encode_fast(escaped, false).map_err(failed)?
            }
        };
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// Appends the bytes that a token stands for; control tokens are spelled out if `special`, else left out.
    pub fn append_bytes(&self, id: u32, special: bool, out: &mut Vec<u8>) {
        let (Some(token), Some(kind)) = (self.piece(id), self.vocabulary.types.get(id as usize)) else { return };
        match (kind, self.vocabulary.kind) {
            (TokenType::Control | TokenType::Unknown, _) => {
                if special {
                    out.extend_from_slice(token.as_bytes());
                }
            }
            (TokenType::UserDefined | TokenType::Unused, _) => out.extend_from_slice(token.as_bytes()),
            (_, VocabularyKind::ByteLevel) => {
                for c in token.chars() {
                    match byte_of(c) {
                        Some(b) => out.push(b),
                        None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
            }
            (TokenType::Byte, VocabularyKind::SentencePiece) => match byte_token(token) {
                Some(b) => out.push(b),
                None => out.extend_from_slice(token.as_bytes()),
            },
            (TokenType::Normal, VocabularyKind::SentencePiece) => {
                for c in token.chars() {
                    out.extend_from_slice(if c == SPACE { ' ' } else { c }.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
    }

    /// The text of tokens; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut bytes = Vec::new();
        let mut start_of_text = self.vocabulary.kind == VocabularyKind::SentencePiece && self.vocabulary.add_space_prefix;
        for &id in ids {
            let from = bytes.len();
            self.append_bytes(id, special, &mut bytes);
            // The space that encoding put in front is taken away again; text after another token than BOS got none.
            if start_of_text && Some(id) != self.vocabulary.bos {
                start_of_text = false;
                if !self.is_control(id) && bytes.get(from) == Some(&b' ') {
                    bytes.remove(from);
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn build_error(e: impl std::fmt::Display) -> Error {
    Error::Tokenizer(format!("the vocabulary cannot be used: {e}; the file is damaged or was converted wrongly"))
}

fn byte_level(vocabulary: &mut Vocabulary) -> Result<(Encoder, Vec<String>)> {
    let (pre, warning) = pre_tokenizer(vocabulary.pre.as_deref());
    let ids = (0..).zip(&vocabulary.tokens).map(|(id, token)| (token.clone(), id)).collect::<Vec<(String, u32)>>();
    // Of equal tokens the first counts.
    let ids: ahash::AHashMap<String, u32> = ids.into_iter().rev().collect();
    let merges = std::mem::take(&mut vocabulary.merges);
    if let Some((a, b)) = merges.iter().find(|(a, b)| !ids.contains_key(a) || !ids.contains_key(b) || !ids.contains_key(&format!("{a}{b}")))
    {
        return Err(build_error(format!("the merge of {a:?} and {b:?} is not of tokens")));
    }
    let bpe = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(pre.whole_words).build().map_err(build_error)?;
    let mut steps = Vec::new();
    for pattern in pre.patterns {
        let split = Split::new(SplitPattern::Regex((*pattern).to_owned()), SplitDelimiterBehavior::Isolated, false).map_err(build_error)?;
        steps.push(PreTokenizerWrapper::Split(split));
    }
    steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
    let mut encoder = Encoder::new(bpe);
    encoder.with_pre_tokenizer(Some(Sequence::new(steps)));
    Ok((encoder, warning.into_iter().collect()))
}

/// SentencePiece merges the pair whose union has the best score; as merges in that order it is a byte pair encoding.
fn sentence_piece(vocabulary: &Vocabulary) -> Result<Encoder> {
    let usable = |kind: TokenType| matches!(kind, TokenType::Normal | TokenType::UserDefined | TokenType::Unused);
    let mut ids = ahash::AHashMap::new();
    for (id, token) in (0..).zip(&vocabulary.tokens) {
        ids.entry(token.clone()).or_insert(id);
    }
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
    let mut builder = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unk) = vocabulary.unk.and_then(|id| vocabulary.tokens.get(id as usize)) {
        builder = builder.unk_token(unk.clone());
    }
    Ok(Encoder::new(builder.build().map_err(build_error)?))
}

/// The byte that a character of byte-level encoding stands for. Source: `bytes_to_unicode` of GPT-2's encoder.
fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        b @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(b as u8),
        // The bytes that are no visible character, in order, from U+0100 on.
        x @ 0x100..=0x120 => Some((x - 0x100) as u8),
        x @ 0x121..=0x142 => Some((x - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The byte of `<0xE2>`.
fn byte_token(token: &str) -> Option<u8> {
    u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}
