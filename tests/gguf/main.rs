//! Reading GGUF: well-formed files, hostile files, split sets, files of the world; and the configuration read from them.

mod config;
mod forged;
mod hostile;
mod hostile_tokenizer;
mod inspect;
mod real;
mod split;
mod truncated;
mod values;

use std::path::{Path, PathBuf};

use rml::model::Gguf;

/// `fixtures/gguf/every_type.gguf`, as the Python package wrote it.
const EVERY_TYPE: &[u8] = include_bytes!("../../fixtures/gguf/every_type.gguf");

fn read(bytes: &[u8]) -> rml::Result<Gguf> {
    Gguf::from_bytes(Path::new("test.gguf"), bytes)
}

/// What reading says is wrong, or why it should have.
fn refusal(bytes: &[u8]) -> String {
    match read(bytes) {
        Ok(_) => "was read without complaint".into(),
        Err(error) => error.to_string(),
    }
}

/// An empty directory of this test's own.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gguf").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
