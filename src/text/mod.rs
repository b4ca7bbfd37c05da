//! Text: tokens, chat templates, and streams of characters.

mod charsmap;
mod chat;
mod encoder;
mod pretokenizer;
mod python;
mod stream;
mod template;
mod tokenizer;
mod vocabulary;

pub(crate) use charsmap::is_sound as is_sound_charsmap;
pub use chat::{THINKING, encode_chat};
pub(crate) use pretokenizer::pre_tokenizer_name;
pub use stream::{StopStrings, StreamDecoder};
pub use template::{ChatTemplate, Now, RenderOptions, template_of};
pub use tokenizer::{Encode, Tokenizer};
pub(crate) use vocabulary::END_IDS;
pub use vocabulary::{TokenType, Vocabulary, VocabularyKind};
