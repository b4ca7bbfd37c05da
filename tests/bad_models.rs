//! Models that are whole files and yet wrong: each gives one clear line at load, or at the first token, and none a panic.
//!
//! They are copies of a fixture with something changed. What is wrong with files as files is tested in `tests/gguf`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rml::decode::{KvType, Rows, State};
use rml::generate::{Session, SessionOptions};
use rml::model::gguf::{Array, Gguf, TensorType, Value, Writer};
use rml::model::registry;
use rml::text::Encode;
use rml::{Error, LoadOptions, Model};

/// GGUF's numbers of tensor types.
const F32: u32 = 0;
const F16: u32 = 1;
const Q8_0: u32 = 8;
const Q8_K: u32 = 15;

/// A model in parts.
struct Draft {
    keys: Vec<(String, Value)>,
    tensors: Vec<(String, u32, Vec<usize>, Vec<u8>)>,
}

impl Draft {
    /// The fixture of 2 layers, width 32, 2 heads of 16 that share keys and values, feed-forward 48, 269 tokens, all F32.
    fn of_fixture() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/f32.gguf");
        let file = Gguf::open(&path).expect("the fixture");
        Draft {
            keys: file.metadata().iter().map(|(key, value)| (key.to_owned(), value.clone())).collect(),
            tensors: file.tensors().iter().map(|t| (t.name.clone(), t.kind.0, t.shape.clone(), file.bytes(t).to_vec())).collect(),
        }
    }

    fn set(&mut self, key: &str, value: Value) {
        self.unset(key);
        self.keys.push((key.to_owned(), value));
    }

    fn unset(&mut self, key: &str) {
        self.keys.retain(|(k, _)| k != key);
    }

    fn remove(&mut self, name: &str) {
        self.tensors.retain(|(n, ..)| n != name);
    }

    /// A tensor in place of the one of this name.
    fn tensor(&mut self, name: &str, kind: u32, shape: &[usize], bytes: Vec<u8>) {
        self.remove(name);
        self.tensors.push((name.to_owned(), kind, shape.to_vec(), bytes));
    }

    /// Writes a number over an F32 weight.
    fn poke(&mut self, name: &str, at: usize, x: f32) {
        let (.., bytes) = self.tensors.iter_mut().find(|(n, ..)| n == name).expect("a tensor of the fixture");
        bytes[4 * at..][..4].copy_from_slice(&x.to_le_bytes());
    }

    fn write(&self, name: &str) -> PathBuf {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bad-{name}.gguf"));
        let mut writer = Writer::new();
        self.keys.iter().for_each(|(key, value)| writer.set(key, value.clone()));
        for (name, kind, shape, _) in &self.tensors {
            writer.tensor(name, TensorType(*kind), shape).expect("a possible tensor");
        }
        let mut out = std::fs::File::create(&path).expect("a file");
        let filled = writer.write(&path, &mut out, |i, bytes| {
            bytes.extend_from_slice(&self.tensors[i].3);
            Ok(())
        });
        filled.expect("as many bytes as the tensor has");
        path
    }

    fn load(&self, name: &str) -> rml::Result<Model> {
        self.load_on(name, "auto", 2)
    }

    fn load_on(&self, name: &str, backend: &str, threads: usize) -> rml::Result<Model> {
        let options = LoadOptions { backend: Some(backend.to_owned()), threads, ..LoadOptions::default() };
        Model::load(&self.write(name), &options)
    }
}

/// The fixture with one change.
fn changed(change: impl FnOnce(&mut Draft)) -> Draft {
    let mut draft = Draft::of_fixture();
    change(&mut draft);
    draft
}

fn texts(x: &[&str]) -> Value {
    Value::Array(Array::Strings(x.iter().copied().collect()))
}

fn one_line(error: &Error) -> String {
    let line = error.to_string();
    assert!(!line.contains(char::is_control), "{line:?} is one line");
    line
}

#[test]
fn the_copy_of_the_fixture_loads() {
    Draft::of_fixture().load("copy").expect("an unchanged copy");
}

#[test]
fn each_fault_is_named_at_load() {
    type Change = fn(&mut Draft);
    let faults: [(&str, Change, &str); 17] = [
        ("no-q", |d| d.remove("blk.0.attn_q.weight"), "tensor blk.0.attn_q.weight is missing"),
        ("no-norm", |d| d.remove("output_norm.weight"), "tensor output_norm.weight is missing"),
        ("no-tensors", |d| d.tensors.clear(), "holds only a vocabulary, no weights"),
        (
            "wide-k",
            |d| d.tensor("blk.1.attn_k.weight", F32, &[32, 32], vec![0; 4096]),
            "tensor blk.1.attn_k.weight has the shape [32, 32], but the metadata asks for [32, 16]",
        ),
        ("flat-embedding", |d| d.tensor("token_embd.weight", F32, &[32], vec![0; 128]), "token_embd.weight has the shape [32]"),
        ("norm", |d| d.tensor("blk.0.attn_q_norm.weight", F32, &[16], vec![0; 64]), "tensor blk.0.attn_q_norm.weight has no place"),
        (
            "q8_k",
            |d| {
                d.set("llama.feed_forward_length", Value::U32(256));
                for i in 0..2 {
                    d.tensor(&format!("blk.{i}.ffn_gate.weight"), F32, &[32, 256], vec![0; 32768]);
                    d.tensor(&format!("blk.{i}.ffn_up.weight"), F32, &[32, 256], vec![0; 32768]);
                    d.tensor(&format!("blk.{i}.ffn_down.weight"), Q8_K, &[256, 32], vec![0; 32 * 292]);
                }
            },
            "tensor blk.0.ffn_down.weight is stored as q8_k, a type for activations",
        ),
        ("architecture", |d| d.set("general.architecture", Value::String("mamba".into())), "architecture \"mamba\" is not supported"),
        ("layers", |d| d.set("llama.block_count", Value::U32(1 << 24)), "tensor blk.2.attn_norm.weight is missing"),
        (
            "large-vocabulary",
            |d| d.tensor("token_embd.weight", F32, &[32, 268], vec![0; 32 * 268 * 4]),
            "the vocabulary has 269 tokens, but token_embd.weight has only 268 rows",
        ),
        ("no-tokenizer", |d| d.unset("tokenizer.ggml.model"), "metadata tokenizer.ggml.model is missing"),
        ("tokenizer", |d| d.set("tokenizer.ggml.model", Value::String("rwkv".into())), "tokenizer model \"rwkv\" is not supported"),
        ("no-tokens", |d| d.set("tokenizer.ggml.tokens", texts(&[])), "metadata tokenizer.ggml.tokens"),
        ("types", |d| d.set("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; 3]))), "metadata tokenizer.ggml.token_type"),
        ("merge", |d| d.set("tokenizer.ggml.merges", texts(&["th e", "in"])), "metadata tokenizer.ggml.merges entry 1 is \"in\""),
        ("merge-of-nothing", |d| d.set("tokenizer.ggml.merges", texts(&["e qqq"])), "qqq"),
        ("eos", |d| d.set("tokenizer.ggml.eos_token_id", Value::U32(269)), "metadata tokenizer.ggml.eos_token_id is 269"),
    ];
    let mut unclear = Vec::new();
    for (name, change, said) in faults {
        let line = match changed(change).load(name) {
            Ok(_) => format!("{name} was loaded without complaint"),
            Err(error) => one_line(&error),
        };
        if !line.contains(said) {
            unclear.push(format!("{line}\nshould say: {said}"));
        }
    }
    assert!(unclear.is_empty(), "{unclear:#?}");
}

/// Weights that are no numbers: the model loads, whatever backend, and the first token is an error that says where.
#[test]
fn weights_that_are_no_numbers_are_an_error_not_a_token() {
    let spoiled: [(&str, &str, f32); 7] = [
        ("nan-embedding", "token_embd.weight", f32::NAN),
        ("nan-norm", "blk.0.attn_norm.weight", f32::NAN),
        ("infinite-norm", "output_norm.weight", f32::INFINITY),
        ("nan-q", "blk.0.attn_q.weight", f32::NAN),
        ("nan-v", "blk.1.attn_v.weight", f32::NAN),
        ("infinite-down", "blk.1.ffn_down.weight", f32::NEG_INFINITY),
        ("huge-v", "blk.0.attn_v.weight", f32::MAX),
    ];
    for (name, tensor, x) in spoiled {
        let draft = changed(|d| (0..16).for_each(|i| d.poke(tensor, i, x)));
        let model = Arc::new(draft.load(name).expect("it is a whole file"));
        let mut session = Session::new(&model, SessionOptions { context_size: 64, ..SessionOptions::default() }).expect("a session");
        for prompt in [&[0, 7, 9][..], &[5, 0, 7]] {
            let error = session.generate(prompt, 4, |_| ControlFlow::Continue(())).expect_err(name);
            assert!(matches!(error, Error::Forward { position: 2, .. }), "{name}: {error}");
            one_line(&error);
        }
    }
}

/// Blocks whose scale is no number reach the quantized kernels.
#[test]
fn scales_that_are_no_numbers_are_an_error_not_a_token() {
    let draft = changed(|d| {
        let block = [&0x7e00_u16.to_le_bytes()[..], &[1; 32]].concat(); // NaN in half precision
        d.tensor("blk.0.attn_q.weight", Q8_0, &[32, 32], block.repeat(32));
    });
    for backend in runnable() {
        let model = Arc::new(draft.load_on(&format!("nan-scale-{backend}"), backend, 2).expect("it is a whole file"));
        let mut session = Session::new(&model, SessionOptions { context_size: 64, ..SessionOptions::default() }).expect("a session");
        let error = session.generate(&[5, 6, 7], 4, |_| ControlFlow::Continue(())).expect_err(backend);
        assert!(matches!(error, Error::Forward { position: 2, .. }), "{backend}: {error}");
    }
}

#[test]
fn a_context_of_one_runs_one_token() {
    let draft = changed(|d| d.set("llama.context_length", Value::U32(1)));
    let model = Arc::new(draft.load("context-1").expect("a legal model"));
    let mut session = Session::new(&model, SessionOptions { context_size: 1, ..SessionOptions::default() }).expect("a session");
    let mut reply = Vec::new();
    session
        .generate(&[5], 10, |id| {
            reply.push(id);
            ControlFlow::Continue(())
        })
        .expect("one token");
    assert_eq!(reply.len(), 1, "the cache is full after the prompt");
    let error = session.generate(&[5, 6], 10, |_| ControlFlow::Continue(())).expect_err("two tokens");
    assert!(matches!(error, Error::OutOfRange { .. }) && one_line(&error).contains("2 tokens are more than the context of 1"), "{error}");
}

#[test]
fn contexts_that_no_memory_holds_are_refused() {
    let model = Arc::new(Draft::of_fixture().load("large-context").expect("the fixture"));
    for context_size in [0, 1 << 44, usize::MAX / 2, usize::MAX - 15, usize::MAX] {
        let options = SessionOptions { context_size, ..SessionOptions::default() };
        let error = Session::new(&model, options).expect_err("no machine has that memory");
        assert!(one_line(&error).contains("context size"), "{error}");
    }
}

#[test]
fn ids_beyond_the_vocabulary_are_refused_or_have_no_text() {
    // The embedding may be padded: 3 rows more than tokens.
    let draft = changed(|d| {
        let (.., mut rows) = d.tensors.iter().find(|(n, ..)| n == "token_embd.weight").expect("the embedding").clone();
        rows.resize(272 * 32 * 4, 0);
        d.tensor("token_embd.weight", F32, &[32, 272], rows);
    });
    let model = draft.load("padded").expect("a legal model");
    assert_eq!((model.config().n_vocab, model.tokenizer().vocab_size()), (272, 269));
    assert_eq!(model.tokenizer().decode(&[271, 272, u32::MAX], true), "");
    let mut state = State::new(&model, KvType::F16, 8).expect("a state");
    assert!(state.forward(&model, &[271], Rows::Last).is_ok());
    let error = state.forward(&model, &[1, 272], Rows::Last).expect_err("an id beyond the embedding");
    assert!(one_line(&error).contains("272"), "{error}");
    assert_eq!(state.cache().len(), 1, "a refused pass leaves the cache as it was");
}

#[test]
fn a_template_that_does_not_compile_does_not_keep_the_model_from_loading() {
    changed(|d| d.set("tokenizer.chat_template", Value::String("{% if %}".into()))).load("template").expect("a model without a template");
    changed(|d| d.unset("tokenizer.chat_template")).load("no-template").expect("a model without a template");
}

#[test]
fn a_file_without_merges_or_with_an_unknown_pretokenizer_says_so() {
    let model = changed(|d| d.set("tokenizer.ggml.pre", Value::String("martian".into()))).load("pre").expect("a model");
    assert!(model.tokenizer().warnings().iter().any(|w| w.contains("martian")), "{:?}", model.tokenizer().warnings());
    let model = changed(|d| d.set("tokenizer.ggml.merges", texts(&[]))).load("no-merges").expect("a model");
    let ids = model.tokenizer().encode("the", Encode { add_special: false, parse_special: false }).expect("bytes");
    assert_eq!(ids.len(), 3, "one a byte");
}

/// Names of the backends that run here and promise the bits of `ref`.
fn runnable() -> Vec<&'static str> {
    let registry = registry().expect("a registry");
    let exact = |name: &&str| registry.table_of(name).is_ok_and(|table| table.inexact().next().is_none());
    registry.backends().iter().map(|r| r.backend.name()).filter(exact).collect()
}

/// Width, feed-forward width, layers, heads, key-value heads, width of a head and how much of it is rotated.
type Shape = [usize; 7];

/// A model of any legal shape, with weights from a small generator.
fn of_shape([d, ff, layers, heads, kv, d_head, rot]: Shape, kind: u32, seed: u64) -> Draft {
    let mut rng = rml::generate::sampler::SplitMix64::new(seed);
    let mut weights = |n: usize, kind: u32| -> Vec<u8> {
        let mut numbers = (0..n).map(|_| (rng.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0);
        match kind {
            F32 => numbers.by_ref().flat_map(f32::to_le_bytes).collect(),
            F16 => numbers.by_ref().flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
            _ => (0..n / 32)
                .flat_map(|_| {
                    let q: Vec<u8> = numbers.by_ref().take(32).map(|x| (x * 127.0) as i8 as u8).collect();
                    [&half::f16::from_f32(0.01).to_le_bytes()[..], &q].concat()
                })
                .collect(),
        }
    };
    changed(|draft| {
        draft.tensors.clear();
        for (key, n) in [
            ("embedding_length", d),
            ("feed_forward_length", ff),
            ("block_count", layers),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv),
            ("attention.key_length", d_head),
            ("attention.value_length", d_head),
            ("rope.dimension_count", rot),
        ] {
            draft.set(&format!("llama.{key}"), Value::U32(n as u32));
        }
        // A row that is no whole number of blocks is stored as F32, as every quantizer does.
        let mut add = |name: String, k: usize, n: usize| {
            let kind = if k.is_multiple_of(32) { kind } else { F32 };
            let bytes = weights(k * n, kind);
            draft.tensor(&name, kind, &[k, n], bytes);
        };
        add("token_embd.weight".into(), d, 269);
        for i in 0..layers {
            for (role, k, n) in [
                ("attn_q", d, heads * d_head),
                ("attn_k", d, kv * d_head),
                ("attn_v", d, kv * d_head),
                ("attn_output", heads * d_head, d),
                ("ffn_gate", d, ff),
                ("ffn_up", d, ff),
                ("ffn_down", ff, d),
            ] {
                add(format!("blk.{i}.{role}.weight"), k, n);
            }
        }
        let ones: Vec<u8> = (0..d).flat_map(|_| 1_f32.to_le_bytes()).collect();
        draft.tensor("output_norm.weight", F32, &[d], ones.clone());
        for i in 0..layers {
            draft.tensor(&format!("blk.{i}.attn_norm.weight"), F32, &[d], ones.clone());
            draft.tensor(&format!("blk.{i}.ffn_norm.weight"), F32, &[d], ones.clone());
        }
    })
}

/// Shapes that no real model has but that are legal: every backend takes them or leaves them to the reference.
#[test]
fn odd_shapes_give_the_same_bits_on_every_backend() {
    let shapes: [Shape; 10] = [
        [2, 1, 1, 1, 1, 2, 2],
        [1, 1, 1, 1, 1, 2, 2],
        [3, 5, 2, 3, 1, 6, 4],
        [7, 11, 1, 5, 5, 3, 2],
        [32, 33, 2, 4, 2, 8, 8],
        [33, 32, 1, 2, 1, 16, 16],
        [64, 96, 1, 6, 3, 10, 6],
        [96, 64, 1, 3, 1, 128, 128],
        [160, 224, 1, 16, 1, 4, 4],
        [32, 32, 1, 1, 1, 512, 64],
    ];
    let tokens: Vec<u32> = (0..40).map(|i| i * 37 % 269).collect();
    for (i, shape) in shapes.into_iter().enumerate() {
        for kind in [F32, F16, Q8_0] {
            let draft = of_shape(shape, kind, i as u64);
            let mut expected: Option<Vec<u32>> = None;
            for (backend, threads) in runnable().into_iter().chain(["auto"]).flat_map(|b| [(b, 1), (b, 3)]) {
                let case = format!("shape-{i}-{kind}-{backend}-{threads}");
                let model = draft.load_on(&case, backend, threads).unwrap_or_else(|e| panic!("{case}: {e}"));
                let mut state = State::new(&model, KvType::F32, tokens.len()).expect("a state");
                let mut bits = Vec::new();
                for piece in [&tokens[..1], &tokens[1..3], &tokens[3..]] {
                    bits.extend(state.forward(&model, piece, Rows::All).expect("a pass").iter().map(|x| x.to_bits()));
                }
                assert!(bits.iter().all(|&x| f32::from_bits(x).is_finite()), "{case}");
                let expected = expected.get_or_insert_with(|| bits.clone());
                assert!(*expected == bits, "{case} differs from ref with one thread");
            }
        }
    }
}
