//! Text: tokens, chat templates, and streams of characters.

mod charsmap;
mod chat;
mod encoder;
mod pretokenizer;
mod python;
mod steps;
mod stream;
mod template;
mod tokenizer;
mod vocabulary;

pub(crate) use charsmap::{is_sound as is_sound_charsmap, of_base64 as charsmap_of_base64};
pub use chat::{THINKING, encode_chat};
pub(crate) use pretokenizer::{Cut, DIGITS, GPT2, ONE_DIGIT, PUNCTUATION, pre_tokenizer_name};
pub use stream::{StopStrings, StreamDecoder};
pub use template::{ChatTemplate, Now, RenderOptions, template_of};
pub use tokenizer::{Encode, Tokenizer};
pub(crate) use vocabulary::END_IDS;
pub use vocabulary::{TokenType, Vocabulary, VocabularyKind};
