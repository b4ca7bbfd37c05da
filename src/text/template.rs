//! Chat templates: Jinja as `transformers` runs it, and prompts whose control tokens come from the template alone.

use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::Value as Json;

use super::python;
use super::tokenizer::Tokenizer;
use crate::{Error, Result};

/// What `strftime_now` tells.
#[derive(Clone, Copy, Debug, Default)]
pub enum Now {
    /// The time of rendering, in the local time zone.
    #[default]
    Clock,
    /// Always this time.
    At(NaiveDateTime),
}

/// How to render.
#[derive(Clone, Copy, Debug)]
pub struct RenderOptions {
    /// Ends with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The time.
    pub now: Now,
}

impl Default for RenderOptions {
    fn default() -> Self {
        RenderOptions { add_generation_prompt: true, now: Now::Clock }
    }
}

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

const NAME: &str = "chat template";

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are what it may print for `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// [`Error::Template`] with the place and the problem.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| error(&e))?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(python::write);
        environment.add_filter("tojson", python::tojson);
        environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.set_recursion_limit(200);
        environment.add_template_owned(NAME, without_generation_tags(source)).map_err(|e| error(&e))?;
        Ok(ChatTemplate { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Renders a list of messages, each with `role` and `content`.
    ///
    /// # Errors
    /// [`Error::Template`] with the template's own words if it refuses the conversation.
    pub fn render(&self, messages: &Json, options: &RenderOptions) -> Result<String> {
        let now = options.now;
        let strftime = Value::from_function(move |format: String| strftime(now, &format));
        let context = minijinja::context! {
            messages => Value::from(minijinja::value::Serde(messages)),
            add_generation_prompt => options.add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            strftime_now => strftime,
        };
        self.environment.get_template(NAME).and_then(|t| t.render(context)).map_err(|e| error(&e))
    }

    /// Renders, and where the template refuses a system message puts it in front of the first user message. The second
    /// value says that this was done.
    ///
    /// # Errors
    /// As [`render`](Self::render), if it refuses that too.
    pub fn render_merging_system(&self, messages: &Json, options: &RenderOptions) -> Result<(String, bool)> {
        let refused = match self.render(messages, options) {
            // Some templates leave a system message out without a word.
            Ok(text) if !self.drops_system(messages, options, &text) => return Ok((text, false)),
            Ok(_) => None,
            Err(e) => Some(e),
        };
        let Some(merged) = merge_system(messages) else {
            return refused.map_or_else(|| self.render(messages, options).map(|t| (t, false)), Err);
        };
        match (self.render(&merged, options), refused) {
            (Ok(text), _) => Ok((text, true)),
            (Err(_), Some(first)) => Err(first),
            (Err(e), None) => Err(e),
        }
    }

    /// Whether the rendered text lacks the system message's content.
    fn drops_system(&self, messages: &Json, options: &RenderOptions, text: &str) -> bool {
        let content = |m: &Json| (m["role"] == "system").then(|| m["content"].as_str().unwrap_or_default().trim().to_owned());
        let Some(system) = messages.get(0).and_then(content).filter(|s| !s.is_empty()) else { return false };
        let without = Json::Array(messages.as_array().map(|m| m[1..].to_vec()).unwrap_or_default());
        !text.contains(&system) && self.render(&without, options).is_ok_and(|other| other == text)
    }
}

/// The conversation with its system message put in front of the first user message.
fn merge_system(messages: &Json) -> Option<Json> {
    let list = messages.as_array()?;
    let system = list.first().filter(|m| m["role"] == "system")?["content"].as_str()?;
    let mut rest = list[1..].to_vec();
    let user = rest.iter_mut().find(|m| m["role"] == "user")?;
    let merged = format!("{system}\n\n{}", user["content"].as_str()?);
    user["content"] = Json::String(merged);
    Some(Json::Array(rest))
}

fn strftime(now: Now, format: &str) -> std::result::Result<String, minijinja::Error> {
    use std::fmt::Write;
    let time = match now {
        Now::Clock => chrono::Local::now().naive_local(),
        Now::At(time) => time,
    };
    let mut text = String::new();
    match write!(text, "{}", time.format(format)) {
        Ok(()) => Ok(text),
        Err(_) => Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {format:?} is no time format"))),
    }
}

/// `{% generation %}` marks the assistant's words for training; here it is a block that is always taken, so that the
/// white space around it is treated alike.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else { break };
        let tag = &rest[start + 2..start + len];
        let (open, close) = (tag.strip_prefix(['-', '+']).unwrap_or(tag), tag.ends_with('-'));
        let name = open.strip_suffix('-').unwrap_or(open).trim();
        out.push_str(&rest[..start]);
        match name {
            "generation" | "endgeneration" => {
                let sign = &tag[..tag.len() - open.len()];
                let word = if name == "generation" { "if true" } else { "endif" };
                out.push_str(&format!("{{%{sign} {word} {}%}}", if close { "-" } else { "" }));
            }
            _ => out.push_str(&rest[start..start + len + 2]),
        }
        rest = &rest[start + len + 2..];
    }
    out.push_str(rest);
    out
}

fn error(e: &minijinja::Error) -> Error {
    let detail = e.detail().map_or_else(|| e.kind().to_string(), str::to_owned);
    match e.line() {
        Some(line) => Error::Template(format!("{detail} (line {line})")),
        None => Error::Template(detail),
    }
}

/// The tokens of a conversation, its control tokens from the template alone: a message that spells one stays text.
///
/// `render` is given the messages with a mark in each spelling of a special token and gives the prompt; the prompt is cut
/// at the special tokens that are left, and the marks are taken out of the text between.
///
/// # Errors
/// As `render`, and [`Error::Tokenizer`].
pub fn encode_chat(tokenizer: &Tokenizer, messages: &Json, render: impl FnOnce(&Json) -> Result<String>) -> Result<Vec<u32>> {
    let mut all_text = String::new();
    for_each_text(&mut messages.clone(), &mut |s| all_text.push_str(s));
    // Noncharacters are not for interchange, so one that no message has is easily found.
    let mark = ('\u{fdd0}'..='\u{fdef}').find(|&c| !all_text.contains(c));
    let mark = mark.ok_or_else(|| Error::invalid("messages", "they hold every noncharacter from U+FDD0 to U+FDEF"))?;
    let mut marked = messages.clone();
    for_each_text(&mut marked, &mut |s| *s = tokenizer.mark_specials(s, mark));
    let prompt = render(&marked)?;
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

/// Calls `f` on every text of the messages that a user or a model wrote.
fn for_each_text(value: &mut Json, f: &mut impl FnMut(&mut String)) {
    match value {
        Json::String(s) => f(s),
        Json::Array(items) => items.iter_mut().for_each(|v| for_each_text(v, f)),
        Json::Object(fields) => fields.iter_mut().filter(|(k, _)| *k != "role").for_each(|(_, v)| for_each_text(v, f)),
        _ => {}
    }
}

impl Tokenizer {
    /// The text with `mark` behind the first character of every spelling of a special token, also of overlapping ones.
    fn mark_specials(&self, text: &str, mark: char) -> String {
        let mut marked = String::with_capacity(text.len());
        let mut from = 0;
        // The search goes on behind the first character, since another spelling may begin inside the one that was broken.
        while let Some((start, _)) = self.next_special(text, from) {
            let first = text[start..].chars().next().map_or(1, char::len_utf8);
            marked.push_str(&text[from..start + first]);
            marked.push(mark);
            from = start + first;
        }
        marked.push_str(&text[from..]);
        marked
    }
}
