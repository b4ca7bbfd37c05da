//! Prompts whose control tokens come from the template alone.

use serde_json::Value as Json;

use super::tokenizer::Tokenizer;
use super::vocabulary::TokenType;
use crate::{Error, Result};

/// What begins and ends the reasoning that comes before an answer. Sources: the chat templates of Qwen3, DeepSeek R1, SmolLM3 and
/// many others; Magistral; Command A; Kimi; Seed-OSS.
pub const THINKING: [(&str, &str); 5] = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
];

/// The tokens of a conversation, its control tokens from the template alone: a message that spells one stays text.
///
/// `render` is given the messages with a mark in each spelling of a special token and gives the prompt; the prompt is cut
/// at the special tokens that are left, and the marks are taken out of the text between. Templates may look for the tags
/// around reasoning in what the assistant said; where the marks would change what they do, those tags are left to them.
///
/// # Errors
/// As `render`, and [`Error::Tokenizer`].
pub fn encode_chat(tokenizer: &Tokenizer, messages: &Json, render: impl Fn(&Json) -> Result<String>) -> Result<Vec<u32>> {
    let plain = render(messages)?;
    let mut all_text = plain.clone();
    for_each_text(&mut messages.clone(), false, &mut |s, _| all_text.push_str(s));
    // Noncharacters are not for interchange, so one that no message has is easily found.
    let mark = ('\u{fdd0}'..='\u{fdef}').find(|&c| !all_text.contains(c));
    let mark = mark.ok_or_else(|| Error::invalid("messages", "they hold every noncharacter from U+FDD0 to U+FDEF"))?;
    let marked = |leave_thinking: bool| {
        let mut marked = messages.clone();
        for_each_text(&mut marked, false, &mut |s, of_assistant| *s = tokenizer.mark_specials(s, mark, leave_thinking && of_assistant));
        render(&marked)
    };
    let mut prompt = marked(false)?;
    if prompt.replace(mark, "") != plain {
        prompt = marked(true)?;
    }
    let mut ids = tokenizer.encode_marked(&prompt, mark)?;
    // Templates print the first token themselves or leave it to the tokenizer; either way there is one.
    if ids.first().is_none_or(|first| Some(*first) != tokenizer.vocabulary().bos) {
        let add_eos = tokenizer.vocabulary().add_eos;
        tokenizer.add_special(&mut ids);
        if add_eos {
            ids.pop();
        }
    }
    Ok(ids)
}

/// Calls `f` on every text of the messages that a user or a model wrote, and says whether it was the model.
fn for_each_text(value: &mut Json, of_assistant: bool, f: &mut impl FnMut(&mut String, bool)) {
    match value {
        Json::String(s) => f(s, of_assistant),
        Json::Array(items) => items.iter_mut().for_each(|v| for_each_text(v, of_assistant, f)),
        Json::Object(fields) => {
            let of_assistant = of_assistant || fields.get("role").is_some_and(|role| role == "assistant");
            fields.iter_mut().filter(|(k, _)| *k != "role").for_each(|(_, v)| for_each_text(v, of_assistant, f));
        }
        _ => {}
    }
}

impl Tokenizer {
    /// Whether a token begins or ends reasoning.
    pub fn is_thinking_tag(&self, id: u32) -> bool {
        self.piece(id).is_some_and(|piece| THINKING.iter().any(|(open, close)| [*open, *close].contains(&piece)))
    }

    /// The text with `mark` behind the first character of every spelling of a special token, also of overlapping ones. Tokens
    /// that are no control tokens and tags around reasoning can be left as they are.
    fn mark_specials(&self, text: &str, mark: char, leave_thinking: bool) -> String {
        let mut marked = String::with_capacity(text.len());
        let mut from = 0;
        // The search goes on behind the first character, since another spelling may begin inside the one that was broken.
        while let Some((start, id)) = self.next_special(text, from) {
            let first = text[start..].chars().next().map_or(1, char::len_utf8);
            marked.push_str(&text[from..start + first]);
            let user_defined = self.vocabulary().types.get(id as usize) == Some(&TokenType::UserDefined);
            if !leave_thinking || !(user_defined || self.is_thinking_tag(id)) {
                marked.push(mark);
            }
            from = start + first;
        }
        marked.push_str(&text[from..]);
        marked
    }
}
