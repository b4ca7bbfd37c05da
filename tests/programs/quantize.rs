//! `rml quantize`: what its user meets.

use std::fs;
use std::path::Path;

use rml::model::Gguf;

use crate::{failure, model, rml, stderr, stdout, success};

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
    assert!(stderr(&output).contains("as their rows are no whole number of its blocks"), "{}", stderr(&output));
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

/// All but the type of the file.
#[test]
fn metadata_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new.gguf");
    success(&mut rml(&["quantize", text(&model()), text(&path), "f16"]));
    let (old, new) = (Gguf::open(&model()).expect("a sound file"), Gguf::open(&path).expect("a sound file"));
    assert_eq!(new.metadata().u32("general.file_type").expect("a number"), Some(1));
    let of_type = ["general.file_type", "general.quantization_version"];
    assert!(old.metadata().len() > 15);
    for (key, value) in old.metadata().iter().filter(|(key, _)| !of_type.contains(key)) {
        assert_eq!(new.metadata().get(key), Some(value), "{key}");
    }
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

/// Numbers that differ, all of them exact in bfloat16.
fn number(i: usize) -> f32 {
    ((i * 37 + i / 7) % 127) as f32 / 256.0 - 0.25
}

/// A Hugging Face directory of one layer: heads of 8, matrices in bfloat16, and the tensors' places in it.
fn directory(folder: &Path) -> std::path::PathBuf {
    let dir = folder.join("hf");
    fs::create_dir(&dir).expect("a folder");
    let config = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
        "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 64,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "bos_token_id": 0, "eos_token_id": 0,
    });
    fs::write(dir.join("config.json"), config.to_string()).expect("a file");
    let vocabulary: serde_json::Map<_, _> =
        (0..64).map(|i| (if i == 0 { "<s>".into() } else { char::from(32 + i as u8 + 1).to_string() }, i.into())).collect();
    let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let special = serde_json::json!({
        "id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
    });
    let tokenizer = serde_json::json!({
        "version": "1.0", "added_tokens": [special], "normalizer": null, "pre_tokenizer": bytes, "post_processor": null,
        "decoder": bytes, "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).expect("a file");
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    let layer = |role: &str| format!("model.layers.0.{role}.weight");
    for (name, shape) in [
        ("model.embed_tokens.weight".to_owned(), vec![64, 32]),
        ("model.norm.weight".to_owned(), vec![32]),
        (layer("input_layernorm"), vec![32]),
        (layer("post_attention_layernorm"), vec![32]),
        (layer("self_attn.q_proj"), vec![32, 32]),
        (layer("self_attn.k_proj"), vec![16, 32]),
        (layer("self_attn.v_proj"), vec![16, 32]),
        (layer("self_attn.o_proj"), vec![32, 32]),
        (layer("mlp.gate_proj"), vec![96, 32]),
        (layer("mlp.up_proj"), vec![96, 32]),
        (layer("mlp.down_proj"), vec![32, 96]),
    ] {
        let start = data.len();
        data.extend((0..shape.iter().product()).flat_map(|i| [number(i).to_le_bytes()[2], number(i).to_le_bytes()[3]]));
        header.insert(name, serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    fs::write(dir.join("model.safetensors"), [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).expect("a file");
    dir
}

/// The directory's weights under GGUF's names, and the same logits to the bit.
#[test]
fn a_directory_is_converted() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = directory(folder.path());
    let path = folder.path().join("new.gguf");
    let logits = |model: &Path| {
        let rows = folder.path().join("rows.f32");
        success(&mut rml(&["logits", text(model), "--tokens", "1,2,40,3", "--all", "--out", text(&rows), "--backend", "ref"]));
        fs::read(&rows).expect("the logits")
    };
    let of_directory = logits(&dir);
    // Without a type the matrices stay in bfloat16; norms become f32.
    success(&mut rml(&["convert", text(&dir), text(&path)]));
    let file = Gguf::open(&path).expect("a sound file");
    assert_eq!(file.tensor("token_embd.weight").expect("the embedding").kind.to_string(), "bf16");
    assert_eq!(file.tensor("blk.0.attn_norm.weight").expect("a norm").kind.to_string(), "f32");
    assert_eq!(file.metadata().u32("general.file_type").expect("a number"), Some(32));
    assert!(logits(&path) == of_directory);
    // In f32, by hand: GGUF has the rows of queries so that a pair to be rotated stands side by side.
    success(&mut rml(&["convert", text(&dir), text(&path), "--type", "f32", "--force"]));
    let file = Gguf::open(&path).expect("a sound file");
    let values = |name: &str| -> Vec<f32> {
        file.bytes(file.tensor(name).expect("the tensor")).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
    };
    assert_eq!(values("blk.0.ffn_down.weight"), (0..32 * 96).map(number).collect::<Vec<_>>());
    let row = |h: usize, r: usize| 8 * h + 4 * (r % 2) + r / 2;
    let rotated: Vec<f32> = (0..4).flat_map(|h| (0..8).flat_map(move |r| (0..32).map(move |j| number(32 * row(h, r) + j)))).collect();
    assert_eq!(values("blk.0.attn_q.weight"), rotated);
    success(&mut rml(&["convert", text(&dir), text(&path), "--type", "q4_k_m", "--force"]));
    assert_eq!(logits(&path).len(), of_directory.len());
    failure(&mut rml(&["convert", text(&path), text(&folder.path().join("x.gguf"))]), 2, &["new.gguf is a file", "rml quantize"]);
    failure(&mut rml(&["convert", text(folder.path()), text(&folder.path().join("x.gguf"))]), 1, &["holds no config.json"]);
}

/// Without a type, experts of gpt-oss stay in MXFP4: the file is that of the package `gguf`.
#[test]
fn what_is_quantized_in_a_directory_stays_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new.gguf");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/families/gpt-oss-mxfp4");
    success(&mut rml(&["convert", text(&fixture), text(&path)]));
    let (new, expected) = (Gguf::open(&path).expect("a sound file"), Gguf::open(&fixture.with_extension("gguf")).expect("the fixture"));
    assert_eq!(new.tensors().len(), expected.tensors().len());
    for tensor in expected.tensors() {
        let own = new.tensor(&tensor.name).expect("the tensor");
        assert_eq!((own.kind, &own.shape), (tensor.kind, &tensor.shape), "{}", tensor.name);
        assert!(new.bytes(own) == expected.bytes(tensor), "{}", tensor.name);
    }
    assert_eq!(expected.tensors().iter().filter(|t| t.kind.to_string() == "mxfp4").count(), 6);
    success(&mut rml(&["convert", text(&fixture), text(&path), "--type", "q8_0", "--force"]));
    let kinds: Vec<String> = Gguf::open(&path).expect("a sound file").tensors().iter().map(|t| t.kind.to_string()).collect();
    assert!(!kinds.contains(&"mxfp4".to_owned()), "{kinds:?}");
}
