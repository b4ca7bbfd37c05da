//! `rml-chat` and `rml` as their users meet them: run, with tiny models of random weights (see `fixtures/README.md`).

mod bad_input;
mod chat;
mod draft;
mod fetch;
mod quantize;
mod synth;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod thinking;
mod toolbox;

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use rml::model::gguf::{Array, Gguf, Value, Writer};

/// A model that talks nonsense, but quickly: 269 tokens, ChatML, trained for 1024.
fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/q4_1.gguf")
}

/// A program, away from the network and from the settings of whoever runs the tests.
fn plain_program(name: &str) -> std::process::Command {
    let path = match name {
        "rml" => env!("CARGO_BIN_EXE_rml"),
        "rml-chat" => env!("CARGO_BIN_EXE_rml-chat"),
        _ => panic!("there is no program {name}"),
    };
    let mut command = std::process::Command::new(path);
    // Port 9 of this machine discards or refuses.
    command.env("RML_CACHE", "/nonexistent/cache").env("HF_ENDPOINT", "http://127.0.0.1:9");
    for name in ["RML_BACKEND", "RML_DISABLE", "RML_EXAM", "RML_TRACE", "HF_TOKEN"] {
        command.env_remove(name);
    }
    command
}

fn program(name: &str) -> Command {
    Command::from_std(plain_program(name))
}

/// `rml-chat` with the tiny model; replies are short unless `arguments` say otherwise.
fn chat(arguments: &[&str]) -> Command {
    let mut command = program("rml-chat");
    command.arg(model()).args(["--threads", "1"]);
    if !arguments.contains(&"--max-tokens") {
        command.args(["--max-tokens", "8"]);
    }
    command.args(arguments);
    command
}

fn rml(arguments: &[&str]) -> Command {
    let mut command = program("rml");
    command.args(arguments);
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8 on standard output")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8 on standard error")
}

/// Runs a command that must succeed.
fn success(command: &mut Command) -> Output {
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{:?}\n{}", output.status, stderr(&output));
    output
}

/// Runs a command that must end with this exit code and say all of these, in a line or two, without panicking.
fn failure(command: &mut Command, code: i32, said: &[&str]) -> Output {
    let output = command.output().expect("the program runs");
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {err}");
    for part in said {
        assert!(err.contains(part), "{command:?}: {part:?} is not in: {err}");
    }
    assert!(!err.contains("panicked") && !err.contains("RUST_BACKTRACE"), "{command:?}: {err}");
    output
}

/// A copy of the tiny model with some metadata changed: `None` takes a key away.
fn changed_model(folder: &Path, changes: &[(&str, Option<Value>)]) -> PathBuf {
    let original = Gguf::open(&model()).expect("the tiny model");
    let mut writer = Writer::new();
    for (key, value) in original.metadata().iter() {
        match changes.iter().find(|(k, _)| *k == key) {
            None => writer.set(key, value.clone()),
            Some((_, Some(value))) => writer.set(key, value.clone()),
            Some((_, None)) => {}
        }
    }
    for tensor in original.tensors() {
        writer.tensor(&tensor.name, tensor.kind, &tensor.shape).expect("a sound tensor");
    }
    let path = folder.join("changed.gguf");
    let mut file = std::fs::File::create(&path).expect("a new file");
    let bytes = |i: usize, out: &mut Vec<u8>| {
        out.extend_from_slice(original.bytes(&original.tensors()[i]));
        Ok(())
    };
    writer.write(&path, &mut file, bytes).expect("a written file");
    path
}

/// A copy of the tiny model that has no token to end a reply with.
fn endless_model(folder: &Path) -> PathBuf {
    const NORMAL: i32 = 1;
    let kinds = Value::Array(Array::I32(vec![NORMAL; 269]));
    changed_model(folder, &[("tokenizer.ggml.eos_token_id", None), ("tokenizer.ggml.token_type", Some(kinds))])
}

/// Settings with which each token is about as likely as any other: each of the 256 bytes comes up before long, and the tiny
/// model has a token for each.
const ANY_TOKEN: [&str; 10] = ["--temp", "1000", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--repeat-penalty", "1"];
