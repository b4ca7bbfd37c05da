//! What is wrong is said in a line, with its remedy and the right exit code: 2 for the command line, 1 for the rest.

use std::fs;
use std::path::Path;

use rml::model::gguf::Value;

use crate::{changed_model, chat, failure, model, program, rml, stderr};

fn chat_with(path: &Path) -> assert_cmd::Command {
    let mut command = program("rml-chat");
    command.arg(path).args(["-p", "hi", "--max-tokens", "2"]);
    command
}

#[test]
fn what_is_no_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    failure(&mut chat_with(&path("missing.gguf")), 1, &["missing.gguf", "no such file or directory", ".gguf file"]);
    failure(&mut chat_with(folder.path()), 1, &["holds neither a .gguf file nor config.json"]);
    fs::write(path("text.gguf"), "once upon a time, there was a file").expect("a file");
    failure(&mut chat_with(&path("text.gguf")), 1, &["text.gguf", "GGUF"]);
    fs::write(path("empty.gguf"), "").expect("a file");
    failure(&mut chat_with(&path("empty.gguf")), 1, &["empty.gguf"]);
    failure(&mut chat_with(folder.path()), 1, &["several models", "empty.gguf, text.gguf"]);
}

#[test]
fn a_model_that_is_cut_short() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = fs::read(model()).expect("the tiny model");
    let path = folder.path().join("cut.gguf");
    for len in [10, whole.len() / 10, whole.len() / 2, whole.len() * 9 / 10] {
        fs::write(&path, &whole[..len]).expect("a file");
        let output = failure(&mut chat_with(&path), 1, &["cut.gguf"]);
        assert!(stderr(&output).lines().count() == 1, "{len}: {}", stderr(&output));
    }
}

#[test]
fn a_model_that_cannot_be_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = changed_model(folder.path(), &[("general.architecture", Some(Value::String("mamba".into())))]);
    failure(&mut chat_with(&path), 1, &["architecture", "mamba", "llama"]);
    // The number of a tensor's type follows its name, its number of dimensions and these; 31 is Q4_0_4_4.
    let mut bytes = fs::read(model()).expect("the tiny model");
    let name = b"blk.0.attn_q.weight";
    let at = bytes.windows(name.len()).position(|w| w == name).expect("a tensor") + name.len() + 4 + 2 * 8;
    bytes[at..at + 4].copy_from_slice(&31u32.to_le_bytes());
    fs::write(&path, bytes).expect("a file");
    failure(&mut chat_with(&path), 1, &["blk.0.attn_q.weight", "q4_0_4_4", "take the model in q4_0"]);
}

#[test]
fn a_prompt_that_does_not_fit() {
    failure(&mut chat(&["-p", &"the rain ".repeat(50), "--ctx", "32"]), 1, &["the context is full", "of 32", "--ctx"]);
    failure(&mut chat(&["-p", ""]), 2, &["the prompt is empty", "-p"]);
    failure(&mut chat(&["-p", "  \n"]), 2, &["the prompt is empty"]);
    failure(&mut chat(&["-p", "hi", "--ctx", "99999999999999"]), 1, &["context size"]);
}

#[test]
fn a_backend_that_is_not_there() {
    failure(&mut chat(&["-p", "hi", "--backend", "cuda"]), 2, &["unknown backend \"cuda\"", "auto, ref"]);
    failure(chat(&["-p", "hi"]).env("RML_BACKEND", "cuda"), 2, &["unknown backend \"cuda\""]);
    failure(chat(&["-p", "hi"]).env("RML_DISABLE", "warp-drive"), 2, &["RML_DISABLE", "warp-drive"]);
    failure(chat(&["-p", "hi"]).env("RML_TRACE", "dispatch,everything"), 2, &["RML_TRACE", "everything", "there is dispatch"]);
    failure(&mut chat(&["-p", "hi", "--backend", "ref,attend=cuda"]), 2, &["cuda"]);
    #[cfg(target_arch = "x86_64")]
    failure(
        chat(&["-p", "hi", "--backend", "avx2"]).env("RML_DISABLE", "avx2"),
        2,
        &["backend avx2 cannot run here", "disabled by RML_DISABLE"],
    );
}

#[test]
fn values_out_of_range() {
    let bad = [
        ["--temp", "-0.1"],
        ["--temp", "NaN"],
        ["--temp", "inf"],
        ["--top-k", "-1"],
        ["--top-p", "0"],
        ["--top-p", "1.01"],
        ["--min-p", "1"],
        ["--min-p", "-0.1"],
        ["--repeat-penalty", "0"],
        ["--repeat-penalty", "-2"],
        ["--seed", "one"],
        ["--ctx", "0"],
        ["--max-tokens", "0"],
        ["--threads", "0"],
        ["--threads", "9999999"],
        ["--draft-tokens", "0"],
        ["--kv", "f64"],
    ];
    for [flag, value] in bad {
        let mut command = program("rml-chat");
        let output = failure(command.arg(model()).args([flag, value, "-p", "hi"]), 2, &[value, "--help"]);
        assert!(output.stdout.is_empty());
    }
    failure(&mut chat(&["--nonsense"]), 2, &["--nonsense"]);
    failure(&mut chat(&["--format", "nonsense", "-p", "hi"]), 2, &["--format nonsense", "chatml", ".jinja"]);
    failure(&mut chat(&["--format", "missing.jinja", "-p", "hi"]), 1, &["missing.jinja"]);
}

/// A tebibyte of positions is more than any machine has, but not more than can be written down.
#[test]
fn a_context_without_memory_is_told_what_would_fit() {
    for size in ["1099511627776", "18446744073709551615"] {
        failure(&mut chat(&["--ctx", size, "-p", "hi"]), 1, &["context size", size, "MiB", "at most ", " fit"]);
    }
}

#[test]
fn the_toolbox() {
    let model = model();
    let model = model.to_str().expect("UTF-8");
    failure(&mut rml(&[]), 2, &["Usage"]);
    failure(&mut rml(&["nonsense"]), 2, &["nonsense"]);
    failure(&mut rml(&["inspect", "missing.gguf"]), 1, &["missing.gguf", "no such file"]);
    failure(&mut rml(&["logits", model, "--tokens", "1,999999"]), 2, &["999999", "269"]);
    failure(&mut rml(&["logits", model, "--tokens", "1,x"]), 2, &["x"]);
    failure(&mut rml(&["logits", model, "--tokens", "1", "--out", "/nonexistent/x"]), 1, &["/nonexistent/x"]);
    failure(&mut rml(&["bench", model, "-r", "0"]), 2, &["-r"]);
    failure(&mut rml(&["bench", model, "--backend", "cuda"]), 2, &["unknown backend"]);
    failure(&mut rml(&["perplexity", model, "--file", "missing.txt"]), 1, &["missing.txt"]);
    failure(&mut rml(&["perplexity", model, "--file", file!(), "--ctx", "3"]), 2, &["--ctx 3"]);
    failure(&mut rml(&["perplexity", model, "--file", file!(), "--ctx", "1000000"]), 1, &["no chunk of 1000000"]);
    failure(&mut rml(&["backends", model, "--backend", "cuda"]), 2, &["unknown backend"]);
}
