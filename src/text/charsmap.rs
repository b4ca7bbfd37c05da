//! SentencePiece's compiled map of characters, looked over before the crate that walks through it trusts its numbers.
//!
//! Source: `Darts` double arrays; `normalizer.cc` of SentencePiece. A little-endian length in bytes, a trie of 32-bit units,
//! and texts that its leaves point to, each with a zero behind it.

/// Bytes of the longest text that a character may become; Unicode's form KC needs 33.
const LONGEST: usize = 1024;

/// The map that a `tokenizer.json` holds in base 64; `None` if it is not, or not sound.
pub(crate) fn of_base64(text: &str) -> Option<Vec<u8>> {
    base64(text).filter(|map| map.is_empty() || is_sound(map))
}

/// Whether every way through the trie stays within it and every leaf points to the start of a character of the texts.
pub(crate) fn is_sound(map: &[u8]) -> bool {
    let Some((length, rest)) = map.split_first_chunk() else { return false };
    let length = u32::from_le_bytes(*length) as usize;
    if !length.is_multiple_of(4) {
        return false;
    }
    let Some((trie, texts)) = rest.split_at_checked(length) else { return false };
    let units: Vec<usize> = trie.as_chunks().0.iter().map(|&unit| u32::from_le_bytes(unit) as usize).collect();
    let Ok(texts) = std::str::from_utf8(texts) else { return false };
    // Each character may become any of them.
    if texts.split('\0').any(|text| text.len() > LONGEST) {
        return false;
    }
    let offset = |unit: usize| (unit >> 10) << ((unit & (1 << 9)) >> 6);
    let Some(&root) = units.first() else { return false };
    // Places from which a byte leads on.
    let mut seen = vec![false; units.len()];
    let mut waiting = vec![offset(root)];
    while let Some(base) = waiting.pop() {
        // A byte may be any but zero, and the unit that it leads to is looked at before it is known to be right.
        if (base | 0xff) >= units.len() && (1..=255).any(|byte| base ^ byte >= units.len()) {
            return false;
        }
        if std::mem::replace(&mut seen[base.min(units.len() - 1)], true) {
            continue;
        }
        for byte in 1..=255 {
            let at = base ^ byte;
            let unit = units[at];
            if unit & ((1 << 31) | 0xff) != byte {
                continue;
            }
            let next = at ^ offset(unit);
            if (unit >> 8) & 1 == 1 {
                let Some(leaf) = units.get(next) else { return false };
                if !texts.is_char_boundary(leaf & ((1 << 31) - 1)) {
                    return false;
                }
            }
            waiting.push(next);
        }
    }
    true
}

/// The bytes of base 64 with padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let sextet = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().try_fold(0_u32, |bits, &c| Some(bits << 6 | u32::from(sextet(c)?)))? << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie of 512 units in which `a` leads to a leaf with this value, and the texts.
    fn map(value: u32, texts: &str) -> Vec<u8> {
        let mut units = vec![0_u32; 512];
        units[0] = 256 << 10;
        units[256 ^ 0x61] = 0x61 | 1 << 8 | (0x61 << 10);
        units[256] = value | 1 << 31;
        let mut map = 2048_u32.to_le_bytes().to_vec();
        map.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        map.extend(texts.as_bytes());
        map
    }

    #[test]
    fn what_points_elsewhere_is_not_sound() {
        assert!(is_sound(&map(2, "x\0ä\0")));
        // Within a character, and behind the end.
        assert!(!is_sound(&map(3, "x\0ä\0")));
        assert!(!is_sound(&map(9, "x\0ä\0")));
        let sound = map(2, "x\0ä\0");
        for n in 0..4 + 2048 {
            assert!(!is_sound(&sound[..n]), "{n} bytes");
        }
        // A text that is too long for a character.
        assert!(!is_sound(&map(0, &"x".repeat(LONGEST + 1))));
        // A length that the file does not have, and a root that leads out of the trie.
        assert!(!is_sound(&[0xff; 64]));
        let mut far = sound;
        far[4..8].copy_from_slice(&(4096_u32 << 10).to_le_bytes());
        assert!(!is_sound(&far));
    }
}
