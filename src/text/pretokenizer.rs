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
    /// Applied behind these, to the characters that stand for bytes.
    pub(super) late: &'static [&'static str],
    /// A word that is a token is taken whole, whatever the merges.
    pub(super) whole_words: bool,
    /// Text is brought to Unicode's form C first.
    pub(super) nfc: bool,
}

/// A step of cutting, as a `tokenizer.json` may describe it in several ways.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut<'a> {
    /// Each match becomes a piece, and so does what is between matches.
    Matches(&'a str),
    /// Every byte becomes the character that stands for it.
    Bytes,
}

impl<'b> PartialEq<Cut<'b>> for Cut<'_> {
    fn eq(&self, other: &Cut<'b>) -> bool {
        // Line breaks stand in some patterns as they are.
        let escaped = |pattern: &str| pattern.replace('\r', r"\r").replace('\n', r"\n");
        match (self, other) {
            (Cut::Matches(a), Cut::Matches(b)) => escaped(a) == escaped(b),
            (Cut::Bytes, Cut::Bytes) => true,
            _ => false,
        }
    }
}

/// What the step `ByteLevel` cuts by unless told otherwise.
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
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
const BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const DIGITS_3: &str = r"\p{N}{1,3}";
const CJK: &str = r"[一-龥぀-ゟ゠-ヿ]+";
const DEEPSEEK_3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// As escapes, since some of these letters are others in form C of Unicode.
const DEEPSEEK_WORDS: &str = "\\s?[\
    A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\
    \u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\
    \u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\
    \u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\
    \u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\
    \u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\
    \u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}\
    -\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\
    \u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\
    \u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\
    \u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}\
    ]+";
/// What the step `Digits` cuts by: one at a time, or all together.
pub(crate) const ONE_DIGIT: &str = r"\p{N}";
pub(crate) const DIGITS: &str = r"\p{N}+";
/// What the step `Punctuation` cuts by where it takes runs.
pub(crate) const PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|`]+";
const THREE_ASCII_DIGITS: &str = "[0-9][0-9][0-9]";

const PLAIN: PreTokenizer = PreTokenizer { names: &[], patterns: &[], late: &[], whole_words: false, nfc: false };

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
        patterns: &[r"[\r\n]", DEEPSEEK_WORDS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+", ONE_DIGIT],
        ..PLAIN
    },
    PreTokenizer { names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], patterns: &[DIGITS_3, CJK, DEEPSEEK_3], ..PLAIN },
    PreTokenizer { names: &["falcon"], patterns: &[PUNCTUATION, GPT2], late: &[DIGITS, THREE_ASCII_DIGITS], ..PLAIN },
    PreTokenizer { names: &["default"], patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, DIGITS, THREE_ASCII_DIGITS], ..PLAIN },
    PreTokenizer { names: &["tekken"], patterns: &[TEKKEN], whole_words: true, ..PLAIN },
    PreTokenizer { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], patterns: &[GPT4O], ..PLAIN },
    PreTokenizer { names: &["tiny_aya", "cohere2moe"], patterns: &[r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O], ..PLAIN },
    PreTokenizer { names: &["kimi-k2", "kimi-k25"], patterns: &[KIMI], ..PLAIN },
    PreTokenizer { names: &["bloom", "poro-chat", "gpt3-finnish"], patterns: &[BLOOM], ..PLAIN },
    PreTokenizer { names: &["viking"], patterns: &[BLOOM, ONE_DIGIT], ..PLAIN },
    PreTokenizer { names: &["superbpe"], patterns: &[DIGITS, r"(?=(\d{3})+(?!\d))"], ..PLAIN },
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

/// The name of the pre-tokenizer that takes these steps after bringing text to the form `normalizer`, and that takes words whole
/// or not.
pub(crate) fn pre_tokenizer_name(cuts: &[Cut<'_>], normalizer: Option<&str>, whole_words: bool) -> Option<&'static str> {
    let nfc = match normalizer {
        None => false,
        Some("NFC") => true,
        Some(_) => return None,
    };
    let same = |p: &&PreTokenizer| p.cuts().eq(cuts.iter().copied()) && p.whole_words == whole_words;
    let mut found = PRE_TOKENIZERS.iter().filter(same);
    found.clone().find(|p| p.nfc == nfc).or_else(|| found.next()).map(|p| p.names[0])
}

impl PreTokenizer {
    fn cuts(&self) -> impl Iterator<Item = Cut<'static>> {
        let matches = |patterns: &'static [&'static str]| patterns.iter().map(|p| Cut::Matches(p));
        matches(self.patterns).chain([Cut::Bytes]).chain(matches(self.late))
    }
}
