//! Files written in other types, against llama.cpp's own quantizer; `fixtures/make_quantize.py` makes the expected values.

use std::path::{Path, PathBuf};

use rml::exec::Team;
use rml::model::Gguf;
use rml::model::gguf::{TensorType, Value as GgufValue, Writer};
use rml::model::quantize::{FileType, Quantized};
use rml_kernels_ref::format::Format;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(fixtures().join("quantize/files.json")).expect("the fixture")).expect("JSON")
}

/// The new file, with as many threads.
fn quantized(file: &Gguf, kind: FileType, threads: usize) -> Gguf {
    let (mut bytes, mut told) = (Vec::new(), 0);
    let plan = Quantized::new(file, kind).expect("a plan");
    let team = Team::new(threads).expect("threads");
    plan.write("out.gguf".as_ref(), &mut bytes, &team, |n| told += n).expect("a written file");
    assert_eq!(told, plan.source_bytes());
    Gguf::from_bytes("out.gguf".as_ref(), &bytes).expect("a sound file")
}

/// A model of these tensors, matrices in f16 and all else in f32, all weights 0.
fn made(model: &Value) -> Gguf {
    let mut writer = Writer::new();
    writer.set("general.architecture", GgufValue::String(model["architecture"].as_str().expect("a name").into()));
    for (key, value) in model["metadata"].as_object().expect("metadata") {
        writer.set(key, GgufValue::U32(value.as_u64().expect("a number") as u32));
    }
    let mut sizes = Vec::new();
    for tensor in model["tensors"].as_array().expect("tensors") {
        let name = tensor[0].as_str().expect("a name");
        let shape: Vec<usize> = tensor[1].as_array().expect("a shape").iter().map(|d| d.as_u64().expect("a size") as usize).collect();
        let wide = if shape.len() == 1 || name.contains("gate_inp") { Format::F32 } else { Format::F16 };
        writer.tensor(name, wide.into(), &shape).expect("a tensor");
        sizes.push(shape.iter().product::<usize>() * wide.block_bytes());
    }
    let mut bytes = Vec::new();
    let fill = |i: usize, out: &mut Vec<u8>| {
        out.resize(sizes[i], 0);
        Ok(())
    };
    writer.write("made.gguf".as_ref(), &mut bytes, fill).expect("a file");
    Gguf::from_bytes("made.gguf".as_ref(), &bytes).expect("a sound file")
}

#[test]
fn every_tensor_gets_the_type_that_llama_cpp_gives_it() {
    for model in expected()["made"].as_array().expect("models") {
        let file = made(model);
        for (name, types) in model["types"].as_object().expect("types") {
            let kind = FileType::named(name).unwrap_or_else(|| panic!("no type {name}"));
            let new = quantized(&file, kind, 1);
            for (tensor, want) in new.tensors().iter().zip(types.as_array().expect("a list")) {
                assert_eq!(tensor.kind.to_string(), want.as_str().expect("a type"), "{} in {name}: {}", model["name"], tensor.name);
            }
            assert_eq!(new.metadata().u32("general.file_type").expect("a number"), Some(kind.number()));
            assert_eq!(new.metadata().u32("general.quantization_version").expect("a number"), Some(2));
        }
    }
}

#[test]
fn every_tensor_has_the_bytes_that_llama_cpp_writes() {
    let file = Gguf::open(&fixtures().join("models/f32.gguf")).expect("the model");
    for (name, tensors) in expected()["f32.gguf"].as_object().expect("types") {
        let kind = FileType::named(name).unwrap_or_else(|| panic!("no type {name}"));
        let new = quantized(&file, kind, 3);
        assert_eq!(new.tensors().len(), tensors.as_object().expect("tensors").len());
        for tensor in new.tensors() {
            let digest: String = Sha256::digest(new.bytes(tensor)).iter().map(|b| format!("{b:02x}")).collect();
            let want = &tensors[&tensor.name];
            assert_eq!(
                (tensor.kind.to_string().as_str(), digest.as_str()),
                (want[0].as_str().unwrap(), want[1].as_str().unwrap()),
                "{name}: {}",
                tensor.name
            );
        }
        for (key, value) in file.metadata().iter().filter(|(key, _)| !key.starts_with("general.")) {
            assert_eq!(new.metadata().get(key), Some(value), "{name}");
        }
    }
}

#[test]
fn what_is_in_the_type_already_is_copied() {
    let file = Gguf::open(&fixtures().join("models/q8_0.gguf")).expect("the model");
    let kind = FileType::named("Q8_0").expect("a type");
    let plan = Quantized::new(&file, kind).expect("a plan");
    assert_eq!((plan.n_requantized(), plan.n_fallbacks()), (0, 0));
    let new = quantized(&file, kind, 2);
    for tensor in file.tensors().iter().filter(|t| t.kind == TensorType::from(Format::Q8_0)) {
        assert!(new.bytes(new.tensor(&tensor.name).expect("the tensor")) == file.bytes(tensor), "{}", tensor.name);
    }
    let again = Quantized::new(&file, FileType::named("q4_0").expect("a type")).expect("a plan");
    // The head falls back to the type that it has.
    let matrices = file.tensors().iter().filter(|t| t.kind == TensorType::from(Format::Q8_0) && t.name.starts_with("blk."));
    assert_eq!(again.n_requantized(), matrices.count());
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    let file = |weight: f32| {
        let mut writer = Writer::new();
        writer.set("general.architecture", GgufValue::String("llama".into()));
        writer.tensor("blk.0.attn_q.weight", Format::F32.into(), &[64, 40]).expect("a tensor");
        let mut bytes = Vec::new();
        let fill = |_, out: &mut Vec<u8>| {
            // Two of them: the first is named, whichever thread meets it.
            let at = |i| if i == 64 * 7 + 5 || i == 64 * 30 { weight } else { 0.5_f32 };
            out.extend((0..64 * 40).flat_map(|i| at(i).to_le_bytes()));
            Ok(())
        };
        writer.write("bad.gguf".as_ref(), &mut bytes, fill).expect("a file");
        Gguf::from_bytes("bad.gguf".as_ref(), &bytes).expect("a sound file")
    };
    for (weight, kind, said) in [
        (f32::NAN, "q8_0", "weight 5 is NaN, so it cannot be written as q8_0; the model is damaged"),
        (f32::INFINITY, "f16", "weight 5 is inf"),
        (1e30, "q4_k_m", "weight 5 is 1e30, which is too large, so it cannot be written as q5_0"),
        (1e5, "f16", "weight 5 is 1e5, which is too large, so it cannot be written as f16; choose a type with more range"),
    ] {
        let file = file(weight);
        let plan = Quantized::new(&file, FileType::named(kind).expect("a type")).expect("a plan");
        let error = plan.write("out.gguf".as_ref(), &mut Vec::new(), &Team::new(3).expect("threads"), |_| ()).expect_err(said).to_string();
        assert!(error.starts_with("bad.gguf: tensor blk.0.attn_q.weight, row 7: ") && error.contains(said), "{error}");
    }
}

#[test]
fn an_error_of_writing_names_the_new_file() {
    /// Room for so many bytes.
    struct Disk(usize);
    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let file = Gguf::open(&fixtures().join("models/f32.gguf")).expect("the model");
    let plan = Quantized::new(&file, FileType::named("f16").expect("a type")).expect("a plan");
    let team = Team::new(1).expect("a thread");
    for room in [0, 10_000, 50_000] {
        let error = plan.write("out.gguf".as_ref(), &mut Disk(room), &team, |_| ()).expect_err("the disk is full").to_string();
        assert!(error.starts_with("out.gguf: cannot write: "), "{error}");
    }
}
