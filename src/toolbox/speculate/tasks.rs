//! What the replies that are measured are about.

use std::path::Path;

use serde_json::{Value, json};

use crate::text::{ChatTemplate, Encode, RenderOptions, encode_chat};
use crate::{Error, Model, Result};

/// Nothing to copy: a reply in words of its own.
const PROSE: [&str; 3] = [
    "Write a story about a lighthouse keeper who finds a letter in a bottle.",
    "Explain how rain forms, to a child of ten.",
    "What should one think about before moving to another city?",
];

/// To be repeated with one word changed.
const TEXT: &str = "The old harbour lies at the mouth of the river, where the water is deep enough for ships of every size. \
In the morning the boats come back with their catch, and the people of the town walk down to the quay to buy what they need \
for the day. There is a small market with fruit, bread and flowers, and a cafe whose owner has known most of his guests since \
they were children. In the afternoon it becomes quiet. The fishermen mend their nets in the shade of the wall, the gulls sit \
on the roofs, and only the clock of the church tells that time goes on. When the sun is low, the lamps along the quay are lit \
one after the other, and the windows of the houses on the hill begin to shine. Then the last ferry leaves for the islands, \
and the harbour belongs to those who live there.";

/// Prompts of one kind.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) prompts: Vec<Vec<u32>>,
}

/// A task by its name: `prose`, `copy`, or a JSON file with a list of prompts, each of which has `ids`.
pub(super) fn task(name: &str, model: &Model) -> Result<Task> {
    let prompts = match name {
        "prose" => PROSE.iter().map(|text| asked(text, model)).collect::<Result<_>>()?,
        "copy" => {
            let request = format!("Repeat this text word for word, but write \"bakery\" where it says \"cafe\":\n\n{TEXT}");
            vec![asked(&request, model)?]
        }
        path => recorded(Path::new(path))?,
    };
    let name = Path::new(name).file_stem().unwrap_or(name.as_ref()).to_string_lossy().into_owned();
    Ok(Task { name, prompts })
}

/// A question as the model's template puts it, or as it is where there is none.
fn asked(text: &str, model: &Model) -> Result<Vec<u32>> {
    let tokenizer = model.tokenizer();
    let Some(source) = model.file().metadata().str("tokenizer.chat_template")? else {
        return tokenizer.encode(text, Encode { add_special: true, parse_special: false });
    };
    let vocabulary = tokenizer.vocabulary();
    let spelled = |id: Option<u32>| id.and_then(|id| tokenizer.piece(id)).unwrap_or_default();
    let template = ChatTemplate::new(source, spelled(vocabulary.bos), spelled(vocabulary.eos))?;
    let messages = json!([{"role": "user", "content": text}]);
    encode_chat(tokenizer, &messages, |messages| Ok(template.render_merging_system(messages, &RenderOptions::default())?.0))
}

fn recorded(path: &Path) -> Result<Vec<Vec<u32>>> {
    let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), action: "read", source })?;
    let wrong = |reason: &str| Error::Malformed { path: path.to_owned(), reason: format!("{reason}; see fixtures/smollm2.json") };
    let document: Value = serde_json::from_slice(&bytes).map_err(|e| wrong(&e.to_string()))?;
    let list = document["prompts"].as_array().filter(|list| !list.is_empty()).ok_or_else(|| wrong("it has no list `prompts`"))?;
    let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids = |prompt: &Value| prompt["ids"].as_array().and_then(|ids| ids.iter().map(id).collect::<Option<Vec<u32>>>());
    list.iter().map(|prompt| ids(prompt).ok_or_else(|| wrong("a prompt has no list `ids` of whole numbers"))).collect()
}
