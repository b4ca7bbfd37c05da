//! Chat formats that have a name, for models whose own template is missing or broken.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::program::Halt;

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

/// The template that `--format` asks for: a name, or a file.
pub(super) fn template(format: &str) -> Result<String, Halt> {
    if let Some((_, source)) = FORMATS.iter().find(|(name, _)| *name == format) {
        return Ok((*source).to_owned());
    }
    let path = Path::new(format);
    if path.extension().is_some_and(|e| e == "jinja") || path.components().count() > 1 {
        return Ok(fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), action: "read", source })?);
    }
    Err(Halt::Usage(format!("--format {format}: there is no such format; there are {}, or give the path of a .jinja file", names())))
}
