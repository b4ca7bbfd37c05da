//! `rml-chat`: a conversation with a model at the terminal.

mod conversation;
mod flags;
mod formats;
mod input;
mod interrupt;
mod report;
mod saved;
mod session;
mod speaker;
mod thinking;

use std::process::ExitCode;

use clap::Parser;

use crate::Model;
use crate::fetch::Fetcher;
use crate::generate::StopReason;
use crate::program::{Halt, Screen, exit_code, kv_type, note};
use conversation::Conversation;
use flags::Flags;
use formats::Format;
use interrupt::CtrlC;
use speaker::ModelSpeaker;

/// The program.
pub fn main() -> ExitCode {
    exit_code("rml-chat", run(Flags::parse()))
}

fn run(flags: Flags) -> Result<(), Halt> {
    // What is wrong with the command line is told before a model is fetched and loaded.
    let sampler = flags.sampler()?;
    let kv = kv_type(&flags.kv)?;
    let format = Format::new(flags.format.as_deref(), &flags.template_arg)?;
    let prompt = match flags.prompt.as_deref() {
        Some("-") => Some(input::whole_stdin()?),
        Some(text) => Some(text.to_owned()),
        None => None,
    };
    if prompt.as_ref().is_some_and(|p| p.trim().is_empty()) {
        return Err(Halt::Usage("the prompt is empty; say something after -p, or leave -p out for a conversation".into()));
    }

    let fetcher = Fetcher::from_env()?;
    let path = fetcher.resolve(&flags.model)?;
    let draft_path = flags.draft().try_map(|model| fetcher.resolve(model))?;
    let model = Model::load(&path, &flags.load_options())?;
    let draft = draft_path.try_map(|path| Model::load_beside(&path, &flags.load_options(), &model))?;
    let mut speaker = ModelSpeaker::new(model, draft, sampler, kv, format, &flags)?;
    let mut screen = Screen::stdout();
    let ctrl_c = CtrlC::new(speaker.interrupt(), prompt.is_none() && input::is_person());
    ctrl_c.listen();
    note(&speaker.introduction());
    let is_terminal = screen.is_terminal();
    let mut conversation = Conversation::new(&mut speaker, &mut screen, &ctrl_c, flags.system).showing(flags.thinking);
    let turns = conversation.resume()?;
    if let (1.., Some(path)) = (turns, &flags.session) {
        note(&format!("(going on with {}: {turns} turns)", path.display()));
    }
    match prompt {
        Some(prompt) => match conversation.turn(&prompt)? {
            StopReason::Interrupted => Err(Halt::Failed("interrupted".into())),
            _ => Ok(()),
        },
        None => {
            let mut lines = input::of_stdin(is_terminal)?;
            if lines.is_interactive() {
                note("Each line is a turn. /help lists the commands; an empty line quits.");
            }
            conversation.run(&mut *lines)
        }
    }
}
