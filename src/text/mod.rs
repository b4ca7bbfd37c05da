//! Text: tokens, chat templates, and streams of characters.

mod pretokenizer;
mod python;
mod stream;
mod template;
mod tokenizer;
mod vocabulary;

pub use stream::{StopStrings, StreamDecoder};
pub use template::{ChatTemplate, Now, RenderOptions, encode_chat};
pub use tokenizer::{Encode, Tokenizer};
pub use vocabulary::{TokenType, Vocabulary, VocabularyKind};
