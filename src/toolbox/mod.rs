//! `rml`, the toolbox: one subcommand a file.

mod backends;
mod bench;
mod inspect;
mod logits;
mod machine;
mod new_file;
mod perplexity;
mod plot;
mod quantize;
mod report;
mod speculate;
pub mod synth;
mod target;
mod template;
mod tokenize;
mod widen;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

use crate::program::{Halt, Screen, exit_code, note, template_variables};
use crate::text::{Encode, Now, RenderOptions};

pub use inspect::inspect;
pub use template::{TemplateChoice, template};
pub use tokenize::{detokenize, tokenize};

/// Looks into models, and measures what runs them
#[derive(Debug, Parser)]
#[command(name = "rml", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print JSON on standard output, and nothing else there
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Backends(backends::Args),
    Bench(bench::Args),
    Convert(quantize::ConvertArgs),
    /// Show a model file's metadata, tensors and memory plan, without loading it
    Inspect {
        /// Which model, as in rml-chat
        model: String,
    },
    Logits(logits::Args),
    Perplexity(perplexity::Args),
    Quantize(quantize::QuantizeArgs),
    Report(report::Args),
    Speculate(speculate::Args),
    Synth(synth::Args),
    /// Show the tokens of a text
    Tokenize {
        /// Which model, as in rml-chat; a file that holds only a vocabulary will do
        model: String,
        /// The text
        text: Option<String>,
        /// Take the text from this file
        #[arg(long, conflicts_with = "text")]
        file: Option<PathBuf>,
        /// Do not add the tokens that begin and end a text
        #[arg(long)]
        no_special: bool,
        /// Take the spelling of a control token for that token
        #[arg(long)]
        parse_special: bool,
    },
    /// Show the text of tokens
    Detokenize {
        /// Which model, as in rml-chat
        model: String,
        /// Ids, separated by commas
        #[arg(long, value_delimiter = ',', required = true)]
        tokens: Vec<u32>,
    },
    /// Show the prompt that a chat template makes of a conversation
    Template {
        /// Which model, as in rml-chat, or a .jinja file
        source: String,
        /// A JSON file with a list of messages, each with role and content
        #[arg(long)]
        messages: PathBuf,
        /// What the template prints for bos_token
        #[arg(long)]
        bos: Option<String>,
        /// What the template prints for eos_token
        #[arg(long)]
        eos: Option<String>,
        /// The time that the template is told, such as 2026-07-04T09:30:00
        #[arg(long)]
        now: Option<chrono::NaiveDateTime>,
        /// Do not end with the start of the assistant's turn
        #[arg(long)]
        no_generation_prompt: bool,
        /// Take the model's template of this name
        #[arg(long)]
        name: Option<String>,
        /// Tell the template something, such as enable_thinking=false; the value is JSON. May be given several times
        #[arg(long, value_name = "KEY=JSON")]
        template_arg: Vec<String>,
    },
    Widen(widen::Args),
}

/// Standard output, in the form that was asked for.
struct Output {
    screen: Screen,
    json: bool,
}

impl Output {
    /// Prints a document if JSON was asked for, else the text.
    fn either<T: Serialize>(&mut self, document: impl FnOnce() -> T, text: impl FnOnce() -> String) -> Result<(), Halt> {
        let line = if self.json {
            serde_json::to_string(&document()).map_err(|e| Halt::Failed(format!("the result does not fit into JSON: {e}")))?
        } else {
            text()
        };
        Ok(self.screen.line(line.trim_end())?)
    }

    /// Shows what `write` writes; it is told whether to write JSON.
    fn written(&mut self, write: impl FnOnce(&mut Vec<u8>, bool) -> crate::Result<()>) -> Result<(), Halt> {
        let mut bytes = Vec::new();
        write(&mut bytes, self.json)?;
        Ok(self.screen.show(&String::from_utf8_lossy(&bytes))?)
    }
}

/// The program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Output { screen: Screen::stdout(), json: cli.json };
    let outcome = match cli.command {
        Command::Backends(args) => args.run(&mut out),
        Command::Bench(args) => args.run(&mut out),
        Command::Convert(args) => args.run(&mut out),
        Command::Inspect { model } => out.written(|out, json| inspect(&target::file(&model)?, json, out)),
        Command::Logits(args) => args.run(&mut out),
        Command::Perplexity(args) => args.run(&mut out),
        Command::Quantize(args) => args.run(&mut out),
        Command::Report(args) => args.run(&mut out),
        Command::Speculate(args) => args.run(&mut out),
        Command::Synth(args) => args.run(&mut out),
        Command::Tokenize { model, text, file, no_special, parse_special } => {
            tokenize_text(&mut out, &model, text, file, Encode { add_special: !no_special, parse_special })
        }
        Command::Detokenize { model, tokens } => warned(&mut out, |out, json| detokenize(&target::file(&model)?, &tokens, json, out)),
        Command::Template { source, messages, bos, eos, now, no_generation_prompt, name, template_arg } => {
            let options = RenderOptions { add_generation_prompt: !no_generation_prompt, now: now.map_or(Now::Clock, Now::At) };
            template_variables(&template_arg).and_then(|variables| {
                let choice = TemplateChoice { name, bos, eos, variables };
                out.written(|out, json| {
                    let path = if source.ends_with(".jinja") { PathBuf::from(&source) } else { target::file(&source)? };
                    template(&path, &messages, &choice, &options, json, out)
                })
            })
        }
        Command::Widen(args) => args.run(&mut out),
    };
    exit_code("rml", outcome)
}

/// Writes as [`Output::written`] does, then shows what the user should know.
fn warned(out: &mut Output, write: impl FnOnce(&mut Vec<u8>, bool) -> crate::Result<Vec<String>>) -> Result<(), Halt> {
    let mut warnings = Vec::new();
    out.written(|bytes, json| {
        warnings = write(bytes, json)?;
        Ok(())
    })?;
    warnings.iter().for_each(|w| note(&format!("warning: {w}")));
    Ok(())
}

/// The text is an argument, a file, or standard input.
fn tokenize_text(out: &mut Output, model: &str, text: Option<String>, file: Option<PathBuf>, how: Encode) -> Result<(), Halt> {
    let read_error = |path: &Path, source| Halt::from(crate::Error::Io { path: path.to_owned(), action: "read", source });
    let text = match (text, file) {
        (Some(text), _) => text,
        (None, Some(path)) => std::fs::read_to_string(&path).map_err(|e| read_error(&path, e))?,
        (None, None) => std::io::read_to_string(std::io::stdin()).map_err(|e| read_error(Path::new("standard input"), e))?,
    };
    warned(out, |out, json| tokenize(&target::file(model)?, &text, how, json, out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
