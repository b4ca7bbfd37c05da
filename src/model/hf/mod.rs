//! Hugging Face directories, presented as GGUF: keys, tensor names and layouts are translated, so that what stands behind
//! [`Gguf`](super::Gguf) does for both.
//!
//! A tensor that GGUF has as it is stays in its mapped file; others are computed when they are first asked for. Nothing in
//! a file is trusted: every length is compared with the file's before it is used or allocated, and what would change the
//! computation and is not computed is refused by name.

mod architectures;
mod checkpoint;
mod config;
mod fields;
mod layout;
mod packed;
mod rope;
mod tensors;
mod text;

use std::path::Path;

use super::gguf::{OpenOptions, Parts, Value};
use crate::Result;
use checkpoint::Checkpoint;
pub(crate) use checkpoint::weight_files;
use fields::{Fields, malformed};

/// The file that makes a directory a model.
pub(crate) const CONFIG: &str = "config.json";

/// Files of a directory that are read where they are there, beside [`CONFIG`], the weights and [`TEMPLATES`].
pub(crate) const BESIDE_WEIGHTS: &[&str] = &[
    checkpoint::INDEX,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// The folder within a directory that holds named templates.
pub(crate) const TEMPLATES: &str = "additional_chat_templates";

/// Whether a file of this name says where weights are, or holds all of them.
pub(crate) fn is_weights(file: &str) -> bool {
    [checkpoint::INDEX, checkpoint::SINGLE].contains(&file)
}

/// Reads a directory.
pub(super) fn read(dir: &Path, options: &OpenOptions) -> Result<Parts> {
    let path = dir.join(CONFIG);
    let config = Fields::read(&path)?.ok_or_else(|| {
        malformed(dir, format!("this directory holds no {CONFIG}; give a .gguf file, or the directory of a Hugging Face model"))
    })?;
    let model = config::translate(&config)?;
    let checkpoint = Checkpoint::open(dir, options.mmap)?;
    let tensors = tensors::translate(checkpoint, &model, &path)?;
    let mut metadata = model.metadata;
    if let Some(name) = dir.canonicalize().ok().as_deref().and_then(Path::file_name) {
        metadata.push(("general.name".into(), Value::String(name.to_string_lossy().into_owned())));
    }
    let mut notes = Vec::new();
    text::translate(dir, &config, &mut metadata, &mut notes)?;
    Ok(Parts { path: dir.to_owned(), metadata, tensors: tensors.infos, shards: tensors.shards, notes })
}
