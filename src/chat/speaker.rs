//! A model as the one who answers: template, tokens, session, and text as it comes.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::conversation::{Message, Reply, Speaker};
use super::flags::{DEFAULT_CONTEXT, Draft, Flags};
use super::formats;
use super::session::ChatSession;
use crate::decode::KvType;
use crate::generate::sampler::SamplerConfig;
use crate::generate::{Interrupt, SessionOptions};
use crate::program::note;
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
}

impl ModelSpeaker {
    /// `format` is a template that replaces the model's own.
    pub(super) fn new(
        model: Model,
        draft: Draft<Model>,
        sampler: SamplerConfig,
        kv: KvType,
        format: Option<String>,
        flags: &Flags,
    ) -> Result<Self> {
        let model = Arc::new(model);
        for warning in model.tokenizer().warnings() {
            note(&format!("warning: {warning}"));
        }
        let template = template(&model, format)?;
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
            Draft::Lookup => format!("; draft lookup, up to {} tokens", flags.draft_tokens),
            Draft::Model(draft) => format!("; draft {}, up to {} tokens", file_name(draft), flags.draft_tokens),
        };
        let session = ChatSession::new(&model, options, draft, flags.draft_tokens)?;
        Ok(ModelSpeaker { model, session, guesses, template, seed: flags.seed, max_tokens: flags.max_tokens, kv })
    }

    pub(super) fn interrupt(&self) -> Interrupt {
        self.session.interrupt()
    }

    /// What answers, and what it runs on.
    pub(super) fn introduction(&self) -> String {
        let kernels: Vec<_> = self.model.choice().formats().iter().map(|f| f.kernel.id()).collect();
        format!(
            "{}: {}, {} layers; kernels {}; {} threads; context {}, kv {}{}",
            file_name(&self.model),
            self.model.config().architecture,
            self.model.config().n_layers,
            kernels.join(" "),
            self.model.team().n_threads(),
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
        let Self { model, session, template, max_tokens, .. } = self;
        let tokenizer = model.tokenizer();
        let messages: Vec<_> = transcript.iter().map(|m| serde_json::json!({ "role": m.role, "content": m.content })).collect();
        let prompt = encode_chat(tokenizer, &messages.into(), |messages| {
            let (prompt, merged) = template.render_merging_system(messages, &RenderOptions::default())?;
            if merged && transcript.len() <= 2 {
                note("note: this model's template has no system message; it was put in front of your first message");
            }
            Ok(prompt)
        })?;
        let mut text = String::new();
        let mut characters = StreamDecoder::default();
        let mut bytes = Vec::new();
        let (stats, guessing) = session.generate(&prompt, *max_tokens, |id| {
            bytes.clear();
            tokenizer.append_bytes(id, false, &mut bytes);
            let piece = characters.push(&bytes);
            text += &piece;
            if piece.is_empty() { ControlFlow::Continue(()) } else { show(&piece) }
        })?;
        // A character that the end of the reply cut in two.
        let rest = characters.finish();
        if !rest.is_empty() {
            text += &rest;
            let _ = show(&rest);
        }
        Ok(Reply { text, stats, guessing })
    }

    fn reset(&mut self) {
        self.session.reseed(self.seed);
    }
}

/// The template that was asked for, else the model's.
fn template(model: &Model, format: Option<String>) -> Result<ChatTemplate> {
    let vocabulary = model.tokenizer().vocabulary();
    let spelled = |id: Option<u32>| id.and_then(|id| model.tokenizer().piece(id)).unwrap_or_default();
    let source = match format {
        Some(source) => source,
        None => model.file().metadata().str("tokenizer.chat_template")?.map(str::to_owned).ok_or_else(|| {
            Error::Template(format!("this model has none of its own; choose one with --format: {}, or a .jinja file", formats::names()))
        })?,
    };
    ChatTemplate::new(&source, spelled(vocabulary.bos), spelled(vocabulary.eos))
}
