//! Values of flags that both programs take.

use serde_json::{Map, Value as Json};

use super::Halt;
use crate::decode::KvType;
use crate::model::quantize::FileType;

/// What `--kv` may name.
pub(crate) const KV_NAMES: [&str; 3] = ["f16", "f32", "i8"];

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n >= 1).ok_or_else(|| "it must be a whole number from 1 up".into())
}

pub(crate) fn thread_count(text: &str) -> Result<usize, String> {
    at_least_one(text).ok().filter(|&n| n <= 1024).ok_or_else(|| "it must be a whole number from 1 to 1024".into())
}

/// The cache type called `name`.
pub(crate) fn kv_type(name: &str) -> Result<KvType, Halt> {
    let named = KvType::ALL.into_iter().find(|kind| kind.name() == name);
    named.ok_or_else(|| Halt::Usage(format!("--kv {name}: it must be {}", KV_NAMES.join(" or "))))
}

/// The type of file called `name`.
pub(crate) fn file_type(name: &str) -> Result<FileType, String> {
    FileType::named(name).ok_or_else(|| format!("types are {}", FileType::names().collect::<Vec<_>>().join(", ")))
}

/// The variables of `--template-arg KEY=JSON`.
pub(crate) fn template_variables(arguments: &[String]) -> Result<Map<String, Json>, Halt> {
    let variable = |argument: &String| {
        let (key, value) = argument.split_once('=').ok_or("it must be KEY=JSON")?;
        let json = serde_json::from_str(value).map_err(|_| "the value is no JSON; put quotes around a text, as in KEY='\"text\"'")?;
        Ok((key.to_owned(), json))
    };
    arguments.iter().map(|a| variable(a).map_err(|why: &str| Halt::Usage(format!("--template-arg {a}: {why}")))).collect()
}
