//! Chat templates: in files of their own, or in `tokenizer_config.json`.

use std::path::Path;

use serde_json::Value as Json;

use super::super::TEMPLATES;
use super::super::fields::{self, Fields, malformed};
use crate::Result;
use crate::model::gguf::{Array, Value};

/// Appends the keys of all templates, the nameless one as the model's own.
pub(super) fn write(dir: &Path, metadata: &mut Vec<(String, Value)>) -> Result<()> {
    let mut named: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, text: String| match named.iter_mut().find(|(n, _)| n == name) {
        Some(entry) => entry.1 = text,
        None => named.push((name.to_owned(), text)),
    };
    // Files win over what older files hold.
    for file in ["tokenizer_config.json", "chat_template.json"] {
        let Some(config) = Fields::read(&dir.join(file))? else { continue };
        match config.get("chat_template") {
            None => {}
            Some(Json::String(text)) => put("default", text.clone()),
            Some(Json::Array(list)) => {
                for entry in list {
                    let (Some(name), Some(text)) = (entry["name"].as_str(), entry["template"].as_str()) else {
                        return Err(config.wrong("chat_template", "holds something that is no template with a name"));
                    };
                    put(name, text.to_owned());
                }
            }
            Some(_) => return Err(config.wrong("chat_template", "is neither a text nor a list of templates")),
        }
    }
    if let Some(text) = fields::text(&dir.join("chat_template.jinja"))? {
        put("default", text);
    }
    let folder = dir.join(TEMPLATES);
    if folder.is_dir() {
        let entries = std::fs::read_dir(&folder).map_err(|_| malformed(&folder, "this folder cannot be read"))?;
        let mut paths: Vec<_> =
            entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.extension().is_some_and(|e| e == "jinja")).collect();
        paths.sort();
        for path in paths {
            if let (Some(name), Some(text)) = (path.file_stem().and_then(|n| n.to_str()), fields::text(&path)?) {
                put(name, text);
            }
        }
    }
    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "default").collect();
    if !names.is_empty() {
        metadata.push(("tokenizer.chat_templates".into(), Value::Array(Array::Strings(names.into_iter().collect()))));
    }
    for (name, text) in named {
        let key = if name == "default" { "tokenizer.chat_template".to_owned() } else { format!("tokenizer.chat_template.{name}") };
        metadata.push((key, Value::String(text)));
    }
    Ok(())
}
