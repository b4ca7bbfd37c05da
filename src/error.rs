//! The library's one error. Each message names the thing, the place and the remedy.

use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that can never be right, such as an empty prompt or a top-p of 2.
    #[error("{name}: {reason}")]
    InvalidArgument {
        /// The argument or field, as the caller knows it.
        name: &'static str,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// A request larger than what was made for it, such as a prompt longer than the context.
    #[error("{name}: {reason}")]
    OutOfRange {
        /// What was exceeded.
        name: &'static str,
        /// By how much, and what would fit.
        reason: String,
    },
    /// The forward pass could not give usable logits.
    #[error("forward pass failed at position {position}: {reason}")]
    Forward {
        /// Position of the token, counted from 0.
        position: usize,
        /// What was wrong.
        reason: String,
    },
    /// The operating system refused to open, read or write a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `open`, `read`, `map`, `write`.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A model file or directory is damaged, or not what it should be.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong at which place, and the remedy.
        reason: String,
    },
    /// A well-formed model that needs something rml does not have.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// The file or directory.
        path: PathBuf,
        /// What is missing and what is supported instead.
        reason: String,
    },
    /// A saved session that cannot be gone on with here: damaged, or of another model, cache type or version.
    #[error("{}: {reason}", path.display())]
    SavedSession {
        /// The file.
        path: PathBuf,
        /// What does not match, and the remedy.
        reason: String,
    },
    /// Text could not be turned into tokens, or tokens into text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template does not compile, or refuses the conversation.
    #[error("chat template: {0}")]
    Template(String),
    /// The backend asked for is unknown or cannot run here.
    #[error("{0}")]
    Backend(String),
    /// A model could not be fetched.
    #[error("{0}")]
    Fetch(String),
}

/// The library's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An [`Error::InvalidArgument`].
    pub fn invalid(name: &'static str, reason: impl Into<String>) -> Self {
        Error::InvalidArgument { name, reason: reason.into() }
    }

    /// An [`Error::OutOfRange`].
    pub fn out_of_range(name: &'static str, reason: impl Into<String>) -> Self {
        Error::OutOfRange { name, reason: reason.into() }
    }
}
