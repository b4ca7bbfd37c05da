//! Directories that are damaged or lie: each is an error that names the file and what to do, and none a panic.

use std::fs;
use std::path::{Path, PathBuf};

use rml::model::{Gguf, OpenOptions};
use serde_json::{Value as Json, json};

use crate::families::folder;

/// A copy of the directory of a tiny Llama that can be spoiled.
struct Copy(tempfile::TempDir);

impl Copy {
    fn new() -> Self {
        Self::of("llama3")
    }

    fn of(name: &str) -> Self {
        let copy = tempfile::tempdir().expect("a folder");
        for entry in fs::read_dir(folder().join(name)).expect("the fixture") {
            let path = entry.expect("an entry").path();
            fs::copy(&path, copy.path().join(path.file_name().expect("a name"))).expect("a copy");
        }
        Copy(copy)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(file), bytes).expect("a file");
    }

    fn config(&self, change: impl FnOnce(&mut Json)) {
        let mut config: Json = serde_json::from_slice(&fs::read(self.path("config.json")).expect("a file")).expect("JSON");
        change(&mut config);
        self.write("config.json", config.to_string());
    }

    /// Replaces the header of the weights; what it says of each tensor can be changed.
    fn header(&self, change: impl FnOnce(&mut Json)) {
        let bytes = fs::read(self.path("model.safetensors")).expect("the weights");
        let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let mut header: Json = serde_json::from_slice(&bytes[8..8 + n]).expect("JSON");
        change(&mut header);
        let header = header.to_string();
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header.as_bytes());
        out.extend(&bytes[8 + n..]);
        self.write("model.safetensors", out);
    }

    fn error(&self) -> String {
        let error = Gguf::open(self.0.path()).map(drop).expect_err("an error").to_string();
        assert!(!error.contains(char::is_control), "{error:?} is one line");
        error
    }
}

fn assert_says(copy: &Copy, what: &str, parts: &[&str]) {
    let error = copy.error();
    assert!(parts.iter().all(|part| error.contains(part)), "{what}: {error}");
}

const NORM: &str = "model.norm.weight";

#[test]
fn a_configuration_cut_anywhere_is_an_error_that_names_it() {
    let copy = Copy::new();
    let whole = fs::read(copy.path("config.json")).expect("a file");
    let end = whole.trim_ascii_end().len();
    for n in 0..end {
        copy.write("config.json", &whole[..n]);
        assert_says(&copy, &format!("{n} bytes"), &["config.json", "fetch it again"]);
    }
}

#[test]
fn what_a_configuration_must_not_say_is_named() {
    type Change = fn(&mut Json);
    let cases: [(Change, &[&str]); 17] = [
        (|c| c["architectures"] = json!(["BertModel"]), &["config.json", "BertModel", "LlamaForCausalLM"]),
        (|c| c["hidden_size"] = json!(null), &["hidden_size is missing"]),
        (|c| c["hidden_size"] = json!(-32), &["hidden_size is -32"]),
        (|c| c["hidden_size"] = json!(1_u64 << 60), &["hidden_size is 1152921504606846976"]),
        (|c| c["num_attention_heads"] = json!(0), &["num_attention_heads is 0"]),
        (|c| c["num_attention_heads"] = json!("four"), &["num_attention_heads is \"four\""]),
        (|c| c["rms_norm_eps"] = json!(1e-60), &["rms_norm_eps is"]),
        (|c| c["hidden_act"] = json!("relu"), &["hidden_act is \"relu\""]),
        (|c| c["rope_parameters"]["rope_type"] = json!("dynamic"), &["rope_parameters.rope_type is \"dynamic\""]),
        (|c| c["rope_parameters"]["factor"] = json!(-8.0), &["rope_parameters.factor is -8"]),
        (|c| c["rope_parameters"]["rope_theta"] = json!(0), &["rope_theta is 0"]),
        (|c| c["rope_parameters"]["high_freq_factor"] = json!(1.0), &["high_freq_factor is 1"]),
        (|c| c["quantization_config"] = json!({"quant_method": "gptq"}), &["quantization_config", "gptq"]),
        (|c| c["layer_types"] = json!(["full_attention", "linear_attention"]), &["layer_types", "layer 1"]),
        (|c| c["use_bidirectional_attention"] = json!(true), &["use_bidirectional_attention"]),
        (|c| c["num_hidden_layers"] = json!(1), &["model.layers.1.", "has no place"]),
        (|c| c["num_attention_heads"] = json!(3), &["num_attention_heads is 3"]),
    ];
    for (change, parts) in cases {
        let copy = Copy::new();
        // The fixture says how wide heads are, which the last case takes away.
        copy.config(|c| {
            c.as_object_mut().expect("an object").remove("head_dim");
            change(c);
        });
        assert_says(&copy, &parts.join(", "), parts);
    }
    let copy = Copy::new();
    let text = fs::read_to_string(copy.path("config.json")).expect("a file").replace("1e-05", "NaN");
    copy.write("config.json", text);
    assert_says(&copy, "NaN", &["config.json", "no JSON", "fetch it again"]);
}

#[test]
fn older_names_of_the_rotation_mean_the_same() {
    let keys = |copy: &Copy| {
        let file = Gguf::open(copy.0.path()).expect("the directory");
        file.compute().expect("memory");
        let factors = file.tensor("rope_freqs.weight").map(|t| file.bytes(t).to_vec()).expect("factors");
        let base = file.metadata().f32("llama.rope.freq_base").expect("a number");
        (factors, base)
    };
    let expected = keys(&Copy::new());
    for name in ["type", "rope_type"] {
        let copy = Copy::new();
        copy.config(|c| {
            let mut rope = c["rope_parameters"].take();
            c["rope_theta"] = rope["rope_theta"].take();
            let kind = rope["rope_type"].take();
            rope.as_object_mut().expect("an object").retain(|_, v| !v.is_null());
            rope[name] = kind;
            c["rope_scaling"] = rope;
        });
        assert_eq!(keys(&copy), expected, "{name}");
    }
}

#[test]
fn weights_cut_anywhere_are_an_error_that_names_the_file() {
    let copy = Copy::new();
    let whole = fs::read(copy.path("model.safetensors")).expect("a file");
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().expect("8 bytes")) as usize;
    for n in (0..header + 64).step_by(7).chain([whole.len() - 1]) {
        copy.write("model.safetensors", &whole[..n]);
        for mmap in [true, false] {
            let error = Gguf::open_with(copy.0.path(), &OpenOptions { mmap }).map(drop).expect_err("an error").to_string();
            assert!(error.contains("model.safetensors") && error.contains("fetch it again"), "{n} bytes: {error}");
        }
    }
}

#[test]
fn headers_that_lie_are_errors() {
    let copy = Copy::new();
    for length in [u64::MAX, 1 << 60, 1 << 32, 1] {
        let mut bytes = fs::read(copy.path("model.safetensors")).expect("a file");
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        copy.write("model.safetensors", bytes);
        assert_says(&copy, &format!("a header of {length}"), &["model.safetensors", "fetch it again"]);
    }
    type Change = fn(&mut Json);
    let cases: [(&str, Change); 9] = [
        ("beyond the end", |h| h[NORM]["data_offsets"] = json!([0, 1_u64 << 60])),
        ("backwards", |h| h[NORM]["data_offsets"] = json!([128, 0])),
        ("overlap", |h| h[NORM]["data_offsets"] = h["model.layers.0.input_layernorm.weight"]["data_offsets"].clone()),
        ("huge shape", |h| h[NORM]["shape"] = json!([1_u64 << 40, 1_u64 << 40])),
        ("wrong shape", |h| h[NORM]["shape"] = json!([31])),
        ("no dimension", |h| h[NORM]["shape"] = json!([])),
        ("negative", |h| h[NORM]["shape"] = json!([-32])),
        ("another type", |h| h[NORM]["dtype"] = json!("F99")),
        ("no tensor", |h| h[NORM] = json!(7)),
    ];
    for (what, change) in cases {
        let copy = Copy::new();
        copy.header(change);
        assert_says(&copy, what, &["model.safetensors"]);
    }
}

#[test]
fn types_and_names_without_a_place_are_named() {
    let copy = Copy::new();
    copy.header(|h| h[NORM]["dtype"] = json!("I32"));
    assert_says(&copy, "a type", &["model.safetensors", NORM, "I32", "BF16"]);
    for name in ["model.layers.0.mlp.extra.weight", "model.layers.00.input_layernorm.weight", "model.layers.7.input_layernorm.weight", "x"]
    {
        let copy = Copy::new();
        copy.header(|h| {
            let norm = h.as_object_mut().expect("an object").remove(NORM).expect("the norm");
            h[name] = norm;
        });
        assert_says(&copy, name, &["model.safetensors", &format!("tensor {name} has no place in a LlamaForCausalLM")]);
    }
    let copy = Copy::new();
    copy.header(|h| {
        let head = h.as_object_mut().expect("an object").remove("lm_head.weight").expect("the head");
        h["model.layers.0.self_attn.q_norm.weight"] = head;
    });
    assert_says(&copy, "no head", &["lm_head.weight is missing", "tie_word_embeddings"]);
    let copy = Copy::of("mixtral");
    copy.header(|h| {
        let expert =
            h.as_object_mut().expect("an object").remove("model.layers.1.block_sparse_moe.experts.2.w1.weight").expect("an expert");
        h["model.layers.1.block_sparse_moe.experts.9.w1.weight"] = expert;
    });
    assert_says(&copy, "no expert", &["model.safetensors", "expert 2 of blk.1.ffn_gate_exps.weight is missing"]);
}

#[test]
fn packed_experts_need_both_halves_in_their_shapes() {
    const BLOCKS: &str = "model.layers.1.mlp.experts.gate_up_proj_blocks";
    const SCALES: &str = "model.layers.1.mlp.experts.gate_up_proj_scales";
    type Change = fn(&mut Json);
    // Under this name nothing is computed with it.
    fn hide(header: &mut Json, name: &str) {
        let tensor = header.as_object_mut().expect("an object").remove(name).expect("the tensor");
        header["model.layers.1.self_attn.rotary_emb.inv_freq"] = tensor;
    }
    let cases: [(&str, Change, &[&str]); 7] = [
        ("no scales", |h| hide(h, SCALES), &[BLOCKS, "stands alone"]),
        ("no blocks", |h| hide(h, BLOCKS), &[SCALES, "stands alone"]),
        ("fewer experts", |h| h[BLOCKS]["shape"] = json!([2, 256, 2, 16]), &[BLOCKS, "[2, 256, 2, 16]"]),
        ("other blocks", |h| h[BLOCKS]["shape"] = json!([4, 128, 1, 32]), &[BLOCKS, "[4, 128, 1, 32]"]),
        ("odd rows", |h| h[BLOCKS]["shape"] = json!([4, 1, 256, 16]), &[BLOCKS, "[4, 1, 256, 16]"]),
        ("other scales", |h| h[SCALES]["shape"] = json!([4, 2, 128]), &[SCALES, "[4, 2, 128]"]),
        ("another type", |h| h[SCALES]["dtype"] = json!("I8"), &[SCALES]),
    ];
    for (what, change, said) in cases {
        let copy = Copy::of("gpt-oss-mxfp4");
        copy.header(change);
        assert_says(&copy, what, said);
    }
    let copy = Copy::of("llama3");
    copy.config(|c| c["quantization_config"] = json!({"quant_method": "mxfp4"}));
    assert_says(&copy, "another family", &["quantization_config", "mxfp4"]);
}

/// Cuts the weights into two files with an index.
fn in_two_files(copy: &Copy) -> Json {
    let bytes = fs::read(copy.path("model.safetensors")).expect("the weights");
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Json = serde_json::from_slice(&bytes[8..8 + n]).expect("JSON");
    let mut tensors: Vec<(&String, &Json)> = header.as_object().expect("an object").iter().filter(|(k, _)| *k != "__metadata__").collect();
    tensors.sort_by_key(|(_, t)| t["data_offsets"][0].as_u64());
    let mut map = json!({});
    for (number, part) in tensors.chunks(tensors.len().div_ceil(2)).enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", number + 1);
        let first = part[0].1["data_offsets"][0].as_u64().expect("a number");
        let mut header = json!({});
        let mut data = Vec::new();
        for (name, tensor) in part {
            let [start, end] = [0, 1].map(|i| tensor["data_offsets"][i].as_u64().expect("a number"));
            header[*name] = json!({"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [start - first, end - first]});
            data.extend(&bytes[8 + n..][start as usize..end as usize]);
            map[*name] = json!(file);
        }
        let header = header.to_string();
        copy.write(&file, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat());
    }
    fs::remove_file(copy.path("model.safetensors")).expect("the file goes");
    let index = json!({"metadata": {}, "weight_map": map});
    copy.write("model.safetensors.index.json", index.to_string());
    index
}

#[test]
fn several_files_are_one_model_and_each_must_be_there() {
    let copy = Copy::new();
    let index = in_two_files(&copy);
    let (one, two) = (Gguf::open(&folder().join("llama3")).expect("the fixture"), Gguf::open(copy.0.path()).expect("two files"));
    assert_eq!((one.n_files(), two.n_files()), (1, 2));
    assert_eq!(one.tensors().len(), two.tensors().len());
    for tensor in one.tensors() {
        assert_eq!(one.bytes(tensor), two.bytes(two.tensor(&tensor.name).expect("the tensor")), "{}", tensor.name);
    }
    let write = |change: &dyn Fn(&mut Json)| {
        let mut changed = index.clone();
        change(&mut changed);
        copy.write("model.safetensors.index.json", changed.to_string());
    };
    for elsewhere in ["../../etc/passwd", "/etc/passwd", "a/b.safetensors", "..", "", "..\\x"] {
        write(&|i| i["weight_map"][NORM] = json!(elsewhere));
        assert_says(&copy, elsewhere, &["index.json", "no file of this directory"]);
    }
    write(&|i| i["weight_map"][NORM] = json!("model-00003-of-00003.safetensors"));
    assert_says(&copy, "a third file", &["model-00003-of-00003.safetensors", "is missing", "fetch it"]);
    write(&|i| i["weight_map"]["x"] = json!("model-00001-of-00002.safetensors"));
    assert_says(&copy, "a tensor too many", &["tensor x does not stand in model-00001-of-00002.safetensors"]);
    write(&|i| i["weight_map"] = json!({}));
    assert_says(&copy, "nothing", &["weight_map names no tensors"]);
    write(&|_| ());
    fs::copy(copy.path("model-00001-of-00002.safetensors"), copy.path("model-00002-of-00002.safetensors")).expect("a copy");
    assert_says(&copy, "the same twice", &["model-00002-of-00002.safetensors", "stands in"]);
    fs::remove_file(copy.path("model-00002-of-00002.safetensors")).expect("the file goes");
    assert_says(&copy, "a part missing", &["model-00002-of-00002.safetensors", "is missing", "fetch it"]);
    fs::remove_file(copy.path("model.safetensors.index.json")).expect("the file goes");
    assert_says(&copy, "no index", &["model.safetensors.index.json", "is missing"]);
}

#[test]
fn tokenizers_that_lie_are_errors() {
    let tokenizer =
        |copy: &Copy| -> Json { serde_json::from_slice(&fs::read(copy.path("tokenizer.json")).expect("a file")).expect("JSON") };
    type Change = fn(&mut Json);
    let cases: [(Change, &str); 6] = [
        (|t| t["added_tokens"][0]["id"] = json!(4_000_000_000_u64), "4000000000"),
        (|t| t["added_tokens"][0]["id"] = json!("zero"), "added_tokens"),
        (|t| t["model"]["vocab"]["a"] = json!(-1), "\"a\""),
        (|t| t["model"]["merges"] = json!([7]), "merges"),
        (|t| t["model"] = json!(null), "model is missing"),
        (|t| t["model"]["type"] = json!("WordLevel"), "WordLevel"),
    ];
    for (change, said) in cases {
        let copy = Copy::new();
        let mut json = tokenizer(&copy);
        change(&mut json);
        copy.write("tokenizer.json", json.to_string());
        assert_says(&copy, said, &["tokenizer.json", said]);
    }
    let copy = Copy::new();
    fs::remove_file(copy.path("tokenizer.json")).expect("the file goes");
    assert_says(&copy, "no tokenizer", &["tokenizer.json", "tokenizer.model"]);
    copy.write("tokenizer.model", [0xff; 100]);
    assert_says(&copy, "a damaged vocabulary", &["tokenizer.model", "fetch it again"]);
}

#[test]
fn a_directory_of_something_else_says_what_is_missing() {
    let copy = Copy::new();
    fs::remove_file(copy.path("config.json")).expect("the file goes");
    assert_says(&copy, "no configuration", &["config.json"]);
    let copy = Copy::new();
    fs::rename(copy.path("model.safetensors"), copy.path("pytorch_model.bin")).expect("another name");
    assert_says(&copy, "pickles", &[".bin", "safetensors"]);
    let copy = Copy::new();
    fs::remove_file(copy.path("config.json")).expect("the file goes");
    fs::create_dir(copy.path("config.json")).expect("a folder");
    assert_says(&copy, "a folder", &["config.json", "not a regular file"]);
    assert!(Path::new(&folder()).is_dir());
}
