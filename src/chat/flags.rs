//! The command line of `rml-chat`.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use super::thinking::ShowThinking;
use crate::LoadOptions;
use crate::fetch::DEFAULT_MODEL;
use crate::generate::sampler::SamplerConfig;
use crate::generate::speculative::MOST_GUESSES;
use crate::model::quantize::FileType;
use crate::program::{Halt, KV_NAMES, at_least_one, file_type, thread_count};

/// Positions of the cache where the user does not say; less if the model was trained for less.
pub(super) const DEFAULT_CONTEXT: usize = 4096;

/// What happens when the context is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Overflow {
    Stop,
    Shift,
}

/// Talk with a language model on this machine's CPU.
///
/// With -p it answers once. Otherwise each line is a turn of yours: /reset starts over, /help lists the commands, an empty line quits.
/// Ctrl-C ends a reply; at an empty prompt a second one ends the program.
#[derive(Debug, Parser)]
#[command(name = "rml-chat", version, max_term_width = 100)]
pub(super) struct Flags {
    /// A .gguf file, a directory holding one or a Hugging Face model, hf:OWNER/REPO[:FILE], or the name smollm2. A model that is not on this machine is fetched once and kept in
    /// $RML_CACHE, else in the platform's cache folder.
    #[arg(default_value = DEFAULT_MODEL)]
    pub(super) model: String,

    /// Answer this and exit; `-` reads it from standard input
    #[arg(short, long, value_name = "TEXT")]
    pub(super) prompt: Option<String>,

    /// Begin the conversation with this system message
    #[arg(long, value_name = "TEXT")]
    pub(super) system: Option<String>,

    /// Chat format: a name such as chatml, own:NAME for a named one of the model, or a .jinja file; the model's own unless given
    #[arg(long, value_name = "NAME|FILE.jinja")]
    pub(super) format: Option<String>,

    /// Tell the chat template something, such as enable_thinking=false; the value is JSON. May be given several times
    #[arg(long, value_name = "KEY=JSON")]
    pub(super) template_arg: Vec<String>,

    /// How reasoning before an answer is shown: `dim` is dim on a terminal
    #[arg(long, value_enum, default_value_t = ShowThinking::Dim)]
    pub(super) thinking: ShowThinking,

    /// Temperature: 0 always takes the likeliest token, more is more varied
    #[arg(long, value_name = "T", default_value_t = 0.7, allow_negative_numbers = true)]
    pub(super) temp: f32,

    /// Draw from this many likeliest tokens; 0 for all
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(super) top_k: usize,

    /// Draw from the fewest tokens that hold this share of the probability, above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, allow_negative_numbers = true)]
    pub(super) top_p: f32,

    /// Draw from tokens at least this probable relative to the likeliest, from 0 up and below 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, allow_negative_numbers = true)]
    pub(super) min_p: f32,

    /// Make tokens of the context less likely: above 1 penalizes, 1 does nothing
    #[arg(long, value_name = "FACTOR", default_value_t = 1.1, allow_negative_numbers = true)]
    pub(super) repeat_penalty: f32,

    /// Where the random draws start; the same seed gives the same replies
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,

    /// Tokens of conversation that are kept; 4096, or what the model was trained for if that is less
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one)]
    pub(super) ctx: Option<usize>,

    /// When the context is full: `stop` and say so, or `shift`: drop the oldest messages, never the system message, and go on
    #[arg(long, value_enum, default_value_t = Overflow::Stop)]
    pub(super) overflow: Overflow,

    /// Keep the conversation in this file: gone on with if it is there, written after each turn; /reset removes it
    #[arg(long, value_name = "FILE")]
    pub(super) session: Option<PathBuf>,

    /// Type of the cached keys and values
    #[arg(long, default_value = "f16", value_parser = PossibleValuesParser::new(KV_NAMES))]
    pub(super) kv: String,

    /// End a reply after this many tokens
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one)]
    pub(super) max_tokens: usize,

    /// Threads; as many as this process may use unless given
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(super) threads: Option<usize>,

    /// Guess ahead, and check several tokens in one pass: with a smaller model of the same family, with what followed the same
    /// words before (`lookup`; `auto` chooses it), or not at all (`none`)
    #[arg(long, value_name = "MODEL|lookup|auto|none", default_value = "auto")]
    pub(super) draft: String,

    /// The most tokens guessed at a time, 1 to 16; fewer where fewer are faster
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = draft_tokens)]
    pub(super) draft_tokens: usize,

    /// Kernels: auto measures and takes the fastest; `rml backends` lists the others. Without it RML_BACKEND decides.
    #[arg(long, value_name = "NAME")]
    pub(super) backend: Option<String>,

    /// Read the model into memory rather than mapping the file
    #[arg(long)]
    pub(super) no_mmap: bool,

    /// Turn the weights into q8_0, q4_0, q4_k or another type of `rml quantize` while loading
    #[arg(long, value_name = "TYPE", value_parser = file_type)]
    pub(super) quantize: Option<FileType>,
}

/// Who guesses ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draft<M> {
    None,
    Lookup,
    Model(M),
}

impl<M> Draft<M> {
    /// The same with another form of the model.
    pub(super) fn try_map<N, E>(self, map: impl FnOnce(M) -> Result<N, E>) -> Result<Draft<N>, E> {
        Ok(match self {
            Draft::None => Draft::None,
            Draft::Lookup => Draft::Lookup,
            Draft::Model(model) => Draft::Model(map(model)?),
        })
    }
}

fn draft_tokens(text: &str) -> Result<usize, String> {
    let fits = |n: &usize| (1..=MOST_GUESSES).contains(n);
    text.parse().ok().filter(fits).ok_or_else(|| format!("it must be a whole number from 1 to {MOST_GUESSES}"))
}

impl Flags {
    /// What the sampler does, checked.
    pub(super) fn sampler(&self) -> Result<SamplerConfig, Halt> {
        let config = SamplerConfig {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            ..SamplerConfig::default()
        };
        config.validate()?;
        Ok(config)
    }

    /// Who guesses; a model by its name.
    pub(super) fn draft(&self) -> Draft<&str> {
        match self.draft.as_str() {
            "none" => Draft::None,
            "lookup" | "auto" => Draft::Lookup,
            model => Draft::Model(model),
        }
    }

    pub(super) fn load_options(&self) -> LoadOptions {
        LoadOptions { backend: self.backend.clone(), threads: self.threads.unwrap_or(0), no_mmap: self.no_mmap, quantize: self.quantize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::kv_type;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Flags::command().debug_assert();
    }

    /// The defaults that the program's description promises; the sampler's own are others.
    #[test]
    fn defaults_are_those_of_the_program() {
        let flags = Flags::parse_from(["rml-chat"]);
        let sampler = flags.sampler().unwrap();
        assert_eq!((sampler.temperature, sampler.top_k, sampler.top_p), (0.7, 40, 0.95));
        assert_eq!((sampler.min_p, sampler.repetition_penalty), (0.05, 1.1));
        assert_eq!((flags.model.as_str(), flags.seed, flags.ctx, flags.max_tokens), ("smollm2", 0, None, 512));
        assert_eq!((flags.overflow, flags.session), (Overflow::Stop, None));
        assert_eq!((flags.kv.as_str(), flags.draft.as_str(), flags.draft_tokens, flags.threads), ("f16", "auto", 4, None));
    }

    #[test]
    fn every_range_is_checked() {
        let bad = [
            ["--temp", "-0.1"],
            ["--temp", "nan"],
            ["--temp", "inf"],
            ["--temp", "warm"],
            ["--top-k", "-1"],
            ["--top-k", "1.5"],
            ["--top-p", "0"],
            ["--top-p", "1.01"],
            ["--top-p", "-1"],
            ["--min-p", "1"],
            ["--min-p", "-0.1"],
            ["--repeat-penalty", "0"],
            ["--repeat-penalty", "-1"],
            ["--repeat-penalty", "nan"],
            ["--seed", "-1"],
            ["--ctx", "0"],
            ["--ctx", "-5"],
            ["--ctx", "99999999999999999999"],
            ["--kv", "f64"],
            ["--overflow", "wrap"],
            ["--max-tokens", "0"],
            ["--threads", "0"],
            ["--threads", "1025"],
            ["--draft-tokens", "0"],
            ["--draft-tokens", "17"],
            ["--draft-tokens", "-1"],
            ["--draft-tokens", "four"],
        ];
        for [flag, value] in bad {
            let refused = match Flags::try_parse_from(["rml-chat", flag, value]) {
                Err(_) => true,
                Ok(flags) => flags.sampler().is_err() || kv_type(&flags.kv).is_err(),
            };
            assert!(refused, "{flag} {value}");
        }
        for [flag, value] in [
            ["--temp", "0"],
            ["--top-k", "0"],
            ["--top-p", "1"],
            ["--min-p", "0"],
            ["--repeat-penalty", "0.5"],
            ["--kv", "i8"],
            ["--draft-tokens", "16"],
        ] {
            let flags = Flags::parse_from(["rml-chat", flag, value]);
            assert!(flags.sampler().is_ok() && kv_type(&flags.kv).is_ok(), "{flag} {value}");
        }
    }

    #[test]
    fn drafts_are_models_unless_they_have_a_meaning() {
        for (value, draft) in
            [("none", Draft::None), ("lookup", Draft::Lookup), ("auto", Draft::Lookup), ("./lookup", Draft::Model("./lookup"))]
        {
            assert_eq!(Flags::parse_from(["rml-chat", "--draft", value]).draft(), draft);
        }
    }
}
