//! The configuration and the roles of tensors, read from a small model that is changed in one thing at a time.

use rml::Error;
use rml::model::gguf::{Array, TensorType, Value, Writer};
use rml::model::{Config, RopeStyle, Tensors};

use crate::read;

/// One difference from the small model.
pub(crate) enum Change {
    /// Another value; a key without a dot at its front gets `llama.`.
    Set(&'static str, Value),
    /// No such key.
    Unset(&'static str),
    /// Another type and shape of a tensor, or a tensor more.
    Tensor(&'static str, u32, &'static [usize]),
    /// A tensor with this in place of ones.
    Fill(&'static str, &'static [usize], f32),
    /// No such tensor.
    Remove(&'static str),
}

use Change::{Fill, Remove, Set, Tensor, Unset};

/// A file of 2 layers, width 8, 4 heads of 6 that share 2 key-value heads, 16 tokens; all weights are 1.
pub(crate) fn tiny(changes: &[Change]) -> Vec<u8> {
    let mut keys: Vec<(String, Value)> = vec![("general.architecture".into(), Value::String("llama".into()))];
    for (key, value) in [
        ("block_count", Value::U32(2)),
        ("context_length", Value::U32(64)),
        ("embedding_length", Value::U32(8)),
        ("feed_forward_length", Value::U32(12)),
        ("attention.head_count", Value::U32(4)),
        ("attention.head_count_kv", Value::U32(2)),
        ("attention.key_length", Value::U32(6)),
        ("attention.value_length", Value::U32(6)),
        ("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("rope.dimension_count", Value::U32(4)),
        ("rope.freq_base", Value::F32(5e5)),
    ] {
        keys.push((format!("llama.{key}"), value));
    }
    let mut tensors: Vec<(String, u32, Vec<usize>, f32)> = Vec::new();
    tensors.push(("token_embd.weight".into(), 0, vec![8, 16], 1.0));
    tensors.push(("output_norm.weight".into(), 0, vec![8], 1.0));
    for i in 0..2 {
        for (role, shape) in [
            ("attn_norm", &[8][..]),
            ("attn_q", &[8, 24]),
            ("attn_k", &[8, 12]),
            ("attn_v", &[8, 12]),
            ("attn_output", &[24, 8]),
            ("ffn_norm", &[8]),
            ("ffn_gate", &[8, 12]),
            ("ffn_up", &[8, 12]),
            ("ffn_down", &[12, 8]),
        ] {
            tensors.push((format!("blk.{i}.{role}.weight"), 0, shape.to_vec(), 1.0));
        }
    }
    let full = |key: &str| if key.contains("general.") || key.contains("tokenizer.") { key.to_owned() } else { format!("llama.{key}") };
    let mut put = |name: &str, kind, shape: &[usize], fill| {
        tensors.retain(|t| t.0 != name);
        tensors.push((name.to_owned(), kind, shape.to_vec(), fill));
    };
    for change in changes {
        match change {
            Set(key, value) => {
                keys.retain(|(k, _)| *k != full(key));
                keys.push((full(key), value.clone()));
            }
            Unset(key) => keys.retain(|(k, _)| *k != full(key)),
            Tensor(name, kind, shape) => put(name, *kind, shape, 1.0),
            Fill(name, shape, fill) => put(name, 0, shape, *fill),
            Remove(_) => {}
        }
    }
    tensors.retain(|t| !changes.iter().any(|change| matches!(change, Remove(name) if *name == t.0)));
    let mut writer = Writer::new();
    keys.into_iter().for_each(|(key, value)| writer.set(&key, value));
    let mut n_bytes = Vec::new();
    for (name, kind, shape, _) in &tensors {
        writer.tensor(name, TensorType(*kind), shape).unwrap();
        let (block_len, block_bytes) = TensorType(*kind).block().unwrap();
        n_bytes.push(shape.iter().product::<usize>() / block_len * block_bytes);
    }
    let mut bytes = Vec::new();
    let fill = |i: usize, out: &mut Vec<u8>| {
        out.extend(tensors[i].3.to_le_bytes().iter().cycle().take(n_bytes[i]));
        Ok(())
    };
    writer.write("test.gguf".as_ref(), &mut bytes, fill).unwrap();
    bytes
}

fn load(changes: &[Change]) -> rml::Result<Config> {
    let file = read(&tiny(changes))?;
    let config = Config::from_gguf(&file)?;
    Tensors::new(&file, &config)?;
    Ok(config)
}

#[test]
fn the_small_model_is_read() {
    let file = read(&tiny(&[])).unwrap();
    let config = Config::from_gguf(&file).unwrap();
    assert_eq!((config.n_layers, config.d_model, config.n_heads, config.n_kv_heads, config.d_head), (2, 8, 4, 2, 6));
    assert_eq!((config.d_ff, config.n_vocab, config.context_length, config.group()), (12, 16, 64, 2));
    assert_eq!((config.rope.base, config.rope.n_rot, config.rope.style), (5e5, 4, RopeStyle::Pairs));
    let tensors = Tensors::new(&file, &config).unwrap();
    assert_eq!(tensors.layers[1].attn_output.weight.name, "blk.1.attn_output.weight");
    assert!(tensors.output.is_none());
}

#[test]
fn what_is_absent_has_its_default() {
    let changes = [
        Unset("attention.head_count_kv"),
        Unset("attention.key_length"),
        Unset("attention.value_length"),
        Unset("rope.dimension_count"),
        Unset("rope.freq_base"),
    ];
    let file = read(&tiny(&changes)).unwrap();
    let config = Config::from_gguf(&file).unwrap();
    assert_eq!((config.n_kv_heads, config.d_head, config.rope.n_rot), (4, 2, 2));
    assert_eq!((config.rope.base, config.rope.linear, config.rope.factors.len()), (10_000.0, 1.0, 0));
}

#[test]
fn a_separate_head_is_found() {
    let bytes = tiny(&[Tensor("output.weight", 1, &[8, 16])]);
    let file = read(&bytes).unwrap();
    let config = Config::from_gguf(&file).unwrap();
    assert_eq!(Tensors::new(&file, &config).unwrap().output.unwrap().kind, TensorType(1));
}

#[test]
fn the_vocabulary_may_be_smaller_than_the_embedding() {
    let tokens = |n: usize| Set("tokenizer.ggml.tokens", Value::Array(Array::Strings((0..n).map(|i| i.to_string()).collect())));
    assert_eq!(load(&[tokens(15)]).unwrap().n_vocab, 16);
    let error = load(&[tokens(17)]).unwrap_err().to_string();
    assert!(error.contains("the vocabulary has 17 tokens, but token_embd.weight has only 16 rows"), "{error}");
}

#[test]
fn rotation_is_scaled_as_the_file_says() {
    let text = |s: &str| Value::String(s.into());
    let kind = |s| Set("rope.scaling.type", text(s));
    let factor = || Set("rope.scaling.factor", Value::F32(4.0));
    let linear = |changes: &[Change]| load(changes).unwrap().rope.linear;
    assert_eq!(linear(&[kind("linear"), factor()]), 4.0);
    assert_eq!(linear(&[factor()]), 4.0);
    assert_eq!(linear(&[kind("none"), factor()]), 1.0);
    assert_eq!(linear(&[kind("linear")]), 1.0);
    assert_eq!(linear(&[Set("rope.scale_linear", Value::F32(2.0))]), 2.0);
    assert_eq!(linear(&[Set("rope.scaling.factor", Value::F32(0.0))]), 1.0);

    let rope = load(&[Fill("rope_freqs.weight", &[2], 8.0), factor()]).unwrap().rope;
    assert_eq!(rope.factors, [8.0, 8.0]);
    let plain = load(&[]).unwrap().rope.frequencies(64);
    assert_eq!(plain, [1.0, 5e5_f64.powf(-0.5) as f32]);
    assert_eq!(rope.frequencies(64), plain.iter().map(|f| f / 32.0).collect::<Vec<_>>());
}

#[test]
fn windows_limit_the_layers_that_the_file_names() {
    let layers = |changes: &[Change]| {
        let config = load(changes).unwrap();
        (0..2).map(|i| config.window_of(i).map(|window| window.size)).collect::<Vec<_>>()
    };
    let size = || Set("attention.sliding_window", Value::U32(8));
    let pattern = |value| Set("attention.sliding_window_pattern", value);
    let list = |list: [bool; 2]| pattern(Value::Array(Array::Bool(list.to_vec())));
    assert_eq!(layers(&[]), [None, None]);
    assert_eq!(layers(&[Set("attention.sliding_window", Value::U32(0))]), [None, None]);
    assert_eq!(layers(&[size()]), [Some(8), Some(8)], "as Mistral has it");
    assert_eq!(layers(&[size(), pattern(Value::U32(2))]), [Some(8), None], "the last of two sees all");
    assert_eq!(layers(&[size(), pattern(Value::U32(1))]), [None, None], "the last of one sees all");
    assert_eq!(layers(&[size(), list([true, false])]), [Some(8), None]);
    assert_eq!(layers(&[size(), list([false, true])]), [None, Some(8)]);
    assert_eq!(load(&[size()]).unwrap().rope_of(1), Some(0));
    let base = |base| load(&[size(), Set("rope.freq_base_swa", Value::F32(base))]);
    assert_eq!(base(5e5).unwrap().ropes().count(), 1);
    let error = base(100.0).unwrap_err().to_string();
    assert!(error.contains("llama.rope.freq_base_swa is 100, another base than in other layers"), "{error}");
}

#[test]
fn long_contexts_have_factors_of_their_own() {
    let factors = |name, fill| Fill(name, &[2], fill);
    let changes = [
        factors("rope_factors_short.weight", 2.0),
        factors("rope_factors_long.weight", 8.0),
        Set("rope.scaling.original_context_length", Value::U32(32)),
    ];
    let rope = load(&changes).unwrap().rope;
    let plain = load(&[]).unwrap().rope.frequencies(1);
    for (context, factor) in [(1, 2.0), (32, 2.0), (33, 8.0), (64, 8.0)] {
        assert_eq!(rope.frequencies(context), plain.iter().map(|f| f / factor).collect::<Vec<_>>(), "{context}");
    }
    let error = load(&changes[..2]).unwrap_err().to_string();
    assert!(error.contains("llama.rope.scaling.original_context_length is missing"), "{error}");
}

#[test]
fn each_fault_is_named() {
    let int = Value::U32;
    let layers = || Value::Array(Array::I32(vec![12, 8]));
    for (change, said) in [
        (Unset("general.architecture"), "metadata general.architecture is missing"),
        (Unset("block_count"), "llama.block_count is missing"),
        (Set("block_count", int(0)), "llama.block_count is 0, where 1 to 16777216 are possible"),
        (Set("block_count", int(u32::MAX)), "llama.block_count is 4294967295"),
        (Set("block_count", Value::String("two".into())), "llama.block_count is a text"),
        (Set("block_count", int(3)), "tensor blk.2.attn_norm.weight is missing"),
        (Set("block_count", int(1 << 24)), "tensor blk.2.attn_norm.weight is missing"),
        (Set("block_count", int(1)), "tensor blk.1.attn_norm.weight has no place"),
        (Unset("context_length"), "llama.context_length is missing"),
        (Set("embedding_length", int(16)), "token_embd.weight has the shape [8, 16], but the metadata asks for [16, 16]"),
        (Set("attention.head_count", int(0)), "llama.attention.head_count is 0"),
        (Set("attention.head_count", int(3)), "llama.attention.head_count_kv is 2, which does not divide the 3 heads"),
        (Set("attention.head_count_kv", int(0)), "llama.attention.head_count_kv is 0"),
        (Set("attention.head_count_kv", layers()), "llama.attention.head_count_kv differs from layer to layer"),
        (Set("attention.value_length", int(8)), "llama.attention.value_length differs from the width 6"),
        (Set("feed_forward_length", layers()), "llama.feed_forward_length differs from layer to layer"),
        (Set("feed_forward_length", int(13)), "blk.0.ffn_gate.weight has the shape [8, 12], but the metadata asks for [8, 13]"),
        (Set("rope.dimension_count", int(3)), "llama.rope.dimension_count is 3; it must be even"),
        (Set("rope.dimension_count", int(8)), "llama.rope.dimension_count is 8"),
        (Set("rope.freq_base", Value::F32(0.0)), "llama.rope.freq_base is 0; it must be positive"),
        (Set("rope.freq_base", Value::F32(f32::NAN)), "llama.rope.freq_base is f32 NaN, not a finite number"),
        (Set("rope.scaling.type", Value::String("dynamic".into())), "llama.rope.scaling.type is \"dynamic\", which rml does not run"),
        (Set("rope.scaling.factor", Value::F32(-1.0)), "llama.rope.scaling.factor is -1"),
        (Set("attention.layer_norm_rms_epsilon", Value::F32(0.0)), "layer_norm_rms_epsilon is 0; it must be positive"),
        (Unset("attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon is missing"),
        (Set("expert_count", int(8)), "llama.expert_used_count is missing"),
        (Set("expert_weights_norm", Value::Bool(false)), "llama.expert_weights_norm is false, which rml does not run"),
        (Set("expert_weights_scale", Value::F32(2.5)), "llama.expert_weights_scale is 2.5"),
        (Set("attention.scale", Value::F32(-1.0)), "llama.attention.scale is -1; it must be positive"),
        (Set("attn_logit_softcapping", Value::F32(0.0)), "llama.attn_logit_softcapping is 0; it must be positive"),
        (Remove("token_embd.weight"), "llama.vocab_size is missing"),
        (Remove("output_norm.weight"), "tensor output_norm.weight is missing"),
        (Remove("blk.1.ffn_up.weight"), "tensor blk.1.ffn_up.weight is missing"),
        (Tensor("token_embd.weight", 0, &[8]), "token_embd.weight has the shape [8], where two dimensions"),
        (Tensor("blk.0.attn_q.weight", 0, &[24, 8]), "blk.0.attn_q.weight has the shape [24, 8], but the metadata asks for [8, 24]"),
        (Tensor("blk.0.attn_q.weight", 24, &[8, 24]), "tensor blk.0.attn_q.weight is stored as i8"),
        (Tensor("blk.0.attn_q.bias", 0, &[23]), "tensor blk.0.attn_q.bias has the shape [23], but the metadata asks for [24]"),
        (Tensor("blk.0.attn_q_norm.weight", 0, &[6]), "tensor blk.0.attn_q_norm.weight has no place in architecture llama"),
        (Tensor("rope_factors_long.weight", 0, &[2]), "tensors rope_factors_short.weight and rope_factors_long.weight come together"),
        (Tensor("rope_freqs.weight", 0, &[3]), "rope_freqs.weight has the shape [3] in f32, where [2] in f32 is needed"),
        (Tensor("rope_freqs.weight", 1, &[2]), "rope_freqs.weight has the shape [2] in f16"),
        (Fill("rope_freqs.weight", &[2], 0.0), "rope_freqs.weight holds 0 at 0"),
        (Fill("rope_freqs.weight", &[2], f32::INFINITY), "rope_freqs.weight holds inf at 0"),
    ] {
        let error = load(&[change]).map(|_| ()).expect_err(said).to_string();
        assert!(error.starts_with("test.gguf: ") && error.contains(said), "{error}\nshould say: {said}");
    }
}

#[test]
fn another_architecture_is_named_with_those_that_run() {
    let error = load(&[Set("general.architecture", Value::String("mamba\u{1b}".into()))]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    assert!(error.to_string().contains(r#"architecture "mamba\u{1b}" is not supported; rml runs llama"#), "{error}");
}
