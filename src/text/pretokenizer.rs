//! How text is cut into words before byte-level encoding: the regular expressions of each `tokenizer.ggml.pre`.
//!
//! Source: the `tokenizer.json` of the model that gave each its name, and `llama-vocab.cpp` of llama.cpp.

/// One way of cutting.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    /// Values of `tokenizer.ggml.pre`.
    pub(super) names: &'static [&'static str],
    /// Applied in order; each match becomes a piece, and so does what is between matches.
    pub(super) patterns: &'static [&'static str],
    /// A word that is a token is taken whole, whatever the merges.
    pub(super) whole_words: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const PRE_TOKENIZERS: [PreTokenizer; 5] = [
    PreTokenizer { names: &["gpt-2", "gpt2"], patterns: &[GPT2], whole_words: false },
    PreTokenizer { names: &["llama-bpe", "llama3", "llama-v3"], patterns: &[LLAMA3], whole_words: true },
    PreTokenizer { names: &["qwen2", "deepseek-r1-qwen"], patterns: &[QWEN2], whole_words: false },
    PreTokenizer { names: &["smollm"], patterns: &[r"\p{N}", GPT2], whole_words: false },
    PreTokenizer {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
        whole_words: false,
    },
];

/// The pre-tokenizer of this name, and a warning where the name is absent or unknown and GPT-2's stands in.
pub(super) fn pre_tokenizer(name: Option<&str>) -> (&'static PreTokenizer, Option<String>) {
    let found = name.and_then(|name| PRE_TOKENIZERS.iter().find(|p| p.names.contains(&name)));
    let warning = match (found, name) {
        (Some(_), _) => None,
        (None, Some(name)) => Some(format!(
            "the file's pre-tokenizer {name:?} (tokenizer.ggml.pre) is unknown; text is cut as for gpt-2, so tokens and answers may be wrong"
        )),
        (None, None) => Some(
            "the file names no pre-tokenizer (tokenizer.ggml.pre); text is cut as for gpt-2, so tokens and answers may be wrong; \
             convert the model anew to be sure"
                .to_owned(),
        ),
    };
    (found.unwrap_or(&PRE_TOKENIZERS[0]), warning)
}
