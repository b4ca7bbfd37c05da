//! `tokenizer.model`: a vocabulary as SentencePiece writes it.
//!
//! Source: `sentencepiece_model.proto` of SentencePiece, and the wire format of Protocol Buffers, of which it needs four forms.

use std::path::Path;

use super::super::fields::malformed;
use crate::Result;

/// What of the file text depends on.
#[derive(Debug)]
pub(super) struct SentencePiece {
    pub(super) pieces: Vec<Piece>,
    pub(super) unigram: bool,
    pub(super) charsmap: Vec<u8>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    pub(super) unk: i64,
    pub(super) bos: i64,
    pub(super) eos: i64,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    /// The numbers are those of GGUF, which took them from here.
    pub(super) kind: i32,
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Float(f32),
    /// A form that no field which is read has.
    Other,
}

/// The next field of a message and its number; `None` if the message is damaged.
fn field<'a>(message: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = varint(message)?;
    let field = match key & 7 {
        0 => Field::Number(varint(message)?),
        1 => {
            message.split_off(..8)?;
            Field::Other
        }
        2 => {
            let n = usize::try_from(varint(message)?).ok()?;
            Field::Bytes(message.split_off(..n)?)
        }
        5 => Field::Float(f32::from_le_bytes(message.split_off(..4)?.try_into().ok()?)),
        _ => return None,
    };
    Some((key >> 3, field))
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut x = 0_u64;
    for i in 0..10 {
        let byte = *message.split_off_first()?;
        x |= u64::from(byte & 0x7f).checked_shl(7 * i)?;
        if byte < 0x80 {
            return Some(x);
        }
    }
    None
}

/// All fields of a message.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        fields.push(field(&mut message)?);
    }
    Some(fields)
}

impl SentencePiece {
    pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Self> {
        let damaged = || malformed(path, "this is no vocabulary of SentencePiece; the file is damaged, fetch it again");
        let model = Self::parse(bytes).ok_or_else(damaged)?;
        match model {
            Ok(model) if !model.pieces.is_empty() => Ok(model),
            Ok(_) => Err(damaged()),
            Err(kind) => Err(malformed(path, format!("the vocabulary is of SentencePiece's kind {kind}; rml has unigram (1) and bpe (2)"))),
        }
    }

    /// `None` if it is damaged, the kind if that is not known.
    fn parse(bytes: &[u8]) -> Option<std::result::Result<Self, u64>> {
        // The defaults of the format.
        let mut model = SentencePiece {
            pieces: Vec::new(),
            unigram: true,
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            unk: 0,
            bos: 1,
            eos: 2,
        };
        let mut kind = 1;
        for (number, value) in fields(bytes)? {
            let Field::Bytes(message) = value else { continue };
            match number {
                1 => model.pieces.push(Piece::parse(message)?),
                2 => {
                    for (number, value) in fields(message)? {
                        match (number, value) {
                            (3, Field::Number(x)) => kind = x,
                            (40, Field::Number(x)) => model.unk = x as i64,
                            (41, Field::Number(x)) => model.bos = x as i64,
                            (42, Field::Number(x)) => model.eos = x as i64,
                            _ => {}
                        }
                    }
                }
                3 => {
                    for (number, value) in fields(message)? {
                        match (number, value) {
                            (2, Field::Bytes(map)) => model.charsmap = map.to_vec(),
                            (3, Field::Number(x)) => model.add_dummy_prefix = x != 0,
                            (4, Field::Number(x)) => model.remove_extra_whitespaces = x != 0,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        model.unigram = kind == 1;
        Some(if kind == 1 || kind == 2 { Ok(model) } else { Err(kind) })
    }
}

impl Piece {
    fn parse(message: &[u8]) -> Option<Self> {
        let mut piece = Piece { text: String::new(), score: 0.0, kind: 1 };
        for (number, value) in fields(message)? {
            match (number, value) {
                (1, Field::Bytes(text)) => piece.text = std::str::from_utf8(text).ok()?.to_owned(),
                (2, Field::Float(score)) if !score.is_nan() => piece.score = score,
                (3, Field::Number(kind @ 1..=6)) => piece.kind = kind as i32,
                _ => return None,
            }
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_short_or_says_too_much_is_damaged() {
        // Pieces `<unk>` of kind 2 and `▁a` with a score of -1; a trainer of kind 2; a normalizer without prefix.
        let whole: &[u8] = b"\x0a\x09\x0a\x05<unk>\x18\x02\x0a\x0b\x0a\x04\xe2\x96\x81a\x15\0\0\x80\xbf\x12\x02\x18\x02\x1a\x02\x18\0";
        let model = SentencePiece::read(Path::new("tokenizer.model"), whole).expect("a model");
        let pieces: Vec<_> = model.pieces.iter().map(|p| (p.text.as_str(), p.score, p.kind)).collect();
        assert_eq!(pieces, [("<unk>", 0.0, 2), ("▁a", -1.0, 1)]);
        assert_eq!((model.unigram, model.add_dummy_prefix, model.remove_extra_whitespaces, model.bos), (false, false, true, 1));
        for bad in [
            &whole[..10],
            &whole[..whole.len() - 1],
            b"",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        ] {
            assert!(SentencePiece::read(Path::new("tokenizer.model"), bad).is_err(), "{bad:?}");
        }
    }
}
