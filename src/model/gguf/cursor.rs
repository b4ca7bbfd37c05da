//! Reading numbers and texts from bytes that nobody vouches for.
//!
//! Every length is compared with what is left before it is used or allocated, so memory stays within a small multiple of
//! the file's size. Whatever is validated is copied first: mapped bytes may change under the reader.

/// A result whose error is what is wrong, at which byte, and the remedy; the file's name is added by the caller.
pub(super) type Read<T> = Result<T, String>;

/// Longest key that the specification allows, taken as the bound of tensor names too.
const LONGEST_NAME: u64 = 65_535;

/// A place in the bytes of a file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `n_bytes`, which hold `what`.
    pub(super) fn take(&mut self, n_bytes: u64, what: &str) -> Read<&'a [u8]> {
        match usize::try_from(n_bytes) {
            Ok(n) if n <= self.left() => {
                let taken = &self.bytes[self.at..][..n];
                self.at += n;
                Ok(taken)
            }
            _ => Err(format!(
                "{what} needs {n_bytes} bytes at {}, file ends at {}; the download is incomplete or the file is damaged",
                self.at,
                self.bytes.len()
            )),
        }
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Read<[u8; N]> {
        let taken = self.take(N as u64, what)?;
        Ok(taken.try_into().expect("take gave N bytes"))
    }

    pub(super) fn u32(&mut self, what: &str) -> Read<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Read<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things that each take `least` bytes or more, so that there cannot be more of them than bytes left.
    pub(super) fn count(&mut self, least: usize, what: &str) -> Read<usize> {
        let at = self.at;
        let n = self.u64(what)?;
        match usize::try_from(n) {
            Ok(n) if n <= self.left() / least => Ok(n),
            _ => Err(format!(
                "{what}, at {at}, says {n}, for which the {} bytes that follow have no room; \
                 the download is incomplete or the file is damaged",
                self.left()
            )),
        }
    }

    /// The bytes of a text.
    pub(super) fn text(&mut self, what: &str) -> Read<&'a [u8]> {
        let n_bytes = self.u64(what)?;
        self.take(n_bytes, what)
    }

    /// A key or a tensor's name: neither empty nor overlong, valid UTF-8, and safe to print.
    pub(super) fn name(&mut self, what: &str) -> Read<String> {
        let at = self.at;
        let n_bytes = self.u64(what)?;
        if n_bytes == 0 {
            return Err(format!("{what}, at {at}, is empty; the file is damaged or was written wrongly"));
        }
        if n_bytes > LONGEST_NAME {
            return Err(format!("{what}, at {at}, says that it is {n_bytes} bytes long, {LONGEST_NAME} are allowed; the file is damaged"));
        }
        let name = String::from_utf8(self.take(n_bytes, what)?.to_vec())
            .map_err(|_| format!("{what}, at {at}, is not valid UTF-8; the file is damaged"))?;
        if name.chars().any(char::is_control) {
            return Err(format!("{what}, at {at}, holds a control character: {name:?}; the file is damaged"));
        }
        Ok(name)
    }
}
