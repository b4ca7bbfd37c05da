//! Reading GGUF's numbers and strings. Every length is checked against the bytes that are left before it is used.

use super::metadata::{Array, Value};

/// A place in the file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What was wrong, without the file's name.
pub(super) type Read<T> = Result<T, String>;

/// Arrays within arrays deeper than this are refused: no writer makes them, and reading them takes the stack.
const DEEPEST: usize = 4;

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Byte offset of what is read next.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, n: u64, what: &str) -> Read<&'a [u8]> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.left()).ok_or_else(|| {
            format!(
                "{what} needs {n} bytes at byte {}, where {} are left; the file is damaged or its download is incomplete",
                self.at,
                self.left()
            )
        })?;
        let piece = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(piece)
    }

    fn number<const N: usize>(&mut self, what: &str) -> Read<[u8; N]> {
        self.take(N as u64, what).map(|b| b.try_into().expect("took N bytes"))
    }

    pub(super) fn u32(&mut self, what: &str) -> Read<u32> {
        self.number(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Read<u64> {
        self.number(what).map(u64::from_le_bytes)
    }

    /// A string that must be UTF-8: keys and names.
    pub(super) fn name(&mut self, what: &str) -> Read<&'a str> {
        let at = self.at;
        let len = self.u64(what)?;
        std::str::from_utf8(self.take(len, what)?).map_err(|_| format!("{what} at byte {at} is not UTF-8; the file is damaged"))
    }

    /// A string value. Some vocabularies hold pieces that are not UTF-8; they are read with U+FFFD in place of bad bytes.
    fn string(&mut self, what: &str) -> Read<String> {
        let len = self.u64(what)?;
        Ok(String::from_utf8_lossy(self.take(len, what)?).into_owned())
    }

    /// A count of things that take at least `least` bytes each.
    pub(super) fn count(&mut self, what: &str, least: u64) -> Read<usize> {
        let at = self.at;
        let n = self.u64(what)?;
        match n.checked_mul(least) {
            Some(bytes) if bytes <= self.left() as u64 => Ok(n as usize),
            _ => Err(format!(
                "{what} at byte {at} is {n}, more than the rest of the file can hold; the file is damaged or its download is incomplete"
            )),
        }
    }

    /// A value of the type numbered `kind`.
    pub(super) fn value(&mut self, kind: u32, key: &str) -> Read<Value> {
        Ok(match kind {
            0 => Value::U64(self.number::<1>(key)?[0].into()),
            1 => Value::I64(i8::from_le_bytes(self.number(key)?).into()),
            2 => Value::U64(u16::from_le_bytes(self.number(key)?).into()),
            3 => Value::I64(i16::from_le_bytes(self.number(key)?).into()),
            4 => Value::U64(self.u32(key)?.into()),
            5 => Value::I64(i32::from_le_bytes(self.number(key)?).into()),
            6 => Value::F64(f32::from_le_bytes(self.number(key)?).into()),
            7 => Value::Bool(self.bool(key)?),
            8 => Value::String(self.string(key)?),
            9 => Value::Array(self.array(key, 0)?),
            10 => Value::U64(self.u64(key)?),
            11 => Value::I64(i64::from_le_bytes(self.number(key)?)),
            12 => Value::F64(f64::from_le_bytes(self.number(key)?)),
            _ => return Err(unknown_type(key, kind, self.at)),
        })
    }

    fn bool(&mut self, key: &str) -> Read<bool> {
        match self.number::<1>(key)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            b => Err(format!("{key} at byte {} is the boolean {b}; only 0 and 1 are", self.at - 1)),
        }
    }

    fn array(&mut self, key: &str, depth: usize) -> Read<Array> {
        let kind = self.u32(key)?;
        let least = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => 12,
            _ => return Err(unknown_type(key, kind, self.at)),
        };
        let n = self.count(key, least)?;
        let mut items = |one: &mut dyn FnMut(&mut Self) -> Read<()>| (0..n).try_for_each(|_| one(self));
        Ok(match kind {
            6 | 12 => {
                let mut v = Vec::with_capacity(n);
                items(&mut |c| {
                    v.push(if kind == 6 { f32::from_le_bytes(c.number(key)?).into() } else { f64::from_le_bytes(c.number(key)?) });
                    Ok(())
                })?;
                Array::F64(v)
            }
            7 => {
                let mut v = Vec::with_capacity(n);
                items(&mut |c| c.bool(key).map(|b| v.push(b)))?;
                Array::Bool(v)
            }
            8 => {
                let mut v = Vec::with_capacity(n);
                items(&mut |c| c.string(key).map(|s| v.push(s)))?;
                Array::String(v)
            }
            9 if depth == DEEPEST => return Err(format!("{key} holds arrays nested deeper than {DEEPEST}")),
            9 => {
                let mut v = Vec::new();
                items(&mut |c| c.array(key, depth + 1).map(|a| v.push(a)))?;
                Array::Array(v)
            }
            10 => {
                let mut v = Vec::with_capacity(n);
                items(&mut |c| c.u64(key).map(|x| v.push(x)))?;
                Array::U64(v)
            }
            _ => {
                let mut v = Vec::with_capacity(n);
                items(&mut |c| {
                    v.push(match c.value(kind, key)? {
                        Value::U64(x) => x as i64, // at most 32 bits here
                        Value::I64(x) => x,
                        _ => unreachable!("a type of whole numbers"),
                    });
                    Ok(())
                })?;
                Array::I64(v)
            }
        })
    }
}

fn unknown_type(key: &str, kind: u32, at: usize) -> String {
    format!("{key} at byte {} has the unknown type {kind}; the file is damaged or newer than this program", at - 4)
}
