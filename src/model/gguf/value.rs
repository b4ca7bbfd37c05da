//! Values of metadata, in the types of GGUF.

use serde::Serialize;

use super::cursor::{Cursor, Read};
use super::strings::Strings;

/// A value. The numbers of the types are GGUF's; see `type_id`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names say the type")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array, dense in its element type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names say the type")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Strings(Strings),
    Arrays(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// GGUF's numbers of the value types that are not plain numbers.
pub(super) const BOOL: u32 = 7;
pub(super) const STRING: u32 = 8;
pub(super) const ARRAY: u32 = 9;

/// Arrays within arrays: no writer is known to nest at all, and the bound keeps the stack small.
const DEEPEST: usize = 8;

impl Value {
    /// A whole number that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(x) => Some(x.into()),
            Value::U16(x) => Some(x.into()),
            Value::U32(x) => Some(x.into()),
            Value::U64(x) => Some(x),
            Value::I8(x) => x.try_into().ok(),
            Value::I16(x) => x.try_into().ok(),
            Value::I32(x) => x.try_into().ok(),
            Value::I64(x) => x.try_into().ok(),
            _ => None,
        }
    }

    /// A number with a fraction.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            _ => None,
        }
    }

    /// GGUF's number of the type.
    pub(super) fn type_id(&self) -> u32 {
        match self {
            Value::U8(_) => 0,
            Value::I8(_) => 1,
            Value::U16(_) => 2,
            Value::I16(_) => 3,
            Value::U32(_) => 4,
            Value::I32(_) => 5,
            Value::F32(_) => 6,
            Value::Bool(_) => BOOL,
            Value::String(_) => STRING,
            Value::Array(_) => ARRAY,
            Value::U64(_) => 10,
            Value::I64(_) => 11,
            Value::F64(_) => 12,
        }
    }

    /// What the value is, for messages: `a text`, `u32 7`, `an array of 3 i32`.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::U8(x) => format!("u8 {x}"),
            Value::I8(x) => format!("i8 {x}"),
            Value::U16(x) => format!("u16 {x}"),
            Value::I16(x) => format!("i16 {x}"),
            Value::U32(x) => format!("u32 {x}"),
            Value::I32(x) => format!("i32 {x}"),
            Value::F32(x) => format!("f32 {x}"),
            Value::Bool(x) => format!("bool {x}"),
            Value::String(_) => "a text".into(),
            Value::Array(a) => format!("an array of {} {}", a.len(), a.element_name()),
            Value::U64(x) => format!("u64 {x}"),
            Value::I64(x) => format!("i64 {x}"),
            Value::F64(x) => format!("f64 {x}"),
        }
    }

    /// Reads a value of type `id`, which belongs to `what`.
    pub(super) fn read(c: &mut Cursor<'_>, id: u32, what: &str, notes: &mut Vec<String>) -> Read<Value> {
        Ok(match id {
            0 => Value::U8(u8::from_le_bytes(c.array(what)?)),
            1 => Value::I8(i8::from_le_bytes(c.array(what)?)),
            2 => Value::U16(u16::from_le_bytes(c.array(what)?)),
            3 => Value::I16(i16::from_le_bytes(c.array(what)?)),
            4 => Value::U32(c.u32(what)?),
            5 => Value::I32(i32::from_le_bytes(c.array(what)?)),
            6 => Value::F32(f32::from_le_bytes(c.array(what)?)),
            BOOL => Value::Bool(boolean(c.array::<1>(what)?[0], c.at() - 1, what)?),
            STRING => {
                let bytes = c.text(what)?.to_vec();
                Value::String(String::from_utf8(bytes).unwrap_or_else(|e| {
                    notes.push(format!("{what} is not valid UTF-8; its bad bytes are read as U+FFFD"));
                    String::from_utf8_lossy(e.as_bytes()).into_owned()
                }))
            }
            ARRAY => Value::Array(Array::read(c, what, notes, DEEPEST)?),
            10 => Value::U64(c.u64(what)?),
            11 => Value::I64(i64::from_le_bytes(c.array(what)?)),
            12 => Value::F64(f64::from_le_bytes(c.array(what)?)),
            _ => return Err(format!("{what} has the unknown value type {id} at {}; the file is damaged", c.at() - 4)),
        })
    }
}

fn boolean(byte: u8, at: usize, what: &str) -> Read<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(format!("{what} holds {byte} at {at}, where a truth value is 0 or 1; the file is damaged")),
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(a) => a.len(),
            Array::I8(a) => a.len(),
            Array::U16(a) => a.len(),
            Array::I16(a) => a.len(),
            Array::U32(a) => a.len(),
            Array::I32(a) => a.len(),
            Array::F32(a) => a.len(),
            Array::Bool(a) => a.len(),
            Array::Strings(a) => a.len(),
            Array::Arrays(a) => a.len(),
            Array::U64(a) => a.len(),
            Array::I64(a) => a.len(),
            Array::F64(a) => a.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name and GGUF's number of the element type.
    fn element(&self) -> (&'static str, u32) {
        match self {
            Array::U8(_) => ("u8", 0),
            Array::I8(_) => ("i8", 1),
            Array::U16(_) => ("u16", 2),
            Array::I16(_) => ("i16", 3),
            Array::U32(_) => ("u32", 4),
            Array::I32(_) => ("i32", 5),
            Array::F32(_) => ("f32", 6),
            Array::Bool(_) => ("bool", BOOL),
            Array::Strings(_) => ("texts", STRING),
            Array::Arrays(_) => ("arrays", ARRAY),
            Array::U64(_) => ("u64", 10),
            Array::I64(_) => ("i64", 11),
            Array::F64(_) => ("f64", 12),
        }
    }

    /// Name of the element type, for people.
    pub fn element_name(&self) -> &'static str {
        self.element().0
    }

    /// GGUF's number of the element type.
    pub(super) fn element_id(&self) -> u32 {
        self.element().1
    }

    /// Reads an array that may hold arrays to the given depth.
    fn read(c: &mut Cursor<'_>, what: &str, notes: &mut Vec<String>, depth: usize) -> Read<Array> {
        let at = c.at();
        let id = c.u32(what)?;
        Ok(match id {
            0 => Array::U8(numbers(c, what, u8::from_le_bytes)?),
            1 => Array::I8(numbers(c, what, i8::from_le_bytes)?),
            2 => Array::U16(numbers(c, what, u16::from_le_bytes)?),
            3 => Array::I16(numbers(c, what, i16::from_le_bytes)?),
            4 => Array::U32(numbers(c, what, u32::from_le_bytes)?),
            5 => Array::I32(numbers(c, what, i32::from_le_bytes)?),
            6 => Array::F32(numbers(c, what, f32::from_le_bytes)?),
            BOOL => {
                let first = c.at() + 8;
                let bytes = numbers(c, what, u8::from_le_bytes)?;
                Array::Bool(bytes.into_iter().enumerate().map(|(i, b)| boolean(b, first + i, what)).collect::<Read<_>>()?)
            }
            STRING => Array::Strings(Strings::read(c, what, notes)?),
            ARRAY if depth == 0 => return Err(format!("{what} nests arrays more than {DEEPEST} deep at {at}; the file is damaged")),
            ARRAY => {
                // An element type and a count, for each.
                let n = c.count(4 + 8, what)?;
                Array::Arrays((0..n).map(|_| Array::read(c, what, notes, depth - 1)).collect::<Read<_>>()?)
            }
            10 => Array::U64(numbers(c, what, u64::from_le_bytes)?),
            11 => Array::I64(numbers(c, what, i64::from_le_bytes)?),
            12 => Array::F64(numbers(c, what, f64::from_le_bytes)?),
            _ => return Err(format!("{what} has the unknown element type {id} at {at}; the file is damaged")),
        })
    }
}

fn numbers<T, const N: usize>(c: &mut Cursor<'_>, what: &str, from: impl Fn([u8; N]) -> T) -> Read<Vec<T>> {
    let n = c.count(N, what)?;
    let bytes = c.take((n * N) as u64, what)?;
    Ok(bytes.as_chunks().0.iter().map(|&b| from(b)).collect())
}
