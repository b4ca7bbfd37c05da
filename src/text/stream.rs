//! Text as it comes, a token at a time: whole characters only, and nothing of a stop string.

/// Puts bytes together to characters.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    held: Vec<u8>, // the start of a character
}

impl StreamDecoder {
    /// Takes bytes and gives the characters that are complete. Bytes that can become no character are U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = &self.held[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(e) => {
                    let (valid, bad) = rest.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = bad;
                    let Some(len) = e.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[len..];
                }
            }
        }
        self.held = rest.to_vec();
        text
    }

    /// What is left at the end: U+FFFD for a character that was not finished.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

/// Holds back what may be the start of a stop string.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    met: Option<(String, String)>,
}

impl StopStrings {
    /// Watches for these strings; empty ones are passed over.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        StopStrings { stops: stops.into_iter().filter(|s| !s.is_empty()).collect(), held: String::new(), met: None }
    }

    /// Takes text, and gives what is certainly before any stop string and whether one was met.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|s| Some((self.held.find(s.as_str())?, s.len())));
        if let Some((at, len)) = found.min_by_key(|&(at, len)| (at, std::cmp::Reverse(len))) {
            let behind = self.held.split_off(at + len);
            self.met = Some((self.held.split_off(at), behind));
            return (std::mem::take(&mut self.held), true);
        }
        let safe = self.held.char_indices().map(|(i, _)| i).find(|&i| self.stops.iter().any(|s| s.starts_with(&self.held[i..])));
        let rest = self.held.split_off(safe.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The stop string that was met, and what came behind it; [`push`](Self::push) said that there is one.
    pub fn take_met(&mut self) -> Option<(String, String)> {
        self.met.take()
    }

    /// What was held back, at the end.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_equals_the_whole_however_it_is_cut() {
        let texts: [&[u8]; 4] = ["héllo 😀 世界".as_bytes(), b"a\xff\xfeb\xe2\x82", b"\xf0\x9f\x98", b"\xe2\x28\xa1ok"];
        for text in texts {
            for size in 1..=text.len() {
                let mut d = StreamDecoder::default();
                let mut got: String = text.chunks(size).map(|c| d.push(c)).collect();
                got += &d.finish();
                assert_eq!(got, String::from_utf8_lossy(text), "in pieces of {size}");
            }
        }
    }

    #[test]
    fn stop_strings_across_pieces_do_not_leak_and_nothing_is_lost() {
        for size in 1..8 {
            let mut s = StopStrings::new(["<end>".to_owned(), "STOP".to_owned()]);
            let mut out = String::new();
            for piece in "a <en b <end> c".as_bytes().chunks(size) {
                let (text, stop) = s.push(std::str::from_utf8(piece).unwrap());
                out += &text;
                if stop {
                    break;
                }
            }
            assert_eq!(out, "a <en b ", "in pieces of {size}");
        }
        let mut s = StopStrings::new(["STOP".to_owned()]);
        let (text, stop) = s.push("no STO");
        assert_eq!((text.as_str(), stop, s.finish().as_str()), ("no ", false, "STO"));
    }
}
