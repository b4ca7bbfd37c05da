//! A vocabulary that tokenizers accept: GPT-2's bytes, a few merges, and words that no text becomes but a model may say.

use crate::model::gguf::{Array, Value, Writer};

const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const MERGES: [&str; 4] = ["Ġ t", "h e", "Ġt he", "i n"];
/// GGUF's numbers of token types.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
/// ChatML.
const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Least size of a vocabulary: special tokens, bytes, merges.
pub(super) const LEAST: usize = SPECIAL.len() + 256 + MERGES.len();

/// Sets `tokenizer.*` for `n` tokens, at least [`LEAST`].
pub(super) fn set_vocabulary(writer: &mut Writer, n: usize) {
    let merged = MERGES.iter().map(|m| m.replace(' ', ""));
    let known = SPECIAL.iter().map(|&s| s.to_owned()).chain(byte_alphabet()).chain(merged);
    let tokens = known.chain((LEAST..n).map(|i| format!("Ġw{i}"))).collect();
    let types = (0..n).map(|i| if i < SPECIAL.len() { CONTROL } else { NORMAL }).collect();
    writer.set("tokenizer.ggml.model", Value::String("gpt2".into()));
    writer.set("tokenizer.ggml.pre", Value::String("gpt-2".into()));
    writer.set("tokenizer.ggml.tokens", Value::Array(Array::Strings(tokens)));
    writer.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    writer.set("tokenizer.ggml.merges", Value::Array(Array::Strings(MERGES.into_iter().collect())));
    writer.set("tokenizer.ggml.bos_token_id", Value::U32(0));
    writer.set("tokenizer.ggml.eos_token_id", Value::U32(2));
    writer.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
    writer.set("tokenizer.chat_template", Value::String(TEMPLATE.into()));
}

/// GPT-2's printable character for each byte: itself if it is one, else the next from 256 on.
fn byte_alphabet() -> impl Iterator<Item = String> {
    let mut next = 256;
    (0..256_u32).map(move |byte| {
        let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if printable {
            byte
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).expect("far below the surrogates").to_string()
    })
}
