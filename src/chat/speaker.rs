//! A model as the one who answers: template, tokens, session, and text as it comes.

use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use super::conversation::{Message, Reply, SYSTEM, Speaker};
use super::flags::{DEFAULT_CONTEXT, Draft, Flags, Overflow};
use super::formats::Format;
use super::session::ChatSession;
use super::{saved, thinking};
use crate::decode::KvType;
use crate::generate::sampler::SamplerConfig;
use crate::generate::{GenerationStats, Interrupt, SessionOptions, SpeculativeStats, StopReason};
use crate::program::{counted, note};
use crate::text::{ChatTemplate, RenderOptions, StreamDecoder, encode_chat};
use crate::{Error, Model, Result};

pub(super) struct ModelSpeaker {
    model: Arc<Model>,
    session: ChatSession,
    guesses: String, // what is told of who guesses
    template: ChatTemplate,
    seed: u64,
    max_tokens: usize,
    kv: KvType,
    overflow: Overflow,
    file: Option<PathBuf>, // where the conversation is kept
}

impl ModelSpeaker {
    pub(super) fn new(
        model: Model,
        draft: Draft<Model>,
        sampler: SamplerConfig,
        kv: KvType,
        format: Format,
        flags: &Flags,
    ) -> Result<Self> {
        let model = Arc::new(model);
        for warning in model.tokenizer().warnings() {
            note(&format!("warning: {warning}"));
        }
        let template = format.template(&model)?;
        let trained = model.config().context_length;
        let context_size = flags.ctx.unwrap_or(DEFAULT_CONTEXT.min(trained));
        if context_size > trained {
            note(&format!(
                "warning: --ctx {context_size} is more than the {trained} tokens this model was trained for; beyond them it may talk nonsense"
            ));
        }
        let stop_ids = model.tokenizer().end_ids().to_vec();
        let options = SessionOptions { sampler, seed: flags.seed, context_size, stop_ids, kv, ..SessionOptions::default() };
        let guesses = match &draft {
            Draft::None => String::new(),
            Draft::Lookup => format!("; draft lookup, up to {}", counted(flags.draft_tokens, "token")),
            Draft::Model(draft) => format!("; draft {}, up to {}", file_name(draft), counted(flags.draft_tokens, "token")),
        };
        let session = ChatSession::new(&model, options, draft, flags.draft_tokens)?;
        Ok(ModelSpeaker {
            model,
            session,
            guesses,
            template,
            seed: flags.seed,
            max_tokens: flags.max_tokens,
            kv,
            overflow: flags.overflow,
            file: flags.session.clone(),
        })
    }

    pub(super) fn interrupt(&self) -> Interrupt {
        self.session.interrupt()
    }

    /// What answers, and what it runs on.
    pub(super) fn introduction(&self) -> String {
        let kernels: Vec<_> = self.model.choice().formats().iter().map(|f| f.kernel.id()).collect();
        format!(
            "{}: {}, {}; kernels {}; {}; context {}, kv {}{}",
            file_name(&self.model),
            self.model.config().architecture,
            counted(self.model.config().n_layers, "layer"),
            kernels.join(" "),
            counted(self.model.team().n_threads(), "thread"),
            self.session.context_size(),
            self.kv.name(),
            self.guesses,
        )
    }
}

fn file_name(model: &Model) -> impl std::fmt::Display {
    let path = model.file().path();
    path.file_name().unwrap_or(path.as_os_str()).display()
}

impl Speaker for ModelSpeaker {
    fn reply(&mut self, transcript: &[Message], show: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<Reply> {
        let mut window = Window::new(transcript);
        let Prompt { ids: mut prompt, left_open } = self.prompt(&window)?;
        if prompt.len() > self.session.context_size() && self.overflow == Overflow::Shift {
            prompt = self.shifted(&mut window, &[], self.max_tokens)?.unwrap_or(prompt);
        }
        let mut said = Said::default();
        if let Some(tag) = left_open {
            let _ = show(&format!("{tag}\n"));
        }
        let (mut stats, mut guessing) = self.generate(&prompt, self.max_tokens, &mut said, show)?;
        while stats.stop == StopReason::ContextFull && self.overflow == Overflow::Shift {
            let left = self.max_tokens - stats.generated_tokens;
            let Some(prompt) = self.shifted(&mut window, &said.ids, left)? else { break };
            let (more, guesses) = self.generate(&prompt, left, &mut said, show)?;
            stats = GenerationStats {
                prompt_tokens: stats.prompt_tokens + more.prompt_tokens,
                reused_tokens: stats.reused_tokens + more.reused_tokens,
                generated_tokens: stats.generated_tokens + more.generated_tokens,
                prefill_seconds: stats.prefill_seconds + more.prefill_seconds,
                decode_seconds: stats.decode_seconds + more.decode_seconds,
                stop: more.stop,
            };
            guessing = guessing.zip(guesses).map(|(so_far, more)| SpeculativeStats {
                generation: stats,
                rounds: so_far.rounds + more.rounds,
                drafted: so_far.drafted + more.drafted,
                accepted: so_far.accepted + more.accepted,
            });
        }
        // A character that the end of the reply cut in two.
        let rest = said.characters.finish();
        if !rest.is_empty() {
            said.text += &rest;
            let _ = show(&rest);
        }
        Ok(Reply { text: said.text, stats, guessing, dropped: window.dropped })
    }

    fn reset(&mut self) {
        self.session.reseed(self.seed);
    }

    fn resume(&mut self) -> Result<Option<Vec<Message>>> {
        let Some(path) = self.file.as_ref().filter(|path| path.exists()) else { return Ok(None) };
        let unread = || Error::SavedSession {
            path: path.clone(),
            reason: "what it was saved with is no conversation; name another file, or remove it".into(),
        };
        let transcript = saved::from_bytes(&self.session.restore(path)?).ok_or_else(unread)?;
        Ok(Some(transcript))
    }

    fn keep(&mut self, transcript: &[Message]) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |path| self.session.save(path, &saved::to_bytes(transcript)))
    }

    fn discard(&mut self) -> Result<()> {
        let Some(path) = self.file.as_ref().filter(|path| path.exists()) else { return Ok(()) };
        fs::remove_file(path).map_err(|source| Error::Io { path: path.clone(), action: "remove", source })
    }
}

impl ModelSpeaker {
    /// What the model gets to see of the messages that are left.
    fn prompt(&self, window: &Window<'_>) -> Result<Prompt> {
        let messages = window.messages().map(|m| serde_json::json!({ "role": m.role, "content": m.content }));
        let messages = serde_json::Value::Array(messages.collect());
        let merged = Cell::new(false);
        let left_open = Cell::new(None);
        let ids = encode_chat(self.model.tokenizer(), &messages, |messages| {
            let (prompt, was_merged) = self.template.render_merging_system(messages, &RenderOptions::default())?;
            merged.set(was_merged);
            left_open.set(thinking::left_open(&prompt));
            Ok(prompt)
        })?;
        if merged.get() && window.transcript.len() <= 2 {
            note("note: this model's template has no system message; it was put in front of your first message");
        }
        Ok(Prompt { ids, left_open: left_open.get() })
    }

    /// Drops turns, the oldest first, until the prompt, what was `said` of the reply, and a good part of what is `left` of it fit
    /// into the context; returns both as one prompt, or `None` if dropping all turns but the last is not enough.
    fn shifted(&self, window: &mut Window<'_>, said: &[u32], left: usize) -> Result<Option<Vec<u32>>> {
        /// Each shift runs what is kept of the conversation anew, so room is made for more than the next token.
        const SHARE: usize = 4;
        let context = self.session.context_size();
        let room = left.min(context / SHARE).max(1);
        let mut fits = None;
        while window.drop_turn() {
            let mut prompt = self.prompt(window)?.ids;
            prompt.extend_from_slice(said);
            let (len, fit) = (prompt.len(), prompt.len() <= context);
            fits = fit.then_some(prompt);
            if len + room <= context {
                break;
            }
        }
        Ok(fits)
    }

    /// Runs the prompt and adds to what was said.
    fn generate(
        &mut self,
        prompt: &[u32],
        limit: usize,
        said: &mut Said,
        show: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(GenerationStats, Option<SpeculativeStats>)> {
        let tokenizer = self.model.tokenizer();
        self.session.generate(prompt, limit, |id| {
            said.bytes.clear();
            tokenizer.append_bytes(id, tokenizer.is_thinking_tag(id), &mut said.bytes);
            // The space that tokens of a text begin with where it stands for none.
            if said.ids.is_empty() && tokenizer.begins_with_space() && said.bytes.first() == Some(&b' ') {
                said.bytes.remove(0);
            }
            said.ids.push(id);
            let piece = said.characters.push(&said.bytes);
            said.text += &piece;
            if piece.is_empty() { ControlFlow::Continue(()) } else { show(&piece) }
        })
    }
}

/// What the model gets to see.
struct Prompt {
    ids: Vec<u32>,
    /// The tag after which the model goes on reasoning, if the prompt ends so.
    left_open: Option<&'static str>,
}

/// What was said of a reply.
#[derive(Default)]
struct Said {
    ids: Vec<u32>,
    text: String,
    characters: StreamDecoder,
    bytes: Vec<u8>,
}

/// The messages of a transcript that are left when the oldest turns are dropped.
struct Window<'a> {
    transcript: &'a [Message],
    first: usize, // where turns begin
    dropped: usize,
}

impl<'a> Window<'a> {
    fn new(transcript: &'a [Message]) -> Self {
        let first = transcript.iter().take_while(|m| m.role == SYSTEM).count();
        Window { transcript, first, dropped: 0 }
    }

    fn messages(&self) -> impl Iterator<Item = &'a Message> {
        let (system, turns) = self.transcript.split_at(self.first);
        system.iter().chain(&turns[self.dropped..])
    }

    /// Drops the oldest turn, a question and its answer; false if only the last question is left.
    fn drop_turn(&mut self) -> bool {
        let another = self.transcript.len() - self.first - self.dropped > 2;
        self.dropped += if another { 2 } else { 0 };
        another
    }
}

#[cfg(test)]
mod tests;
