//! Chat templates: Jinja as `transformers` runs it.

use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use super::python;
use crate::model::Gguf;
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
    variables: Value,
}

/// Steps after which a template counts as one that does not end; one for a thousand messages takes a tenth of that.
const MOST_STEPS: u64 = 10_000_000;

/// What a template is told anyway.
const GIVEN: [&str; 5] = ["messages", "add_generation_prompt", "bos_token", "eos_token", "strftime_now"];

const NAME: &str = "chat template";

/// The template of a model: its own, which it may lack, or the one of this name.
///
/// # Errors
/// [`Error::Template`] naming those there are, if there is none of this name.
pub fn template_of(file: &Gguf, name: Option<&str>) -> Result<Option<String>> {
    let meta = file.metadata();
    let own = || Ok(meta.str("tokenizer.chat_template")?.map(str::to_owned));
    let Some(name) = name else { return own() };
    if let Some(text) = meta.str(&format!("tokenizer.chat_template.{name}"))? {
        return Ok(Some(text.to_owned()));
    }
    if name == "default" {
        return own();
    }
    let names: Vec<&str> = meta.strings("tokenizer.chat_templates")?.map(|names| names.iter().collect()).unwrap_or_default();
    Err(Error::Template(match names.is_empty() {
        true => format!("this model has no template called {name:?}, and none that has a name"),
        false => format!("this model has no template called {name:?}; it has {}", names.join(", ")),
    }))
}

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
        environment.set_fuel(Some(MOST_STEPS));
        environment.add_template_owned(NAME, without_generation_tags(source)).map_err(|e| error(&e))?;
        Ok(ChatTemplate { environment, bos: bos.to_owned(), eos: eos.to_owned(), variables: Value::UNDEFINED })
    }

    /// The template with variables of its own, such as `enable_thinking`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name that templates are told anyway.
    pub fn with_variables(mut self, variables: Map<String, Json>) -> Result<Self> {
        if let Some(name) = GIVEN.iter().find(|name| variables.contains_key(**name)) {
            return Err(Error::invalid("template variable", format!("{name} follows from model and conversation and cannot be set")));
        }
        self.variables = Value::from(minijinja::value::Serde(variables));
        Ok(self)
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
            ..self.variables.clone()
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
