//! Text to tokens and back.
//!
//! Special tokens are found here, not in the encoder: control tokens only where the caller says that the text may hold
//! them, so what a user writes never becomes structure.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{AddedToken, AddedVocabulary, Model as _, ModelWrapper, Normalizer as _, OffsetType, PreTokenizedString, Token};

use super::encoder::{self, Encoder, SPACE};
use super::steps::{Changes, Cuts, Remembered};
use super::vocabulary::{HUGGING_FACE, TokenType, Vocabulary, VocabularyKind};
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

/// A model's tokenizer: encoding is that of the crate `tokenizers`, whether it is described by GGUF's keys or by the model's own
/// `tokenizer.json`.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    changes: Changes,
    cuts: Cuts,
    model: ModelWrapper,
    /// Tokens that are found in text first.
    added: AddedVocabulary,
    /// The same where the spelling of a control token is text.
    plain: AddedVocabulary,
    /// The same where every one is found as it is spelled, before text is normalized.
    exact: AddedVocabulary,
    special: Specials,
    prefix: Prefix,
    ends: Vec<u32>,
    warnings: Vec<String>,
}

/// Where text gets a space in front, if the encoder does not do that itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefix {
    None,
    /// At the start; behind a special token the text goes on as it is.
    Start,
    /// Behind special tokens too.
    Each,
    /// Behind special tokens too, but not where there is one.
    EachWithout,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("kind", &self.vocabulary.kind)
            .field("tokens", &self.vocabulary.tokens.len())
            .finish_non_exhaustive()
    }
}

/// Control and user-defined tokens in a text: the leftmost, and of those the longest.
struct Specials {
    finder: Option<AhoCorasick>,
    ids: Vec<u32>,
}

impl Specials {
    fn new(vocabulary: &Vocabulary) -> Result<Self> {
        let special = |kind: TokenType| matches!(kind, TokenType::Control | TokenType::Unknown | TokenType::UserDefined);
        let (ids, texts): (Vec<u32>, Vec<&str>) = (0..)
            .zip(&vocabulary.tokens)
            .zip(&vocabulary.types)
            .filter(|((_, t), k)| special(**k) && !t.is_empty())
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
    /// The tokenizer that a GGUF file or a directory describes.
    ///
    /// # Errors
    /// If the tokenizer is of an unsupported kind or damaged, naming the key.
    pub fn from_gguf(file: &Gguf) -> Result<Self> {
        let vocabulary = Vocabulary::from_gguf(file)?;
        let Some(json) = file.metadata().str(HUGGING_FACE)? else { return Self::new(vocabulary) };
        Self::with_encoder(vocabulary, encoder::of_json(json)?, Prefix::None, None)
    }

    /// The tokenizer of a vocabulary.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if merges and tokens do not fit together.
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self> {
        let (encoder, warning) = encoder::of_vocabulary(&mut vocabulary)?;
        let prefix = match vocabulary.kind {
            VocabularyKind::ByteLevel | VocabularyKind::WordPiece => Prefix::None,
            _ if !vocabulary.add_space_prefix => Prefix::None,
            VocabularyKind::Unigram => Prefix::EachWithout,
            _ if vocabulary.phi3 => Prefix::Each,
            _ => Prefix::Start,
        };
        Self::with_encoder(vocabulary, encoder, prefix, warning)
    }

    fn with_encoder(vocabulary: Vocabulary, encoder: Encoder, prefix: Prefix, warning: Option<String>) -> Result<Self> {
        let Encoder { added: tokens, changes, cuts, model } = encoder;
        let known = |tokens: Vec<AddedToken>| {
            let mut known = AddedVocabulary::new();
            let added = known.add_tokens(tokens, &model, Some(&changes));
            added.map(|_| known).map_err(|e| Error::Tokenizer(format!("special tokens: {e}")))
        };
        let exact = known(tokens.iter().map(|token| token.clone().normalized(false)).collect())?;
        let added = known(tokens)?;
        let mut plain = added.clone();
        plain.set_encode_special_tokens(true);
        let special = Specials::new(&vocabulary)?;
        let mut ends: Vec<u32> = Vec::new();
        let spelled = (0..).zip(vocabulary.tokens.iter().zip(&vocabulary.types));
        let spelled = spelled
            .filter(|(_, (token, kind))| matches!(kind, TokenType::Control | TokenType::UserDefined) && ENDS.contains(&token.as_str()));
        for id in vocabulary.eos.into_iter().chain(vocabulary.eot).chain(vocabulary.ends.iter().copied()).chain(spelled.map(|(id, _)| id)) {
            if !ends.contains(&id) {
                ends.push(id);
            }
        }
        let warnings = warning.into_iter().collect();
        Ok(Tokenizer { vocabulary, changes, cuts, model, added, plain, exact, special, prefix, ends, warnings })
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
        let added = if how.parse_special { &self.added } else { &self.plain };
        let changes = Remembered { changes: &self.changes, error: OnceLock::new() };
        let pieces = added.extract_and_normalize(Some(&changes), text);
        if let Some(e) = changes.error.into_inner() {
            return Err(failed(e));
        }
        let mut ids = self.encode_pieces(pieces)?;
        if how.add_special {
            self.add_special(&mut ids);
        }
        Ok(ids)
    }

    /// The tokens of a text in which special tokens count, with `mark` taken out of the text between them.
    pub(super) fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<u32>> {
        let mut pieces = self.exact.extract_and_normalize(None::<&Changes>, text);
        let cleaned = pieces.normalize(|piece| {
            piece.filter(|c| c != mark);
            self.changes.normalize(piece)
        });
        cleaned.map_err(failed)?;
        self.encode_pieces(pieces)
    }

    /// The tokens of a text that was cut at special tokens and normalized.
    fn encode_pieces(&self, mut pieces: PreTokenizedString) -> Result<Vec<u32>> {
        if self.prefix != Prefix::None {
            let prefixed = pieces.split(|i, mut piece| {
                let wanted = match self.prefix {
                    Prefix::None => false,
                    Prefix::Start => i == 0,
                    Prefix::Each => true,
                    Prefix::EachWithout => !piece.get().starts_with(SPACE),
                };
                if wanted {
                    piece.prepend(SPACE);
                }
                Ok([piece])
            });
            prefixed.map_err(failed)?;
        }
        self.cuts.cut(&mut pieces).map_err(failed)?;
        pieces.tokenize(|piece| self.encode_piece(piece.get())).map_err(failed)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(failed)?;
        let ids = encoding.get_ids();
        match ids.iter().find(|&&id| id as usize >= self.vocab_size()) {
            Some(id) => Err(Error::Tokenizer(format!(
                "tokenizer.json gives the id {id}, beyond the {} tokens of the vocabulary",
                self.vocab_size()
            ))),
            None => Ok(ids.to_vec()),
        }
    }

    /// Start and id of the first spelling of a special token from byte `from` on. Tokens of one character or of white space,
    /// which an author adds to spell text, are passed over.
    pub(super) fn next_special(&self, text: &str, from: usize) -> Option<(usize, u32)> {
        let mut found = self.special.find(&text[from..]).map(|(start, end, id)| (from + start, from + end, id));
        found.find(|&(start, end, _)| text[start..end].trim().chars().nth(1).is_some()).map(|(start, _, id)| (start, id))
    }

    /// The tokens of text without special tokens. Some models would take text for a control token or a byte that it only
    /// spells; where they do, it is cut behind its first character.
    fn encode_piece(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        let tokens = self.model.tokenize(text)?;
        let spelled = |token: &Token| {
            let kind = self.vocabulary.types.get(token.id as usize);
            let at = text.get(token.offsets.0..token.offsets.1).filter(|at| at.chars().nth(1).is_some());
            matches!(kind, Some(TokenType::Control | TokenType::Unknown | TokenType::Byte)) && at.is_some() && at == self.piece(token.id)
        };
        if !tokens.iter().any(spelled) {
            return Ok(tokens);
        }
        let mut cut = Vec::with_capacity(tokens.len() + 1);
        for token in tokens {
            if spelled(&token) {
                let at = &text[token.offsets.0..token.offsets.1];
                let (first, rest) = at.split_at(at.chars().next().map_or(0, char::len_utf8));
                cut.extend(self.encode_piece(first)?);
                cut.extend(self.encode_piece(rest)?);
            } else {
                cut.push(token);
            }
        }
        Ok(cut)
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
            (TokenType::Byte, _) => match byte_token(token) {
                Some(b) => out.push(b),
                None => out.extend_from_slice(token.as_bytes()),
            },
            (TokenType::Normal, _) => out.extend_from_slice(token.replace(SPACE, " ").as_bytes()),
        }
    }

    /// Whether the tokens of a text begin with a space that is not of the text.
    pub fn begins_with_space(&self) -> bool {
        match self.vocabulary.kind {
            VocabularyKind::ByteLevel => false,
            VocabularyKind::WordPiece => true,
            _ => self.vocabulary.add_space_prefix,
        }
    }

    /// The text of tokens; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut bytes = Vec::new();
        let mut start_of_text = self.begins_with_space();
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

fn failed(e: tokenizers::Error) -> Error {
    Error::Tokenizer(format!("encoding failed: {e}"))
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
