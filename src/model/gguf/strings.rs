//! Arrays of texts, in one allocation: vocabularies hold hundreds of thousands.

use std::borrow::Cow;
use std::ops::Index;

use serde::{Serialize, Serializer};

use super::cursor::{Cursor, Read};

/// An array of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Text `i`.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.text[start..end])
    }

    /// All texts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|i| &self[i])
    }

    /// Each text in a string of its own.
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }

    pub(super) fn read(c: &mut Cursor<'_>, what: &str, notes: &mut Vec<String>) -> Read<Strings> {
        // A length, for each.
        let n = c.count(8, what)?;
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(n);
        for _ in 0..n {
            bytes.extend_from_slice(c.text(what)?);
            ends.push(bytes.len());
        }
        // Joined bytes that are valid, cut between characters, are valid texts.
        let bytes = match String::from_utf8(bytes) {
            Ok(text) if ends.iter().all(|&end| text.is_char_boundary(end)) => return Ok(Strings { text, ends }),
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let mut start = 0;
        let mut n_bad = 0_usize;
        let strings = ends
            .iter()
            .map(|&end| {
                let text = String::from_utf8_lossy(&bytes[start..end]);
                n_bad += usize::from(matches!(text, Cow::Owned(_)));
                start = end;
                text
            })
            .collect();
        notes.push(format!("{what} holds {n_bad} texts that are not valid UTF-8; their bad bytes are read as U+FFFD"));
        Ok(strings)
    }
}

impl Index<usize> for Strings {
    type Output = str;

    fn index(&self, i: usize) -> &str {
        self.get(i).unwrap_or_else(|| panic!("text {i} of {}", self.len()))
    }
}

impl Serialize for Strings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let mut strings = Strings::default();
        for text in texts {
            strings.text.push_str(text.as_ref());
            strings.ends.push(strings.text.len());
        }
        strings
    }
}
