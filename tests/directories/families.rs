//! Directories of tiny models against their GGUF files. `tests/families.rs` compares the files with `transformers`.

use std::path::PathBuf;

use rml::decode::KvType;
use rml::exec::Team;
use rml::model::Gguf;
use rml::model::quantize::{FileType, Quantized};
use rml::{LoadOptions, Model};

use crate::compare::{first_difference, ids, load, read_json, run};

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/families")
}

/// The models that there are as directories: all but those whose weights only GGUF has.
fn names() -> Vec<String> {
    let all = read_json(&folder().join("expected.json"));
    let names = all["models"].as_array().expect("models").iter().map(|m| m.as_str().expect("a name").to_owned());
    let names: Vec<String> = names.filter(|name| folder().join(name).is_dir()).collect();
    assert!(names.len() >= 20, "{names:?}");
    names
}

/// Where a directory says more than the file, or the file what follows from something else.
const MAY_DIFFER: [&str; 3] = ["general.name", "attention.key_length", "attention.value_length"];

#[test]
fn keys_are_those_that_the_package_gguf_wrote() {
    let mut wrong = Vec::new();
    for name in names() {
        let file = Gguf::open(&folder().join(format!("{name}.gguf"))).expect("the file");
        let directory = Gguf::open(&folder().join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (key, value) in file.metadata().iter() {
            let own = directory.metadata().get(key);
            let tokenizer = key.starts_with("tokenizer.") || key == "general.alignment";
            if !tokenizer && !MAY_DIFFER.iter().any(|k| key.ends_with(k)) && own != Some(value) {
                wrong.push(format!("{name}: {key} is {own:?} rather than {value:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn tensors_are_those_that_the_package_gguf_wrote() {
    let mut wrong = Vec::new();
    for name in names() {
        let file = Gguf::open(&folder().join(format!("{name}.gguf"))).expect("the file");
        let directory = Gguf::open(&folder().join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        directory.compute().expect("memory");
        if file.tensors().len() != directory.tensors().len() {
            wrong.push(format!("{name}: {} tensors rather than {}", directory.tensors().len(), file.tensors().len()));
        }
        for tensor in file.tensors() {
            match directory.tensor(&tensor.name) {
                Some(own) if own.shape == tensor.shape && own.kind == tensor.kind && directory.bytes(own) == file.bytes(tensor) => {}
                own => wrong.push(format!("{name}: {tensor:?} is {own:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn logits_are_those_of_the_file_to_the_bit() {
    let all = read_json(&folder().join("expected.json"));
    let mut wrong = Vec::new();
    for name in names() {
        let [file, directory] = [folder().join(format!("{name}.gguf")), folder().join(&name)].map(|path| load(&path, "ref", 2));
        for sequence in all["sequences"].as_array().expect("sequences") {
            let tokens = ids(&sequence["tokens"]);
            let [a, b] = [&file, &directory].map(|model| run(model, KvType::F32, &[512], &tokens));
            if let Some(difference) = first_difference(&a, &b, file.config().n_vocab) {
                wrong.push(format!("{name}: {difference}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_directory_quantized_while_loading_is_the_file_quantized_before() {
    for (name, kind) in [("llama3", "q8_0"), ("qwen2", "q4_0"), ("mixtral", "q4_k")] {
        let kind = FileType::named(kind).expect("a type");
        let file = Gguf::open(&folder().join(format!("{name}.gguf"))).expect("the file");
        let before = Quantized::new(&file, kind).expect("a plan").in_memory(&Team::new(1).expect("a team")).expect("memory");
        let options = LoadOptions { backend: Some("ref".to_owned()), threads: 2, quantize: Some(kind), ..LoadOptions::default() };
        let model = Model::load(&folder().join(name), &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        for tensor in before.tensors() {
            let own = model.file().tensor(&tensor.name).unwrap_or_else(|| panic!("{name}: {}", tensor.name));
            assert_eq!((own.kind, &own.shape), (tensor.kind, &tensor.shape), "{name}: {}", tensor.name);
            assert!(model.file().bytes(own) == before.bytes(tensor), "{name}: {}", tensor.name);
        }
        assert!(before.tensors().iter().any(|t| Some(t.kind) != file.tensor(&t.name).map(|t| t.kind)), "{name}: something was quantized");
        let logits = run(&model, KvType::F32, &[8], &[5, 6, 7]);
        assert!(logits.iter().all(|x| x.is_finite()) && logits.len() == 3 * model.config().n_vocab);
    }
}
