//! Synthetic models: written, loaded and run in every format.

use std::fs;
use std::path::Path;

use rml::model::Gguf;
use rml_kernels_ref::format::Format;

use crate::{failure, rml, stderr, stdout, success};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The head's rows have a length of 1 and its input, normalized, has numbers of size 1: logits spread by about 1.
#[test]
fn every_format_runs_and_spreads_its_logits_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    for format in Format::ALL {
        let (path, rows) = (folder.path().join(format!("{format}.gguf")), folder.path().join("rows.f32"));
        success(&mut rml(&["synth", "tiny", text(&path), "--format", format.name()]));
        success(&mut rml(&["logits", text(&path), "--tokens", "3,400,77,12", "--all", "--out", text(&rows), "--threads", "1"]));
        let bytes = fs::read(&rows).expect("the logits");
        let logits: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
        assert_eq!(logits.len(), 4 * 509);
        let square = logits.iter().map(|x| x * x).sum::<f32>() / logits.len() as f32;
        assert!(square > 0.8 && square < 1.25, "{format}: mean square {square}");
        let file = Gguf::open(&path).expect("a sound file");
        let stored = |name: &str| file.tensor(name).and_then(|t| t.kind.format()).expect("a known format");
        assert_eq!((stored("blk.0.attn_q.weight"), stored("token_embd.weight")), (format, format));
    }
}

#[test]
fn what_a_format_cannot_have_is_replaced_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.gguf");
    // The rows of ffn_down are 416 long; the head of a quantized file is better than its layers.
    for (format, down, head) in [
        (Format::Q2_K, Format::Q4_0, Format::Q6_K),
        (Format::Q3_K, Format::Q4_0, Format::Q6_K),
        (Format::Q4_K, Format::Q5_0, Format::Q6_K),
        (Format::Q5_K, Format::Q5_1, Format::Q6_K),
        (Format::Q6_K, Format::Q8_0, Format::Q6_K),
        (Format::Q8_0, Format::Q8_0, Format::Q8_0),
        (Format::Q4_0, Format::Q4_0, Format::Q6_K),
        (Format::F16, Format::F16, Format::F16),
    ] {
        let output = success(&mut rml(&["synth", "tiny", text(&path), "--format", &format.name().to_uppercase(), "--force"]));
        let file = Gguf::open(&path).expect("a sound file");
        let stored = |name: &str| file.tensor(name).and_then(|t| t.kind.format()).expect("a known format");
        assert_eq!((stored("blk.1.ffn_down.weight"), stored("output.weight")), (down, head), "{format}");
        let said = stderr(&output);
        if down == format {
            assert_eq!(said, "");
        } else {
            assert_eq!(said, format!("rows of 416 weights are no multiple of 256: 2 matrices are in {down}, not in {format}\n"));
        }
    }
}

#[test]
fn the_seed_decides_the_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = |name: &str, seed: &str| {
        let path = folder.path().join(name);
        success(&mut rml(&["synth", "tiny", text(&path), "--format", "q4_1", "--seed", seed]));
        fs::read(path).expect("the file")
    };
    let (a, b, c) = (written("a.gguf", "5"), written("b.gguf", "5"), written("c.gguf", "6"));
    assert!(a == b && a.len() == c.len() && a != c);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 3, "nothing is left beside the files");
}

#[test]
fn a_file_that_is_there_stays_unless_forced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.gguf");
    fs::write(&path, "mine").expect("a file");
    failure(&mut rml(&["synth", "tiny", text(&path)]), 2, &["mine.gguf is there already", "--force"]);
    assert_eq!(fs::read(&path).expect("the file"), b"mine");
    let document = stdout(&success(&mut rml(&["synth", "tiny", text(&path), "--force", "--json"])));
    let document: serde_json::Value = serde_json::from_str(&document).expect("a document");
    assert_eq!(document["bytes"], fs::metadata(&path).expect("the file").len());
    assert_eq!(document["matrices"], serde_json::json!({"q4_0": 15, "q6_k": 1}), "two layers of seven, embedding, head");
    failure(&mut rml(&["synth", "tiny", text(folder.path()), "--force"]), 2, &["is a folder"]);
    failure(&mut rml(&["synth", "tiny", "/nonexistent/x.gguf"]), 1, &["/nonexistent/x.gguf", "cannot write"]);
    failure(&mut rml(&["synth", "huge", text(&path)]), 2, &["huge", "smollm2-135m, llama-1b, llama-8b"]);
    failure(&mut rml(&["synth", "tiny", text(&path), "--format", "q9"]), 2, &["q9", "q4_0", "bf16"]);
}
