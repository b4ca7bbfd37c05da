//! The session of a conversation, with or without guesses.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::flags::Draft;
use crate::generate::speculative::{DraftLength, DraftModel, Drafter, Lookup};
use crate::generate::{GenerationStats, Interrupt, Session, SessionOptions, SpeculativeSession, SpeculativeStats};
use crate::{Model, Result};

#[allow(clippy::large_enum_variant, reason = "a program has one")]
pub(super) enum ChatSession {
    Plain(Session),
    Guessing(SpeculativeSession),
}

impl ChatSession {
    /// A session that guesses as `draft` says, up to `most` tokens at a time.
    pub(super) fn new(model: &Arc<Model>, options: SessionOptions, draft: Draft<Model>, most: usize) -> Result<Self> {
        let drafter: Box<dyn Drafter> = match draft {
            Draft::None => return Ok(ChatSession::Plain(Session::new(model, options)?)),
            Draft::Lookup => match Lookup::new(options.context_size) {
                Ok(lookup) => Box::new(lookup),
                Err(e) => {
                    // Where the index has no room the cache seldom has, and its error says what would fit.
                    Session::new(model, options)?;
                    return Err(e);
                }
            },
            Draft::Model(draft) => Box::new(DraftModel::new(&Arc::new(draft), model, &options)?),
        };
        Ok(ChatSession::Guessing(SpeculativeSession::new(model, options, drafter, DraftLength::UpTo(most))?))
    }

    pub(super) fn interrupt(&self) -> Interrupt {
        match self {
            ChatSession::Plain(session) => session.interrupt(),
            ChatSession::Guessing(session) => session.interrupt(),
        }
    }

    /// What the replies are of.
    pub(super) fn session(&self) -> &Session {
        match self {
            ChatSession::Plain(session) => session,
            ChatSession::Guessing(session) => session.session(),
        }
    }

    pub(super) fn context_size(&self) -> usize {
        self.session().context_size()
    }

    pub(super) fn reseed(&mut self, seed: u64) {
        match self {
            ChatSession::Plain(session) => session.reseed(seed),
            ChatSession::Guessing(session) => session.reseed(seed),
        }
    }

    /// As [`Session::save`].
    pub(super) fn save(&self, path: &Path, attachment: &[u8]) -> Result<()> {
        self.session().save(path, attachment)
    }

    /// As [`Session::restore`].
    pub(super) fn restore(&mut self, path: &Path) -> Result<Vec<u8>> {
        match self {
            ChatSession::Plain(session) => session.restore(path),
            ChatSession::Guessing(session) => session.restore(path),
        }
    }

    /// The statistics of a reply, and those of guessing.
    pub(super) fn generate(
        &mut self,
        prompt: &[u32],
        limit: usize,
        on_token: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<(GenerationStats, Option<SpeculativeStats>)> {
        match self {
            ChatSession::Plain(session) => Ok((session.generate(prompt, limit, on_token)?, None)),
            ChatSession::Guessing(session) => {
                let stats = session.generate(prompt, limit, on_token)?;
                Ok((stats.generation, Some(stats)))
            }
        }
    }
}
