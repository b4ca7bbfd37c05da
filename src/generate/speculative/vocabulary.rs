//! Whether a draft means by its ids what the target does.

use crate::model::Model;
use crate::text::{TokenType, Vocabulary};
use crate::{Error, Result};

/// Checks that both models have the same tokens under the same ids. Ids that one has beyond the other's must be unused, as
/// where a vocabulary was padded to a round number.
///
/// # Errors
/// [`Error::InvalidArgument`] naming the first difference.
pub(super) fn check_vocabulary(target: &Model, draft: &Model) -> Result<()> {
    let Some(id) = first_difference(target.tokenizer().vocabulary(), draft.tokenizer().vocabulary()) else { return Ok(()) };
    let told = |model: &Model| {
        let path = model.file().path();
        let token = used(model.tokenizer().vocabulary(), id).map_or("unused".to_owned(), |piece| format!("{piece:?}"));
        format!("{token} in {}", path.file_name().unwrap_or(path.as_os_str()).display())
    };
    Err(Error::invalid(
        "draft model",
        format!("its vocabulary is another: token {id} is {}, and {}; take a draft of the same family", told(target), told(draft)),
    ))
}

/// The lowest id that stands for different tokens.
fn first_difference(a: &Vocabulary, b: &Vocabulary) -> Option<usize> {
    (0..a.tokens.len().max(b.tokens.len())).find(|&id| used(a, id) != used(b, id))
}

/// The token with this id, if it is one that can come up.
fn used(vocabulary: &Vocabulary, id: usize) -> Option<&str> {
    let kind = vocabulary.types.get(id)?;
    (*kind != TokenType::Unused).then(|| vocabulary.tokens[id].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::VocabularyKind;

    fn vocabulary(tokens: &[(&str, TokenType)]) -> Vocabulary {
        Vocabulary {
            kind: VocabularyKind::ByteLevel,
            tokens: tokens.iter().map(|(t, _)| (*t).to_owned()).collect(),
            types: tokens.iter().map(|(_, kind)| *kind).collect(),
            scores: Vec::new(),
            merges: Vec::new(),
            pre: None,
            bos: None,
            eos: None,
            eot: None,
            ends: Vec::new(),
            unk: None,
            add_bos: false,
            add_eos: false,
            add_space_prefix: false,
            phi3: false,
            remove_extra_whitespaces: false,
            charsmap: Vec::new(),
        }
    }

    #[test]
    fn only_padding_may_differ() {
        use TokenType::{Control, Normal, Unused};
        let base = vocabulary(&[("a", Normal), ("b", Normal), ("<end>", Control)]);
        let difference = |other: &[(&str, TokenType)]| {
            let other = vocabulary(other);
            let found = first_difference(&base, &other);
            assert_eq!(found, first_difference(&other, &base), "either way");
            found
        };
        assert_eq!(difference(&[("a", Normal), ("b", Normal), ("<end>", Control)]), None);
        assert_eq!(difference(&[("a", Normal), ("b", Normal), ("<end>", Control), ("[PAD3]", Unused), ("[PAD4]", Unused)]), None);
        assert_eq!(difference(&[("a", Normal), ("c", Normal), ("<end>", Control)]), Some(1));
        assert_eq!(difference(&[("a", Normal), ("b", Normal)]), Some(2));
        assert_eq!(difference(&[("a", Normal), ("b", Normal), ("<end>", Control), ("more", Normal)]), Some(3));
        assert_eq!(difference(&[("a", Normal), ("b", Unused), ("<end>", Control)]), Some(1));
    }
}
