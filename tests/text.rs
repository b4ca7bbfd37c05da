//! Tokenizers and templates against llama.cpp and Jinja2.

use std::io::Write;
use std::path::PathBuf;

use rml::model::Gguf;
use rml::text::{ChatTemplate, Encode, Now, RenderOptions, Tokenizer};

/// `shared/data` beside the checkout, or a word that it is not there.
fn shared(what: &str) -> Option<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(what);
    if !dir.is_dir() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {} is not there", dir.display());
        return None;
    }
    Some(dir)
}

#[test]
fn six_vocabularies_give_llama_cpps_ids() {
    let Some(dir) = shared("vocab") else { return };
    let mut n = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let t = std::time::Instant::now();
        let file = Gguf::open(&path).unwrap();
        let opened = t.elapsed();
        let tokenizer = Tokenizer::from_gguf(&file).unwrap();
        eprintln!("{}: open {opened:?}, in all {:?} {:?}", path.display(), t.elapsed(), tokenizer.warnings());
        let read = |suffix: &str| std::fs::read_to_string(format!("{}.{suffix}", path.display())).unwrap();
        let (texts, ids) = (read("inp"), read("out"));
        for (text, want) in texts.split("\n__ggml_vocab_test__\n").zip(ids.lines()) {
            let want: Vec<u32> = want.split_whitespace().map(|x| x.parse().unwrap()).collect();
            let got = tokenizer.encode(text, Encode::default()).unwrap();
            assert_eq!(got, want, "{}: {text:?}", path.display());
            assert_eq!(tokenizer.decode(&got, true), text, "{}", path.display());
            n += 1;
        }
    }
    assert!(n > 250, "{n} texts");
}

#[test]
fn twelve_templates_render_as_jinja2_does() {
    let Some(dir) = shared("templates") else { return };
    let mut failures = Vec::new();
    let mut n = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        let cases: serde_json::Value = serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        let text = |key: &str| cases[key].as_str().unwrap();
        let template = match ChatTemplate::new(&std::fs::read_to_string(&path).unwrap(), text("bos_token"), text("eos_token")) {
            Ok(t) => t,
            Err(e) => {
                failures.push(format!("{}: {e}", path.display()));
                continue;
            }
        };
        for (name, case) in cases["cases"].as_object().unwrap() {
            let now = Now::At(text("now").parse().unwrap());
            let options = RenderOptions { add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(), now };
            n += 1;
            match (template.render(&case["messages"], &options), case["text"].as_str()) {
                (Ok(got), Some(want)) if got == want => {}
                (got, Some(want)) => failures.push(format!("{} {name}\n got {got:?}\nwant {want:?}", path.display())),
                // A case recorded as an error may render instead where tools are merely absent.
                (_, None) => {}
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(n, 60);
}
