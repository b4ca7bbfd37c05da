//! A conversation as text, to be kept with the session that it belongs to.

use serde::Deserialize;

use super::conversation::{Message, SYSTEM};

/// A message as it was kept.
#[derive(Deserialize)]
struct Kept {
    role: String,
    content: String,
}

/// The transcript as JSON.
pub(super) fn to_bytes(transcript: &[Message]) -> Vec<u8> {
    serde_json::to_vec(transcript).expect("texts are JSON")
}

/// The transcript that [`to_bytes`] wrote, or `None` if it is none that a conversation leaves: a system message or none, then
/// turns of two messages each.
pub(super) fn from_bytes(bytes: &[u8]) -> Option<Vec<Message>> {
    let kept: Vec<Kept> = serde_json::from_slice(bytes).ok()?;
    let first = usize::from(kept.first().is_some_and(|m| m.role == SYSTEM));
    let roles = kept.iter().enumerate().map(|(i, m)| match (i < first, i % 2 == first % 2) {
        (true, _) => (m, SYSTEM),
        (false, true) => (m, "user"),
        (false, false) => (m, "assistant"),
    });
    let transcript = roles.map(|(m, role)| (m.role == role).then(|| Message::new(role, &m.content))).collect::<Option<Vec<_>>>()?;
    (transcript.len() % 2 == first).then_some(transcript)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_come_back() {
        let turn = [Message::new("user", "a \"b\"\n\u{0}"), Message::new("assistant", "ü")];
        let all = [&[Message::new(SYSTEM, "be kind")][..], &turn, &turn].concat();
        for transcript in [&all[..0], &all[..1], &all[..3], &all[..], &all[1..]] {
            assert_eq!(from_bytes(&to_bytes(transcript)).as_deref(), Some(transcript));
        }
        for broken in [&all[..2], &all[2..], &all[1..4]] {
            assert_eq!(from_bytes(&to_bytes(broken)), None, "{broken:?}");
        }
        for text in ["", "{}", "[1]", r#"[{"role":"tool","content":"x"}]"#, r#"[{"role":"user"}]"#, "[", "[[[["] {
            assert_eq!(from_bytes(text.as_bytes()), None, "{text}");
        }
    }
}
