//! A model's own `tokenizer.json` in a GGUF file, from whoever made it: an error that says what is wrong, or tokens; never a
//! panic, and never without end.

use std::path::Path;
use std::time::{Duration, Instant};

use rml::model::Gguf;
use rml::model::gguf::{Array, Value, Writer};
use rml::text::{Encode, Tokenizer};
use serde_json::{Value as Json, json};

const TOKENS: [&str; 6] = ["a", "b", "ab", "<unk>", "Ġ", "<s>"];

/// A sound description: bytes, one merge, one control token.
fn sound() -> Json {
    json!({
        "added_tokens": [{"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3, "Ġ": 4}, "merges": [["a", "b"]], "unk_token": "<unk>"},
    })
}

/// The ids of a text by a file with this `tokenizer.json`, or what is wrong with it.
fn encode(json: &str, text: &str) -> Result<Vec<u32>, String> {
    let mut writer = Writer::new();
    writer.set("tokenizer.ggml.model", Value::String("gpt2".into()));
    writer.set("tokenizer.ggml.tokens", Value::Array(Array::Strings(TOKENS.into_iter().collect())));
    writer.set("tokenizer.huggingface.json", Value::String(json.into()));
    let mut bytes = Vec::new();
    writer.write(Path::new("test.gguf"), &mut bytes, |_, _| Ok(())).expect("a file");
    let file = Gguf::from_bytes(Path::new("test.gguf"), &bytes).expect("a file");
    let started = Instant::now();
    let ids = Tokenizer::from_gguf(&file).and_then(|t| {
        // The second leaves out what the first takes for special tokens.
        t.encode(text, Encode { add_special: true, parse_special: true })?;
        t.encode(text, Encode::default())
    });
    assert!(started.elapsed() < Duration::from_secs(60), "{json}: took {:?}", started.elapsed());
    ids.map_err(|e| e.to_string())
}

#[track_caller]
fn assert_refused(what: &str, change: impl FnOnce(&mut Json), said: &str) {
    let mut json = sound();
    change(&mut json);
    let error = encode(&json.to_string(), "ab ba").expect_err(what);
    assert!(error.contains(said) && error.contains("tokenizer.json"), "{what}: {error}");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        (0..4).for_each(|i| out.push(if i <= group.len() { DIGITS[(bits >> (18 - 6 * i)) as usize & 63] as char } else { '=' }));
    }
    out
}

#[test]
fn a_sound_description_is_used() {
    assert_eq!(encode(&sound().to_string(), "ab ba"), Ok(vec![2, 4, 1, 0]));
}

#[test]
fn text_that_is_no_description_is_an_error() {
    let whole = sound().to_string();
    for n in 0..whole.len() {
        if whole.is_char_boundary(n) {
            assert!(encode(&whole[..n], "ab").is_err(), "{n} bytes");
        }
    }
    for json in ["null", "7", "[]", "{}", r#"{"model": null}"#, r#"{"model": {"type": "BPE", "vocab": [], "merges": {}}}"#] {
        assert!(encode(json, "ab").is_err(), "{json}");
    }
}

#[test]
fn descriptions_that_lie_are_errors() {
    assert_refused("a merge of an absent token", |j| j["model"]["merges"] = json!([["a", "x"]]), r#"merge ["a","x"]"#);
    assert_refused("a merge to an absent token", |j| j["model"]["merges"] = json!([["ab", "ab"]]), r#"merge ["ab","ab"]"#);
    assert_refused("a merge of one", |j| j["model"]["merges"] = json!(["a"]), r#"merge "a""#);
    assert_refused("a merge of numbers", |j| j["model"]["merges"] = json!([[0, 1]]), "merge [0,1]");
    assert_refused("a prefix that is none", |j| j["model"]["continuing_subword_prefix"] = json!("##"), r#"merge ["a","b"]"#);
    assert_refused("a long prefix", |j| j["model"]["continuing_subword_prefix"] = json!("#".repeat(1 << 16)), "merge");
    assert_refused("an id of 2^40", |j| j["model"]["vocab"]["a"] = json!(1_u64 << 40), "model");
    assert_refused("a negative id", |j| j["model"]["vocab"]["a"] = json!(-1), "model");
    assert_refused("an id beyond the vocabulary", |j| j["model"]["vocab"]["a"] = json!(4_000_000_000_u32), "4000000000");
    assert_refused("a number without end", |j| j["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0}), "length 0");
    assert_refused("a negative length", |j| j["pre_tokenizer"] = json!({"type": "FixedLength", "length": -1}), "pre_tokenizer");
    assert_refused("a step without type", |j| j["normalizer"] = json!({"precompiled_charsmap": ""}), "normalizer: a step has no type");
    assert_refused("an unknown step", |j| j["pre_tokenizer"] = json!({"type": "Teleport"}), "pre_tokenizer");
    assert_refused("an expression that does not compile", |j| j["pre_tokenizer"] = split("(a"), r#"the regular expression "(a""#);
    assert_refused("a repetition of 2^31", |j| j["pre_tokenizer"] = split("a{2147483648}"), "regular expression");
    let long = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    assert_refused("2^60 letters", |j| j["normalizer"] = json!({"type": "Sequence", "normalizers": vec![long; 60]}), "times as long");
    let many = json!({"type": "NFC"});
    assert_refused("many steps", |j| j["normalizer"] = json!({"type": "Sequence", "normalizers": vec![many; 1000]}), "more than 64 steps");
    let huge = sound().to_string().replace("\"a\":0", "\"a\":1e999");
    assert!(encode(&huge, "ab").expect_err("a huge number").contains("tokenizer.json"));
}

fn split(pattern: &str) -> Json {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

#[test]
fn nesting_is_bounded() {
    for (part, list) in [("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")] {
        for depth in [10, 60, 200, 100_000] {
            let open = format!(r#"{{"type":"Sequence","{list}":["#).repeat(depth);
            let json = format!(r#"{{"{part}":{open}{},"model":{}}}"#, "]}".repeat(depth), sound()["model"]);
            // A hundred and some levels are the JSON parser's limit.
            assert_eq!(encode(&json, "ab").is_ok(), depth <= 60, "{part}, {depth} deep");
        }
    }
}

#[test]
fn a_regular_expression_that_takes_too_long_is_an_error() {
    let text = "a".repeat(40);
    for pattern in ["(a+)+$b", "(a|a)+b", "(a*)*b", "^(([a])+.)+[A-Z]([a])+$"] {
        let mut json = sound();
        json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [split(pattern), json["pre_tokenizer"]]});
        let error = encode(&json.to_string(), &text).map(|ids| ids.len());
        // Oniguruma sees through some of these.
        assert!(error.as_ref().is_ok_and(|n| *n == 40) || error.as_ref().is_err_and(|e| e.contains("retry-limit")), "{pattern}: {error:?}");
        let mut json = sound();
        json["normalizer"] = json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": ""});
        let error = encode(&json.to_string(), &text);
        assert!(error.is_ok() || error.as_ref().is_err_and(|e| e.contains("retry-limit")), "{pattern}: {error:?}");
        json["added_tokens"][0]["content"] = json!(text);
        json["added_tokens"][0]["normalized"] = json!(true);
        let error = encode(&json.to_string(), "b");
        assert!(error.is_ok() || error.as_ref().is_err_and(|e| e.contains("retry-limit")), "{pattern}: {error:?}");
    }
    // At least one of them does take too long.
    let mut json = sound();
    json["pre_tokenizer"] = split(r"(?:a|a|aa)+\1*$(b)");
    json["normalizer"] = json!({"type": "Replace", "pattern": {"Regex": "(?:(a|a|aa)+)+\\1b"}, "content": ""});
    assert!(encode(&json.to_string(), &text).is_err_and(|e| e.contains("retry-limit")));
}

#[test]
fn empty_matches_come_to_an_end() {
    for pattern in ["", "a*", "(?=a)", "$", "^", r"\b", "(?<=a)"] {
        let mut json = sound();
        json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [split(pattern), json["pre_tokenizer"]]});
        assert_eq!(encode(&json.to_string(), "aa bb").map(|ids| ids.len()), Ok(5), "{pattern:?}");
        let mut json = sound();
        json["normalizer"] = json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": "b"});
        let _ = encode(&json.to_string(), "aa bb");
        json["normalizer"]["pattern"] = json!({"String": pattern});
        let _ = encode(&json.to_string(), "aa bb");
    }
}

#[test]
fn maps_of_characters_are_looked_over() {
    // A trie of two units whose first leads far away; one that is cut short; one that says it is 4 GB long.
    let far = [&8_u32.to_le_bytes()[..], &u32::MAX.to_le_bytes(), &u32::MAX.to_le_bytes(), b"x\0"].concat();
    for bytes in [&far[..], &far[..5], &far[..3], &[0xff; 64], &u32::MAX.to_le_bytes(), b"\x04\0\0\0\0\0\0\0\xff\xff"] {
        let step = json!({"type": "Precompiled", "precompiled_charsmap": base64(bytes)});
        assert_refused("a map alone", |j| j["normalizer"] = step.clone(), "precompiled_charsmap");
        assert_refused("a map within", |j| j["normalizer"] = json!({"type": "Sequence", "normalizers": [step]}), "precompiled_charsmap");
    }
    assert_refused(
        "no base 64",
        |j| j["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "%%%"}),
        "precompiled_charsmap",
    );
}

#[test]
fn dropout_does_not_make_tokens_random() {
    let mut json = sound();
    json["model"]["dropout"] = json!(1.0);
    assert_eq!(encode(&json.to_string(), "abab"), Ok(vec![2, 2]));
}

#[test]
fn other_models_of_hostile_numbers_are_errors_or_tokens() {
    let models = [
        json!({"type": "Unigram", "unk_id": 7, "vocab": [["a", 0.0]]}),
        json!({"type": "Unigram", "unk_id": null, "vocab": [["a", 0.0]]}),
        json!({"type": "Unigram", "unk_id": 0, "vocab": []}),
        json!({"type": "Unigram", "unk_id": 0, "vocab": [["", -1e308], ["a", -1e308], ["b", 1e308], ["ab", 1e308]], "byte_fallback": true}),
        json!({"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "", "max_input_chars_per_word": 0, "vocab": {"": 0, "a": 1}}),
        json!({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "#", "max_input_chars_per_word": u64::MAX, "vocab": {"a": 1}}),
        json!({"type": "WordLevel", "unk_token": "?", "vocab": {"a": 0}}),
        json!({"type": "BPE", "vocab": {"": 0, "a": 1}, "merges": [["", "a"], ["a", ""]]}),
        json!({"vocab": {"a": 0}, "merges": ["#version: 0.2"]}),
    ];
    for model in models {
        let mut json = sound();
        json["model"] = model;
        for text in ["", "ab ba", "ä\0\u{10ffff}", &"ab".repeat(1000)] {
            if let Ok(ids) = encode(&json.to_string(), text) {
                assert!(ids.iter().all(|&id| (id as usize) < TOKENS.len()), "{json}: {ids:?}");
            }
        }
    }
}
