//! Values as Python prints them, which is what chat templates were written for.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};

/// Prints a value where a template says `{{ value }}`.
pub(super) fn write(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let word = match value.kind() {
        ValueKind::Bool => Some(if value.is_true() { "True" } else { "False" }),
        ValueKind::None => Some("None"),
        _ => None,
    };
    match word {
        Some(word) => out.write_str(word).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    }
}

/// `json.dumps(value, ensure_ascii=False)` with Python's spaces; `indent` as there.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let sort: Option<bool> = kwargs.get("sort_keys")?;
    let _: Option<bool> = kwargs.get("ensure_ascii")?;
    let _: Option<Value> = kwargs.get("separators")?;
    kwargs.assert_all_used()?;
    let json = serde_json::to_value(value).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    let mut text = String::new();
    dump(&json, indent, sort.unwrap_or(false), 0, &mut text);
    Ok(Value::from_safe_string(text))
}

fn dump(value: &serde_json::Value, indent: Option<usize>, sort: bool, depth: usize, out: &mut String) {
    use serde_json::Value as Json;
    let newline = |out: &mut String, depth: usize| {
        if let Some(n) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', n * depth));
        }
    };
    let comma = |out: &mut String, first: bool| {
        if !first {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
    };
    match value {
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                comma(out, i == 0);
                newline(out, depth + 1);
                dump(item, indent, sort, depth + 1, out);
            }
            newline(out, depth);
            out.push(']');
        }
        Json::Object(fields) if !fields.is_empty() => {
            let mut fields: Vec<_> = fields.iter().collect();
            if sort {
                fields.sort_by_key(|(k, _)| *k);
            }
            out.push('{');
            for (i, (key, item)) in fields.into_iter().enumerate() {
                comma(out, i == 0);
                newline(out, depth + 1);
                out.push_str(&Json::String(key.clone()).to_string());
                out.push_str(": ");
                dump(item, indent, sort, depth + 1, out);
            }
            newline(out, depth);
            out.push('}');
        }
        // Numbers, texts, words and empty lists look alike in both.
        other => out.push_str(&other.to_string()),
    }
}
