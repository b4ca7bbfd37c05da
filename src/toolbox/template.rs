//! `rml template`: the prompt that a chat template makes of a conversation.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::model::Gguf;
use crate::text::{ChatTemplate, RenderOptions, Tokenizer, template_of};
use crate::{Error, Result};

/// Which template, and what it is told.
#[derive(Clone, Debug, Default)]
pub struct TemplateChoice {
    /// A named template of the model instead of its own.
    pub name: Option<String>,
    /// What it prints for `bos_token`, instead of the model's.
    pub bos: Option<String>,
    /// What it prints for `eos_token`, instead of the model's.
    pub eos: Option<String>,
    /// Variables of its own.
    pub variables: Map<String, Json>,
}

/// Writes the rendered prompt; or, as JSON, `{"prompt":…}`. `source` is a model or a `.jinja` file, `messages` a JSON file
/// with a list of `{"role":…,"content":…}`.
///
/// # Errors
/// [`Error::Io`] for files, [`Error::Malformed`] naming the one at fault, [`Error::Template`] if the template does not compile
/// or refuses the conversation.
pub fn template(
    source: &Path,
    messages: &Path,
    choice: &TemplateChoice,
    options: &RenderOptions,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let conversation: Json = serde_json::from_str(&read(messages)?).map_err(|e| malformed(messages, &format!("no JSON: {e}")))?;
    if !conversation.as_array().is_some_and(|list| list.iter().all(|m| m["role"].is_string())) {
        return Err(malformed(messages, "not a list of objects with \"role\" and \"content\""));
    }
    let jinja = source.extension().is_some_and(|e| ["jinja", "jinja2", "j2"].iter().any(|j| e == *j));
    let (text, bos, eos) = if jinja { (read(source)?, None, None) } else { of_model(source, choice.name.as_deref())? };
    let own = |given: &Option<String>, own: Option<String>| given.clone().or(own).unwrap_or_default();
    let template = ChatTemplate::new(&text, &own(&choice.bos, bos), &own(&choice.eos, eos))?.with_variables(choice.variables.clone())?;
    let prompt = template.render(&conversation, options)?;
    let written = if json { writeln!(out, "{}", serde_json::json!({ "prompt": prompt })) } else { write!(out, "{prompt}") };
    written.map_err(|source| Error::Io { path: "standard output".into(), action: "write", source })
}

/// A model's template, and how it spells BOS and EOS.
fn of_model(path: &Path, name: Option<&str>) -> Result<(String, Option<String>, Option<String>)> {
    let file = Gguf::open(path)?;
    let text = file.metadata().required("tokenizer.chat_template", template_of(&file, name)?)?;
    let tokenizer = Tokenizer::from_gguf(&file)?;
    let spelled = |id: Option<u32>| id.and_then(|id| tokenizer.piece(id)).map(str::to_owned);
    Ok((text, spelled(tokenizer.vocabulary().bos), spelled(tokenizer.vocabulary().eos)))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), action: "read", source })
}

fn malformed(path: &Path, what: &str) -> Error {
    Error::Malformed { path: path.to_owned(), reason: format!("this is {what}") }
}
