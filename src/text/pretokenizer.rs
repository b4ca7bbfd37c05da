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
    /// Text is brought to Unicode's form C first.
    pub(super) nfc: bool,
    /// What the patterns are in `tokenizer.json`, where it is another thing.
    written: Option<&'static [&'static str]>,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const MINICPM5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const DIGITS_3: &str = r"\p{N}{1,3}";
const CJK: &str = r"[一-龥぀-ゟ゠-ヿ]+";
const DEEPSEEK_3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const DEEPSEEK_WORDS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const ONE_DIGIT: &str = r"\p{N}";
const THREE_ASCII_DIGITS: &str = "[0-9][0-9][0-9]";

const PLAIN: PreTokenizer = PreTokenizer { names: &[], patterns: &[], whole_words: false, nfc: false, written: None };

const PRE_TOKENIZERS: [PreTokenizer; 27] = [
    PreTokenizer {
        names: &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "mpt",
            "olmo",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "roberta-bpe",
            "jina-v1-en",
            "jina-v2-code",
            "jina-v2-es",
            "jina-v2-de",
            "jina-es",
            "jina-de",
        ],
        patterns: &[GPT2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        patterns: &[LLAMA3],
        whole_words: true,
        ..PLAIN
    },
    PreTokenizer { names: &["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], patterns: &[LLAMA3], ..PLAIN },
    PreTokenizer { names: &["qwen2"], patterns: &[QWEN2], nfc: true, ..PLAIN },
    PreTokenizer {
        names: &["deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2", "kormo", "f2llmv2"],
        patterns: &[QWEN2],
        ..PLAIN
    },
    PreTokenizer { names: &["qwen35"], patterns: &[QWEN35], nfc: true, ..PLAIN },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        patterns: &[ONE_DIGIT, GPT2],
        ..PLAIN
    },
    PreTokenizer { names: &["command-r"], patterns: &[ONE_DIGIT, GPT2], nfc: true, ..PLAIN },
    PreTokenizer {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", ONE_DIGIT],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        patterns: &[r"[\r\n]", DEEPSEEK_WORDS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}+"],
        ..PLAIN
    },
    PreTokenizer { names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], patterns: &[DIGITS_3, CJK, DEEPSEEK_3], ..PLAIN },
    PreTokenizer {
        names: &["falcon"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE_ASCII_DIGITS],
        written: Some(&["Punctuation", GPT2, r"\p{N}+", THREE_ASCII_DIGITS]),
        ..PLAIN
    },
    PreTokenizer { names: &["default"], patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE_ASCII_DIGITS], ..PLAIN },
    PreTokenizer { names: &["tekken"], patterns: &[TEKKEN], whole_words: true, ..PLAIN },
    PreTokenizer { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], patterns: &[GPT4O], ..PLAIN },
    PreTokenizer { names: &["tiny_aya", "cohere2moe"], patterns: &[r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O], ..PLAIN },
    PreTokenizer { names: &["kimi-k2", "kimi-k25"], patterns: &[KIMI], ..PLAIN },
    PreTokenizer { names: &["bloom", "poro-chat", "gpt3-finnish"], patterns: &[BLOOM], ..PLAIN },
    PreTokenizer { names: &["viking"], patterns: &[BLOOM, ONE_DIGIT], ..PLAIN },
    PreTokenizer { names: &["superbpe"], patterns: &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"], ..PLAIN },
    PreTokenizer { names: &["bailingmoe", "bailingmoe2", "llada-moe"], patterns: &[BAILING], ..PLAIN },
    PreTokenizer { names: &["seed-coder"], patterns: &[SEED], ..PLAIN },
    PreTokenizer { names: &["exaone-moe"], patterns: &[EXAONE_MOE], ..PLAIN },
    PreTokenizer { names: &["minicpm5"], patterns: &[DIGITS_3, MINICPM5], whole_words: true, ..PLAIN },
    PreTokenizer { names: &["laguna"], patterns: &[r"[^\n]+|[\n]+", QWEN2], ..PLAIN },
    PreTokenizer { names: &["ufakzeka"], patterns: &[UFAKZEKA], ..PLAIN },
    PreTokenizer { names: &["jais-2"], patterns: &[JAIS2], ..PLAIN },
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

/// The name of the pre-tokenizer that cuts by these patterns, where `ByteLevel` stands for GPT-2's own, after bringing text to
/// the form `normalizer`, and that takes words whole or not.
pub(crate) fn pre_tokenizer_name(patterns: &[String], normalizer: Option<&str>, whole_words: bool) -> Option<&'static str> {
    let patterns: Vec<&str> = patterns.iter().map(|p| if p == "ByteLevel" { GPT2 } else { p }).collect();
    let nfc = match normalizer {
        None => false,
        Some("NFC") => true,
        Some(_) => return None,
    };
    let same = |p: &&PreTokenizer| *p.written.unwrap_or(p.patterns) == patterns[..] && p.whole_words == whole_words;
    let mut found = PRE_TOKENIZERS.iter().filter(same);
    found.clone().find(|p| p.nfc == nfc).or_else(|| found.next()).map(|p| p.names[0])
}
