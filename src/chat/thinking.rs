//! Reasoning before an answer, told from the answer as the text comes.

use crate::text::{StopStrings, THINKING};

/// How sections of reasoning are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ShowThinking {
    /// Like everything else.
    Show,
    /// Dim on a terminal.
    Dim,
    /// Not at all.
    Hide,
}

/// Cuts a reply into reasoning and answer.
pub(super) struct Sections {
    tags: StopStrings,
    inside: bool,
    /// Hidden reasoning takes the white space behind it along.
    behind: bool,
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) thinking: bool,
}

impl Sections {
    pub(super) fn new() -> Self {
        Sections { tags: opening(), inside: false, behind: false }
    }

    /// The parts that are certain with this text; tags are of the reasoning.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut rest = text.to_owned();
        loop {
            let (certain, tag) = self.tags.push(&rest);
            self.add(&mut parts, certain, self.inside);
            let Some((tag, behind)) = tag.then(|| self.tags.take_met()).flatten() else { return parts };
            self.add(&mut parts, tag, true);
            (self.inside, self.behind) = (!self.inside, self.inside);
            self.tags = if self.inside { closing() } else { opening() };
            rest = behind;
        }
    }

    /// What was held back as the possible start of a tag.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let held = self.tags.finish();
        self.add(&mut parts, held, self.inside);
        parts
    }

    fn add(&mut self, parts: &mut Vec<Part>, text: String, thinking: bool) {
        let space = if self.behind && !thinking { text.len() - text.trim_start().len() } else { 0 };
        let (space, text) = text.split_at(space);
        for (text, thinking) in [(space, true), (text, thinking)] {
            if !text.is_empty() {
                parts.push(Part { text: text.to_owned(), thinking });
            }
        }
        self.behind &= text.is_empty() || thinking;
    }
}

fn opening() -> StopStrings {
    StopStrings::new(THINKING.map(|(open, _)| open.to_owned()))
}

fn closing() -> StopStrings {
    StopStrings::new(THINKING.map(|(_, close)| close.to_owned()))
}

/// The tag at the end of a prompt after which the model goes on reasoning.
pub(super) fn left_open(prompt: &str) -> Option<&'static str> {
    let end = prompt.trim_end();
    THINKING.iter().map(|(open, _)| *open).find(|open| end.ends_with(open))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of a reply that comes in pieces of so many characters, and what is left out.
    fn split(text: &str, size: usize) -> (String, String) {
        let mut sections = Sections::new();
        let chars: Vec<char> = text.chars().collect();
        let mut parts: Vec<Part> = chars.chunks(size).flat_map(|c| sections.push(&c.iter().collect::<String>())).collect();
        parts.extend(sections.finish());
        let of = |thinking| parts.iter().filter(|p| p.thinking == thinking).map(|p| p.text.as_str()).collect();
        (of(false), of(true))
    }

    #[test]
    fn reasoning_is_told_from_the_answer_however_the_text_comes() {
        for size in 1..12 {
            let text = "<think>\n2 < 3 </thin\n</think>\n\nYes. <b>";
            assert_eq!(split(text, size), ("Yes. <b>".into(), "<think>\n2 < 3 </thin\n</think>\n\n".into()), "{size}");
            assert_eq!(split("no tags, <th", size), ("no tags, <th".into(), String::new()));
            assert_eq!(split("a [THINK]b", size), ("a ".into(), "[THINK]b".into()));
            assert_eq!(split("<think></think><think>x</think> y z", size), ("y z".into(), "<think></think><think>x</think> ".into()));
        }
    }

    #[test]
    fn a_prompt_may_end_inside() {
        assert_eq!(left_open("<|im_start|>assistant\n<think>\n"), Some("<think>"));
        assert_eq!(left_open("<think>\n\n</think>\n\n"), None);
    }
}
