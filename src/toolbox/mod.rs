//! `rml`, the toolbox: one subcommand a file.

mod backends;
mod bench;
mod inspect;
mod logits;
mod perplexity;
mod target;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

use crate::program::{Halt, Screen, exit_code};

pub use inspect::inspect;

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
    /// Show a model file's metadata, tensors and memory plan, without loading it
    Inspect {
        /// Which model, as in rml-chat
        model: String,
    },
    Logits(logits::Args),
    Perplexity(perplexity::Args),
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
        Command::Inspect { model } => out.written(|out, json| inspect(&target::file(&model)?, json, out)),
        Command::Logits(args) => args.run(&mut out),
        Command::Perplexity(args) => args.run(&mut out),
    };
    exit_code("rml", outcome)
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
