//! Reasoning before an answer, on a pseudo-terminal and through a pipe: with a model that says what it was made to say.

use std::fs::File;
use std::path::{Path, PathBuf};

use rexpect::session::spawn_command;
use rml::model::gguf::{Array, Gguf, TensorType, Value, Writer};
use rml_kernels_ref::format::Format;

use crate::{model, plain_program, program, stdout, success};

/// What follows the end of a prompt, token by token; the last ends the reply.
const SCRIPT: [&str; 5] = ["<think>", "secret", "</think>", "Yes.", "<|im_end|>"];

/// Byte-level encoding's spelling of a newline, with which the prompts of ChatML end.
const NEWLINE: &str = "Ċ";

/// A model whose next token depends on the last alone: each row of the embedding has one number, no layer adds anything, and the
/// head has that number in the row of what follows.
fn scripted_model(folder: &Path) -> PathBuf {
    const WIDTH: usize = 288;
    let original = Gguf::open(&model()).expect("the tiny model");
    let mut tokens: Vec<String> =
        original.metadata().strings("tokenizer.ggml.tokens").expect("texts").expect("tokens").iter().map(str::to_owned).collect();
    let mut kinds = original.metadata().i32s("tokenizer.ggml.token_type").expect("numbers").expect("types").to_vec();
    for piece in &SCRIPT[..SCRIPT.len() - 1] {
        tokens.push((*piece).to_owned());
        kinds.push(1);
    }
    let id = |piece: &str| tokens.iter().position(|t| t == piece).expect("a token");
    let follows: Vec<(usize, usize)> = [NEWLINE].iter().chain(&SCRIPT).zip(&SCRIPT).map(|(a, b)| (id(a), id(b))).collect();
    let n = tokens.len();
    assert!(n < WIDTH);

    let mut writer = Writer::new();
    for (key, value) in original.metadata().iter().filter(|(key, _)| !key.starts_with("llama.rope")) {
        writer.set(key, value.clone());
    }
    for (key, size) in [
        ("embedding_length", WIDTH),
        ("block_count", 1),
        ("feed_forward_length", 32),
        ("attention.head_count", 9),
        ("attention.head_count_kv", 9),
        ("rope.dimension_count", 32),
        ("vocab_size", n),
    ] {
        writer.set(&format!("llama.{key}"), Value::U32(size as u32));
    }
    writer.set("tokenizer.ggml.tokens", Value::Array(Array::Strings(tokens.iter().map(String::as_str).collect())));
    writer.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    let one_in_row = |rows: &[(usize, usize)]| {
        let mut weights = vec![0.0_f32; WIDTH * n];
        rows.iter().for_each(|(row, at)| weights[row * WIDTH + at] = 1.0);
        weights
    };
    let each: Vec<(usize, usize)> = (0..n).map(|i| (i, i)).collect();
    let next: Vec<(usize, usize)> = follows.iter().map(|(a, b)| (*b, *a)).collect();
    let square = vec![WIDTH, WIDTH];
    let tensors: Vec<(&str, Vec<usize>, Vec<f32>)> = vec![
        ("token_embd.weight", vec![WIDTH, n], one_in_row(&each)),
        ("output.weight", vec![WIDTH, n], one_in_row(&next)),
        ("output_norm.weight", vec![WIDTH], vec![1.0; WIDTH]),
        ("blk.0.attn_norm.weight", vec![WIDTH], vec![1.0; WIDTH]),
        ("blk.0.ffn_norm.weight", vec![WIDTH], vec![1.0; WIDTH]),
        ("blk.0.attn_q.weight", square.clone(), vec![0.0; WIDTH * WIDTH]),
        ("blk.0.attn_k.weight", square.clone(), vec![0.0; WIDTH * WIDTH]),
        ("blk.0.attn_v.weight", square.clone(), vec![0.0; WIDTH * WIDTH]),
        ("blk.0.attn_output.weight", square, vec![0.0; WIDTH * WIDTH]),
        ("blk.0.ffn_gate.weight", vec![WIDTH, 32], vec![0.0; WIDTH * 32]),
        ("blk.0.ffn_up.weight", vec![WIDTH, 32], vec![0.0; WIDTH * 32]),
        ("blk.0.ffn_down.weight", vec![32, WIDTH], vec![0.0; WIDTH * 32]),
    ];
    for (name, shape, _) in &tensors {
        writer.tensor(name, TensorType::from(Format::F32), shape).expect("a sound tensor");
    }
    let path = folder.join("scripted.gguf");
    let bytes = |i: usize, out: &mut Vec<u8>| {
        out.extend(tensors[i].2.iter().flat_map(|x| x.to_le_bytes()));
        Ok(())
    };
    writer.write(&path, &mut File::create(&path).expect("a new file"), bytes).expect("a written file");
    path
}

/// What a reply looks like on a terminal.
fn on_a_terminal(model: &Path, thinking: &str) -> String {
    let mut command = plain_program("rml-chat");
    command.env("TERM", "xterm").arg(model).args(["--threads", "1", "--temp", "0", "-p", "hi", "--thinking", thinking]);
    spawn_command(command, Some(120_000)).expect("a terminal").exp_eof().expect("a reply")
}

#[test]
fn reasoning_is_dim_on_a_terminal_or_hidden_or_as_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = scripted_model(folder.path());
    let dim = on_a_terminal(&model, "dim");
    for part in ["<think>", "secret", "</think>"] {
        assert!(dim.contains(&format!("\x1b[2m{part}\x1b[22m")), "{dim:?}");
    }
    assert!(dim.contains("\x1b[22mYes.\r\n") && dim.matches("\x1b[").count() == 6, "the answer is not dim: {dim:?}");
    let hidden = on_a_terminal(&model, "hide");
    assert!(hidden.contains("Yes.") && !hidden.contains("secret") && !hidden.contains("think>") && !hidden.contains('\x1b'), "{hidden:?}");
    let shown = on_a_terminal(&model, "show");
    assert!(shown.contains("<think>secret</think>Yes.\r\n") && !shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn reasoning_has_no_colour_in_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = scripted_model(folder.path());
    for (thinking, said) in [("dim", "<think>secret</think>Yes.\n"), ("show", "<think>secret</think>Yes.\n"), ("hide", "Yes.\n")] {
        let mut command = program("rml-chat");
        command.arg(&model).args(["--threads", "1", "--temp", "0", "-p", "hi", "--thinking", thinking]);
        assert_eq!(stdout(&success(&mut command)), said, "{thinking}");
    }
}
