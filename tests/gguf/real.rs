//! Files of the world, against what the Python package `gguf` 0.19.0 reads from them.

use std::io::Write;
use std::path::{Path, PathBuf};

use rml::fetch::{DEFAULT_MODEL, Fetcher};
use rml::model::gguf::{Gguf, OpenOptions, TensorType};
use rml::model::{Config, RopeStyle, Tensors};

fn vocabulary(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/vocab").join(format!("ggml-vocab-{name}.gguf"));
    if !path.exists() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {} is not there", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn vocabularies_open_and_read_as_the_python_package_reads_them() {
    // Name, architecture, entries (less the three that the package counts for the header), tokens, merges, BOS.
    let expected = [
        ("deepseek-coder", "llama", 25, 32256, Some(31757), 32013),
        ("gpt-2", "gpt2", 16, 50257, Some(50000), 50256),
        ("llama-bpe", "llama", 20, 128256, Some(280147), 128000),
        ("llama-spm", "llama", 22, 32000, None, 1),
        ("phi-3", "phi3", 26, 32064, None, 1),
        ("qwen2", "qwen2", 20, 151936, Some(151387), 151643),
    ];
    for (name, architecture, n_entries, n_tokens, n_merges, bos) in expected {
        let Some(path) = vocabulary(name) else { continue };
        for mmap in [true, false] {
            let file = Gguf::open_with(&path, &OpenOptions { mmap }).unwrap();
            let meta = file.metadata();
            assert_eq!((file.version(), file.tensors().len(), file.notes().len()), (Some(3), 0, 0), "{name}");
            assert_eq!(meta.str("general.architecture").unwrap(), Some(architecture));
            assert_eq!(meta.len(), n_entries, "{name}");
            assert_eq!(meta.strings("tokenizer.ggml.tokens").unwrap().unwrap().len(), n_tokens, "{name}");
            assert_eq!(meta.i32s("tokenizer.ggml.token_type").unwrap().unwrap().len(), n_tokens, "{name}");
            assert_eq!(meta.strings("tokenizer.ggml.merges").unwrap().map(|m| m.len()), n_merges, "{name}");
            assert_eq!(meta.u32("tokenizer.ggml.bos_token_id").unwrap(), Some(bos), "{name}");
        }
    }
}

#[test]
fn a_vocabulary_has_a_configuration_but_no_weights() {
    let Some(path) = vocabulary("deepseek-coder") else { return };
    let file = Gguf::open(&path).unwrap();
    let config = Config::from_gguf(&file).unwrap();
    assert_eq!((config.n_layers, config.d_model, config.d_ff, config.n_vocab), (32, 4096, 11008, 32256));
    assert_eq!((config.rope.base, config.rope.linear, config.rms_eps), (100_000.0, 4.0, 1e-6));
    let error = Tensors::new(&file, &config).unwrap_err().to_string();
    assert!(error.contains("only a vocabulary"), "{error}");
}

#[test]
fn the_real_model_opens_with_every_tensor() {
    let fetched = || Fetcher::from_env().and_then(|fetcher| fetcher.resolve(DEFAULT_MODEL));
    let path = match std::env::var_os("RML_TEST_MODEL").map_or_else(fetched, |path| Ok(path.into())) {
        Ok(path) => path,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {}", e.to_string().replace('\n', "; "));
            return;
        }
    };
    let file = Gguf::open(&path).unwrap();
    assert_eq!((file.file_bytes(), file.metadata().len(), file.tensors().len()), (98_362_432, 33, 272));
    let seen: Vec<_> = file.tensors()[..5].iter().map(|t| (t.name.as_str(), t.kind, t.shape.as_slice(), t.offset, t.bytes)).collect();
    let (f32, q4_1, q8_0) = (TensorType(0), TensorType(3), TensorType(8));
    assert_eq!(
        seen,
        [
            ("token_embd.weight", q8_0, &[576, 49152][..], 1_785_664, 30_081_024),
            ("blk.0.attn_norm.weight", f32, &[576], 31_866_688, 2304),
            ("blk.0.ffn_down.weight", q4_1, &[1536, 576], 31_868_992, 552_960),
            ("blk.0.ffn_gate.weight", q4_1, &[576, 1536], 32_421_952, 552_960),
            ("blk.0.ffn_up.weight", q4_1, &[576, 1536], 32_974_912, 552_960),
        ]
    );
    let config = Config::from_gguf(&file).unwrap();
    assert_eq!((config.n_layers, config.d_model, config.n_heads, config.n_kv_heads, config.d_head), (30, 576, 9, 3, 64));
    assert_eq!((config.d_ff, config.n_vocab, config.context_length, &config.window), (1536, 49152, 8192, &None));
    assert_eq!((config.rms_eps, config.rope.base, config.rope.n_rot, config.rope.linear), (1e-5, 100_000.0, 64, 1.0));
    assert_eq!((config.rope.style, config.rope.factors.len()), (RopeStyle::Pairs, 0));
    let tensors = Tensors::new(&file, &config).unwrap();
    assert_eq!(tensors.layers.len(), 30);
    assert!(tensors.output.is_none(), "the head is tied");
    assert!(file.bytes(tensors.token_embd).as_ptr().align_offset(32) == 0);
}
