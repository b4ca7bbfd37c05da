//! Guessing ahead, in both programs.

use std::fs;
use std::path::{Path, PathBuf};

use rml::model::Gguf;
use rml::model::gguf::{Array, Value};
use rml_kernels_ref::format::Format;

use crate::{changed_model, chat, failure, model, rml, stderr, stdout, success};

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/models/{name}.gguf"));
    path.to_str().expect("UTF-8").to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn lookup_changes_no_conversation() {
    let talk = |draft: &[&str]| {
        let arguments = [&["--temp", "1", "--seed", "7", "--max-tokens", "40"], draft].concat();
        success(chat(&arguments).write_stdin("the rain the rain the rain\nin Spain in Spain in\n/reset\nthe rain\n"))
    };
    let without = talk(&["--draft", "none"]);
    assert!(!stderr(&without).contains("rounds") && !stderr(&without).contains("draft"), "{}", stderr(&without));
    for draft in ["lookup", "auto"] {
        for tokens in ["1", "16"] {
            let with = talk(&["--draft", draft, "--draft-tokens", tokens]);
            assert_eq!(stdout(&with), stdout(&without));
            let err = stderr(&with);
            assert!(err.contains(&format!("; draft lookup, up to {tokens} token")), "{err}");
            let told = err.lines().filter(|l| l.contains(" rounds, ") && l.contains(" drafted, ") && l.ends_with(" tokens a round]"));
            assert_eq!(told.count(), 3, "{err}");
        }
    }
}

#[test]
fn a_draft_model_changes_no_greedy_reply() {
    let reply = |draft: &[&str]| success(&mut chat(&[&["-p", "the rain", "--temp", "0", "--max-tokens", "60"], draft].concat()));
    let without = reply(&[]);
    for name in ["q8_0", "q4_1"] {
        let with = reply(&["--draft", &fixture(name)]);
        assert_eq!(stdout(&with), stdout(&without));
        let err = stderr(&with);
        assert!(err.contains(&format!("; draft {name}.gguf, up to 4 tokens")) && err.contains(" tokens a round]"), "{err}");
    }
}

#[test]
fn a_draft_with_another_vocabulary_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Gguf::open(&model()).expect("the tiny model");
    let mut tokens = file.metadata().strings("tokenizer.ggml.tokens").expect("strings").expect("tokens").to_vec();
    tokens.swap(70, 71);
    let tokens = Value::Array(Array::Strings(tokens.iter().map(String::as_str).collect()));
    let path = changed_model(folder.path(), &[("tokenizer.ggml.tokens", Some(tokens))]);
    failure(&mut chat(&["-p", "hi", "--draft", text(&path)]), 2, &["draft model", "token 70 is ", "q4_1.gguf", "changed.gguf"]);
}

#[test]
fn bad_drafts_and_lengths_are_refused() {
    failure(&mut chat(&["-p", "hi", "--draft", "/nonexistent/draft.gguf"]), 1, &["/nonexistent/draft.gguf"]);
    for n in ["0", "17", "4.5", "x"] {
        failure(&mut chat(&["-p", "hi", "--draft", "lookup", "--draft-tokens", n]), 2, &["--draft-tokens"]);
    }
    failure(&mut rml(&["speculate", &fixture("f32"), "--draft-tokens", "17"]), 2, &["--draft-tokens 17", "at most 16"]);
    failure(&mut rml(&["speculate", &fixture("f32"), "--right", "101"]), 2, &["--right"]);
    failure(&mut rml(&["speculate", &fixture("f32"), "--task", "/nonexistent.json"]), 1, &["/nonexistent.json"]);
}

/// Every logit of a sequence, as bytes.
fn logits(model: &Path, folder: &Path) -> Vec<u8> {
    let rows = folder.join("rows.f32");
    success(&mut rml(&["logits", text(model), "--tokens", "3,400,77,12,12,90,508", "--all", "--out", text(&rows), "--threads", "1"]));
    fs::read(rows).expect("the logits")
}

#[test]
fn a_widened_model_computes_the_same_in_every_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let (narrow, wide) = (folder.path().join("narrow.gguf"), folder.path().join("wide.gguf"));
    for format in Format::ALL {
        success(&mut rml(&["synth", "tiny", text(&narrow), "--format", format.name(), "--force"]));
        let output = success(&mut rml(&["widen", text(&narrow), text(&wide), "--cost", "4", "--force", "--json"]));
        let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("a document");
        let (n_layers, cost) = (document["layers"].as_u64().expect("layers"), document["cost"].as_f64().expect("a cost"));
        assert!(n_layers > 6 && (3.5..4.5).contains(&cost), "{format}: {document}");
        let file = Gguf::open(&wide).expect("a sound file");
        assert_eq!(file.metadata().u32("llama.block_count").expect("a number"), Some(n_layers as u32));
        assert!(file.tensor(&format!("blk.{}.ffn_down.weight", n_layers - 1)).is_some());
        assert!(logits(&wide, folder.path()) == logits(&narrow, folder.path()), "{format}");
    }
}

#[test]
fn what_cannot_be_widened_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.gguf");
    fs::write(&path, "mine").expect("a file");
    failure(&mut rml(&["widen", &fixture("f32"), text(&path), "--cost", "2"]), 2, &["mine.gguf is there already", "--force"]);
    assert_eq!(fs::read(&path).expect("the file"), b"mine");
    for cost in ["0.5", "1001", "x", "nan"] {
        failure(&mut rml(&["widen", &fixture("f32"), text(&path), "--cost", cost, "--force"]), 2, &["--cost", "1 to 1000"]);
    }
    let output = success(&mut rml(&["widen", &fixture("f32"), text(&path), "--cost", "1", "--force"]));
    assert!(stdout(&output).contains("2 layers, 1.00 times the weights"), "{}", stdout(&output));
}

#[test]
fn guessing_is_measured_and_checked() {
    let target = fixture("f32");
    let common = ["speculate", &target, "-n", "30", "-r", "2", "--past-end", "--threads", "1"];
    let run = |more: &[&str]| stdout(&success(&mut rml(&[&common, more].concat())));
    let table = run(&["--draft", &fixture("q8_0"), "--right", "0,100", "--fixed", "--draft-tokens", "2"]);
    let rows: Vec<&str> = table.lines().filter(|l| l.starts_with("| prose | ")).collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(rows.iter().all(|row| row.matches(" | ").count() == 8), "{table}");
    // The draft is the model itself: every guess is right unless it is spoiled.
    let lines = |right: &str| {
        let out = run(&["--draft", &fixture("f32"), "--right", right, "--fixed", "--json", "--task", "copy"]);
        let row = out.lines().last().expect("a row");
        serde_json::from_str::<serde_json::Value>(row).expect("a document")
    };
    let all = lines("100");
    assert_eq!((&all["accepted"], all["tokens_a_round"].as_f64()), (&all["drafted"], Some(29.0 / 6.0)), "{all}");
    let none = lines("0");
    assert_eq!((none["accepted"].as_u64(), none["tokens_a_round"].as_f64()), (Some(0), Some(1.0)), "{none}");
    let half = lines("50");
    assert!(half["accepted"].as_f64() > Some(0.0) && half["accepted"].as_f64() < half["drafted"].as_f64(), "{half}");
}
