//! `rml quantize`: what its user meets.

use std::fs;
use std::path::Path;

use rml::model::Gguf;

use crate::{changed_model, failure, model, rml, stderr, stdout, success};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn original() -> String {
    model().with_file_name("f32.gguf").to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_quantized_model_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new.gguf");
    let output = success(&mut rml(&["quantize", &original(), text(&path), "Q4_K_M", "--json"]));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!((&document["type"], &document["bytes"]), (&"q4_k_m".into(), &fs::metadata(&path).expect("the file").len().into()));
    assert!(stderr(&output).contains("no whole number of blocks"), "{}", stderr(&output));
    let shown = stdout(&success(&mut rml(&["logits", text(&path), "--tokens", "1,2,3", "--json"])));
    assert!(shown.contains("\"vocab\":269"), "{shown}");
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "nothing is left beside the file");
}

#[test]
fn quantizing_again_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new.gguf");
    let output = success(&mut rml(&["quantize", text(&model()), text(&path), "q8_0"]));
    assert!(stderr(&output).contains("quantized already and lose once more; better quantize the original"), "{}", stderr(&output));
    let output = success(&mut rml(&["quantize", &original(), text(&path), "q8_0", "--force"]));
    assert!(!stderr(&output).contains("already"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy.gguf");
    fs::copy(original(), &copy).expect("a copy");
    let before = fs::read(&copy).expect("the copy");
    let new = folder.path().join("new.gguf");
    failure(&mut rml(&["quantize", text(&copy), text(&new), "q9_9"]), 2, &["types are f32, f16, bf16, q8_0"]);
    failure(&mut rml(&["quantize", text(&copy), text(&copy), "q8_0"]), 2, &["copy.gguf is the model itself; give another name"]);
    failure(&mut rml(&["quantize", text(&copy), text(&copy), "q8_0", "--force"]), 2, &["is the model itself"]);
    fs::write(&new, "mine").expect("a file");
    failure(&mut rml(&["quantize", text(&copy), text(&new), "q8_0"]), 2, &["new.gguf is there already", "--force"]);
    assert_eq!(fs::read(&new).expect("the file"), b"mine");
    let nowhere = folder.path().join("none/new.gguf");
    failure(&mut rml(&["quantize", text(&copy), text(&nowhere), "q8_0"]), 1, &["none/new.gguf: cannot write"]);
    failure(&mut rml(&["quantize", "/nonexistent.gguf", text(&nowhere), "q8_0"]), 1, &["nonexistent.gguf"]);
    assert!(fs::read(&copy).expect("the copy") == before);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 2);
}

/// Metadata that no type has to do with are kept, and the file of a part of a set does not say that it is one.
#[test]
fn metadata_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let value = |s: &str| Some(rml::model::gguf::Value::String(s.into()));
    let source = changed_model(folder.path(), &[("general.name", value("a name")), ("custom.key", value("its value"))]);
    let path = folder.path().join("new.gguf");
    success(&mut rml(&["quantize", text(&source), text(&path), "f16"]));
    let file = Gguf::open(&path).expect("a sound file");
    assert_eq!(file.metadata().str("general.name").expect("a text"), Some("a name"));
    assert_eq!(file.metadata().str("custom.key").expect("a text"), Some("its value"));
    assert_eq!(file.metadata().u32("general.file_type").expect("a number"), Some(1));
}

/// Ctrl-C in mid-file: neither the file nor its beginnings are there.
#[cfg(unix)]
#[test]
fn an_interrupt_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, path) = (folder.path().join("source.gguf"), folder.path().join("new.gguf"));
    success(&mut rml(&["synth", "smollm2-135m", text(&source), "--format", "q4_0"]));
    let mut command = crate::plain_program("rml");
    let mut child = command.args(["quantize", text(&source), text(&path), "q4_k_m"]).spawn().expect("the program runs");
    let unfinished = || fs::read_dir(folder.path()).expect("the folder").count() > 1;
    while !unfinished() && child.try_wait().expect("a status").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let status = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    assert_eq!(child.wait().expect("a status").code(), Some(130));
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "only the source");
}
