//! Tokens that end a reply, and templates, from the many files that may say so.

use std::fs;
use std::path::Path;

use rml::model::Gguf;
use rml::text::{Tokenizer, template_of};
use serde_json::json;

use crate::families::folder;

/// A directory with the configuration and tokenizer of a fixture, whose 96 tokens begin with `<|endoftext|>`, `<unk>`, `<s>` and
/// `</s>`, and no weights.
fn directory(files: &[(&str, String)]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "tokenizer.json"] {
        fs::copy(folder().join("llama3").join(file), copy.path().join(file)).expect("a copy");
    }
    for (file, text) in files {
        let path = copy.path().join(file);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    copy
}

fn open(directory: &tempfile::TempDir) -> Gguf {
    Gguf::open(directory.path()).expect("a directory")
}

#[test]
fn a_reply_ends_at_every_token_that_any_file_names() {
    let plain = directory(&[]);
    // The configuration names `</s>`; `<|endoftext|>` is known by how it is spelled.
    let mut ends = Tokenizer::from_gguf(&open(&plain)).expect("a tokenizer").end_ids().to_vec();
    ends.sort_unstable();
    assert_eq!(ends, [0, 3]);
    let all = directory(&[
        ("generation_config.json", json!({"eos_token_id": [3, 10, 11]}).to_string()),
        ("tokenizer_config.json", json!({"eos_token": {"content": "<unk>"}, "bos_token": "<s>", "add_bos_token": true}).to_string()),
    ]);
    let tokenizer = Tokenizer::from_gguf(&open(&all)).expect("a tokenizer");
    let mut ends = tokenizer.end_ids().to_vec();
    ends.sort_unstable();
    assert_eq!(ends, [0, 1, 3, 10, 11]);
    let vocabulary = tokenizer.vocabulary();
    assert_eq!((vocabulary.bos, vocabulary.eos, vocabulary.add_bos), (Some(2), Some(1), true));
}

#[test]
fn templates_are_found_wherever_they_stand() {
    let own = |directory: &tempfile::TempDir, name: Option<&str>| template_of(&open(directory), name);
    assert_eq!(own(&directory(&[]), None).expect("none"), None);
    let config = ("tokenizer_config.json", json!({"chat_template": "of the tokenizer"}).to_string());
    assert_eq!(own(&directory(std::slice::from_ref(&config)), None).expect("one").as_deref(), Some("of the tokenizer"));
    let both =
        directory(&[config, ("chat_template.jinja", "of a file".into()), ("additional_chat_templates/tools.jinja", "with tools".into())]);
    assert_eq!(own(&both, None).expect("one").as_deref(), Some("of a file"));
    assert_eq!(own(&both, Some("tools")).expect("one").as_deref(), Some("with tools"));
    assert_eq!(own(&both, Some("default")).expect("one").as_deref(), Some("of a file"));
    assert!(own(&both, Some("rag")).expect_err("none").to_string().contains("it has tools"));
    let named = json!({"chat_template": [{"name": "default", "template": "plain"}, {"name": "rag", "template": "of documents"}]});
    let named = directory(&[("tokenizer_config.json", named.to_string())]);
    assert_eq!(own(&named, None).expect("one").as_deref(), Some("plain"));
    assert_eq!(own(&named, Some("rag")).expect("one").as_deref(), Some("of documents"));
}
