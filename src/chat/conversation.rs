//! The conversation: turns, commands, and what becomes of a turn that fails. It knows neither model nor terminal.
//!
//! The transcript holds only turns that were answered: one that fails or is interrupted before its first word is taken back, so
//! the conversation goes on as if it had not been made.

use std::ops::ControlFlow;

use serde::Serialize;

use super::input::{Line, Lines};
use super::interrupt::CtrlC;
use super::report;
use super::thinking::{Part, Sections, ShowThinking};
use crate::generate::{GenerationStats, SpeculativeStats, StopReason};
use crate::program::{Halt, Screen};
use crate::{Error, Result as Outcome};

/// The role of the message that stands before all turns.
pub(super) const SYSTEM: &str = "system";

/// One turn of a conversation, as chat templates take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Message {
    /// `system`, `user` or `assistant`.
    pub(super) role: &'static str,
    pub(super) content: String,
}

impl Message {
    pub(super) fn new(role: &'static str, content: &str) -> Self {
        Message { role, content: content.to_owned() }
    }
}

/// Who answers.
pub(super) trait Speaker {
    /// Replies to the conversation so far, handing text to `show` as it comes, until that breaks.
    fn reply(&mut self, transcript: &[Message], show: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Outcome<Reply>;

    /// Forgets everything.
    fn reset(&mut self);

    /// The conversation that was kept from an earlier run, if there is one to go on with.
    fn resume(&mut self) -> Outcome<Option<Vec<Message>>> {
        Ok(None)
    }

    /// Keeps the conversation for a later run.
    fn keep(&mut self, _transcript: &[Message]) -> Outcome<()> {
        Ok(())
    }

    /// Throws away what was kept.
    fn discard(&mut self) -> Outcome<()> {
        Ok(())
    }
}

/// A reply that came to its end, by whatever reason.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) stats: GenerationStats,
    /// Messages, the oldest behind the system message, that the context no longer has room for.
    pub(super) dropped: usize,
    pub(super) guessing: Option<SpeculativeStats>,
}

pub(super) const HELP: &str = "\
/reset   start over, with nothing said
/forget  take back the oldest question and its answer, to make room
/help    this list
An empty line or Ctrl-D quits. Ctrl-C ends a reply; at an empty prompt a second one quits.
Begin a line with a space to say something that looks like a command.";

/// What was said, and who answers.
pub(super) struct Conversation<'a> {
    speaker: &'a mut dyn Speaker,
    screen: &'a mut Screen,
    ctrl_c: &'a CtrlC,
    system: Option<String>,
    thinking: ShowThinking,
    transcript: Vec<Message>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(speaker: &'a mut dyn Speaker, screen: &'a mut Screen, ctrl_c: &'a CtrlC, system: Option<String>) -> Self {
        let thinking = ShowThinking::Show;
        let mut conversation = Conversation { speaker, screen, ctrl_c, system, thinking, transcript: Vec::new() };
        conversation.start_over();
        conversation
    }

    /// The same, with reasoning shown so.
    pub(super) fn showing(mut self, thinking: ShowThinking) -> Self {
        self.thinking = thinking;
        self
    }

    /// Goes on with what was kept from an earlier run; returns how many turns that were.
    pub(super) fn resume(&mut self) -> Result<usize, Halt> {
        let Some(kept) = self.speaker.resume()? else { return Ok(0) };
        let system = kept.iter().find(|m| m.role == SYSTEM).map(|m| m.content.clone());
        if self.system.is_some() && self.system != system {
            return Err(Halt::Usage(
                "--system: the saved session has another system message; leave --system out, or name another file".into(),
            ));
        }
        (self.system, self.transcript) = (system, kept);
        Ok(self.turns())
    }

    /// Takes turns until the input ends. Turns that fail are told of and passed over; of a script they fail the program in the end.
    pub(super) fn run(&mut self, lines: &mut dyn Lines) -> Result<(), Halt> {
        let mut failed = None;
        loop {
            let line = match lines.next_line()? {
                Line::End => break,
                Line::Interrupted { empty: true } if self.ctrl_c.press() >= 2 => break,
                Line::Interrupted { empty: true } => {
                    self.screen.note("(Ctrl-C again, or an empty line, quits)");
                    continue;
                }
                Line::Interrupted { empty: false } => {
                    self.ctrl_c.forget_presses();
                    continue;
                }
                Line::Text(line) => line,
            };
            self.ctrl_c.forget_presses();
            let done = match line.trim_end() {
                "" => break,
                command if is_command(command) => self.command(command),
                _ => self.turn(line.trim()).map(drop),
            };
            match done {
                Err(Halt::Failed(reason)) => {
                    self.screen.note(&reason);
                    failed = Some(reason);
                }
                done => done?,
            }
        }
        match failed {
            Some(_) if !lines.is_interactive() => Err(Halt::Failed("not every turn was answered".into())),
            _ => Ok(()),
        }
    }

    /// One turn: the user's text, and the reply on the screen.
    pub(super) fn turn(&mut self, text: &str) -> Result<StopReason, Halt> {
        self.transcript.push(Message::new("user", text));
        let mut shown = Ok(());
        let mut last = '\n';
        self.ctrl_c.begin_reply();
        let (screen, thinking) = (&mut *self.screen, self.thinking);
        let mut sections = Sections::new();
        let mut show = |parts: Vec<Part>| {
            for part in parts {
                let result = match (part.thinking, thinking) {
                    (true, ShowThinking::Hide) => continue,
                    (true, ShowThinking::Dim) => screen.show_dim(&part.text),
                    _ => screen.show(&part.text),
                };
                last = part.text.chars().next_back().unwrap_or(last);
                result?;
            }
            Ok::<_, std::io::Error>(())
        };
        let reply = self.speaker.reply(&self.transcript, &mut |piece| {
            shown = show(sections.push(piece));
            if shown.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.ctrl_c.end_reply();
        shown.and_then(|()| show(sections.finish()))?;
        if last != '\n' {
            self.screen.show("\n")?;
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.transcript.pop();
                return Err(self.explained(error));
            }
        };
        let first = usize::from(self.system.is_some());
        self.transcript.drain(first..first + reply.dropped);
        report::after_reply(self.screen, &reply.stats, reply.guessing.as_ref(), reply.dropped);
        if reply.text.is_empty() && reply.stats.stop == StopReason::Interrupted {
            self.transcript.pop();
        } else {
            self.transcript.push(Message::new("assistant", &reply.text));
        }
        self.speaker.keep(&self.transcript)?;
        Ok(reply.stats.stop)
    }

    /// An error, and what can be done if the conversation has outgrown the context.
    fn explained(&self, error: Error) -> Halt {
        match error {
            Error::OutOfRange { name: "prompt", reason } => {
                let kept = match self.turns() {
                    0 => "",
                    _ => {
                        ". The conversation is kept without this line: /forget takes back its oldest turn, /reset starts over, \
                         and --overflow shift drops what is oldest by itself"
                    }
                };
                Halt::Failed(format!("the context is full: {reason} (--ctx){kept}"))
            }
            other => other.into(),
        }
    }

    /// Turns that were answered.
    fn turns(&self) -> usize {
        self.transcript.iter().filter(|m| m.role == "assistant").count()
    }

    fn command(&mut self, command: &str) -> Result<(), Halt> {
        match command {
            "/reset" => {
                self.start_over();
                self.speaker.discard()?;
                self.screen.note("(starting over)");
            }
            "/forget" => {
                let first = usize::from(self.system.is_some());
                let there = self.turns() > 0;
                if there {
                    self.transcript.drain(first..first + 2);
                    self.speaker.keep(&self.transcript)?;
                }
                let left = self.turns();
                self.screen.note(&if there {
                    format!("(the oldest turn is forgotten; {left} left)")
                } else {
                    "(there is nothing to forget)".into()
                });
            }
            "/help" => self.screen.note(HELP),
            other => self.screen.note(&format!("(there is no command {other}; /help lists them)")),
        }
        Ok(())
    }

    fn start_over(&mut self) {
        self.speaker.reset();
        self.transcript = self.system.iter().map(|text| Message::new(SYSTEM, text)).collect();
    }
}

/// One word after a slash at the very start; `/etc/hosts` and `/ 2` are talk.
fn is_command(line: &str) -> bool {
    line.strip_prefix('/').is_some_and(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests;
