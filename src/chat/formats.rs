//! Chat formats that have a name, for models whose own template is missing or broken.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::program::{Halt, template_variables};
use crate::text::{ChatTemplate, template_of};
use crate::{Error, Model};

/// Name and template. Sources: the chat templates published with the models that each is named for; `plain` puts what was said in a row.
const FORMATS: [(&str, &str); 9] = [
    ("chatml", include_str!("formats/chatml.jinja")),
    ("deepseek", include_str!("formats/deepseek.jinja")),
    ("gemma", include_str!("formats/gemma.jinja")),
    ("llama2", include_str!("formats/llama2.jinja")),
    ("llama3", include_str!("formats/llama3.jinja")),
    ("mistral", include_str!("formats/mistral.jinja")),
    ("phi3", include_str!("formats/phi3.jinja")),
    ("plain", include_str!("formats/plain.jinja")),
    ("zephyr", include_str!("formats/zephyr.jinja")),
];

/// The names, in a list.
pub(super) fn names() -> String {
    FORMATS.map(|(name, _)| name).join(", ")
}

/// What the command line says of the chat format.
#[derive(Debug, Default)]
pub(super) struct Format {
    choice: Choice,
    variables: Map<String, Json>,
}

#[derive(Debug, Default)]
enum Choice {
    /// The model's own.
    #[default]
    Own,
    /// One of the model's that has a name.
    Named(String),
    Source(String),
}

impl Format {
    /// Of `--format` and `--template-arg`.
    pub(super) fn new(format: Option<&str>, arguments: &[String]) -> Result<Self, Halt> {
        let choice = match format {
            None => Choice::Own,
            Some(format) => match format.strip_prefix("own:") {
                Some(name) => Choice::Named(name.to_owned()),
                None => Choice::Source(source(format)?),
            },
        };
        Ok(Format { choice, variables: template_variables(arguments)? })
    }

    /// The template for a model.
    pub(super) fn template(self, model: &Model) -> crate::Result<ChatTemplate> {
        let vocabulary = model.tokenizer().vocabulary();
        let spelled = |id: Option<u32>| id.and_then(|id| model.tokenizer().piece(id)).unwrap_or_default();
        let source = match self.choice {
            Choice::Source(source) => source,
            Choice::Own => template_of(model.file(), None)?.ok_or_else(|| {
                Error::Template(format!("this model has none of its own; choose one with --format: {}, or a .jinja file", names()))
            })?,
            Choice::Named(name) => template_of(model.file(), Some(&name))?.unwrap_or_default(),
        };
        ChatTemplate::new(&source, spelled(vocabulary.bos), spelled(vocabulary.eos))?.with_variables(self.variables)
    }
}

/// The template that `--format` asks for: a name, or a file.
fn source(format: &str) -> Result<String, Halt> {
    if let Some((_, source)) = FORMATS.iter().find(|(name, _)| *name == format) {
        return Ok((*source).to_owned());
    }
    let path = Path::new(format);
    if path.extension().is_some_and(|e| e == "jinja") || path.components().count() > 1 {
        return Ok(fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), action: "read", source })?);
    }
    Err(Halt::Usage(format!("--format {format}: there is no such format; there are {}, or give the path of a .jinja file", names())))
}
