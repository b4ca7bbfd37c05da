//! Sessions in files: what was said need not be run again.
//!
//! A file is a header of [`HEADER`] bytes, the attachment, the tokens, the filled part of the cache, and the SHA-256 of all
//! that. Numbers are little-endian. A file gets its name when it is whole; nothing of it is believed before its length and
//! its checksum are right.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use super::{Session, SplitMix64};
use crate::decode::KvType;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"rml-kv\r\n";
/// Raised when the layout changes, and when an operation of the forward pass comes to mean something else: a cache from
/// before would then not be what a fresh run gives.
const VERSION: u32 = 1;
/// Magic, version, cache type, fingerprint; the sampler's state; bytes of the attachment, tokens, bytes of the cache.
const HEADER: usize = 8 + 4 + 4 + 32 + 4 * 8;
const CHECKSUM: usize = 32;
/// Most bytes of an attachment.
const LARGEST_ATTACHMENT: usize = 64 << 20;

/// What the header says.
struct Header {
    kv: u32,
    fingerprint: [u8; 32],
    rng: u64,
    attachment: u64, // bytes
    tokens: u64,
    cache: u64, // bytes
}

/// Added to the number of the cache type where the rotation is that of long contexts.
const LONG: u32 = 1 << 8;

/// The number of a cache type in a file.
fn kv_number(kv: KvType) -> u32 {
    match kv {
        KvType::F16 => 1,
        KvType::F32 => 2,
        KvType::I8 => 3,
    }
}

impl Header {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        [VERSION, self.kv].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend(self.fingerprint);
        [self.rng, self.attachment, self.tokens, self.cache].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes
    }

    /// The header, or why it is none.
    fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        if !bytes.starts_with(&MAGIC) {
            return Err("this is no saved session; name another file, or remove it".into());
        }
        let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        match u32_at(8) {
            Some(VERSION) => {}
            Some(version) => {
                return Err(format!("it was saved in version {version}, and this program reads {VERSION}; remove it and start over"));
            }
            None => return Err(cut_short()),
        }
        let u64_at = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let whole = || {
            let fingerprint = bytes.get(16..48)?.try_into().ok()?;
            let (kv, rng) = (u32_at(12)?, u64_at(48)?);
            Some(Header { kv, fingerprint, rng, attachment: u64_at(56)?, tokens: u64_at(64)?, cache: u64_at(72)? })
        };
        whole().ok_or_else(cut_short)
    }

    /// Bytes of the whole file.
    fn file_bytes(&self) -> Option<u64> {
        let tokens = self.tokens.checked_mul(4)?;
        [self.attachment, tokens, self.cache, CHECKSUM as u64].iter().try_fold(HEADER as u64, |n, &x| n.checked_add(x))
    }
}

fn cut_short() -> String {
    "it is cut short; remove it and start over".into()
}

impl Session {
    /// Saves tokens, cache and the sampler's state to a file, with `attachment`, which [`restore`](Self::restore) gives back.
    ///
    /// The file gets its name, and replaces an older one, when all of it is on the disk.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be written; [`Error::OutOfRange`] for an attachment of more than 64 MiB.
    pub fn save(&self, path: &Path, attachment: &[u8]) -> Result<()> {
        if attachment.len() > LARGEST_ATTACHMENT {
            return Err(Error::out_of_range("attachment", format!("{} bytes are more than {LARGEST_ATTACHMENT}", attachment.len())));
        }
        let part = part_path(path);
        let io_error = |source| Error::Io { path: path.to_owned(), action: "write", source };
        let written = self.write(&part, attachment).and_then(|()| fs::rename(&part, path));
        if written.is_err() {
            // What was wrong is told; that the rest of it cannot be removed either adds nothing.
            let _ = fs::remove_file(&part);
        }
        written.map_err(io_error)
    }

    fn write(&self, path: &Path, attachment: &[u8]) -> io::Result<()> {
        let cache = self.state.cache();
        let header = Header {
            kv: kv_number(cache.kind()) | self.rotation_number(),
            fingerprint: self.model.fingerprint(),
            rng: self.rng.state(),
            attachment: attachment.len() as u64,
            tokens: self.cached.len() as u64,
            cache: cache.filled_bytes(cache.len()) as u64,
        };
        let mut out = Hashed { inner: BufWriter::with_capacity(1 << 20, File::create(path)?), hash: Sha256::new() };
        out.write_all(&header.to_bytes())?;
        out.write_all(attachment)?;
        for token in &self.cached {
            out.write_all(&token.to_le_bytes())?;
        }
        cache.write_to(&mut out)?;
        let Hashed { mut inner, hash } = out;
        inner.write_all(&hash.finalize())?;
        inner.into_inner()?.sync_all()
    }

    /// Goes on from a file that [`save`](Self::save) wrote, and returns its attachment: what follows is, bit for bit, what would
    /// have followed then. Settings of the sampler and stop ids are this session's own.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::SavedSession`] if it is damaged, of another version, model or cache
    /// type, or has more tokens than this session has room for. This session is then as it was, or empty if the file changed
    /// while it was read.
    pub fn restore(&mut self, path: &Path) -> Result<Vec<u8>> {
        self.read(path).map_err(|refused| match refused {
            Refused::Io(source) => Error::Io { path: path.to_owned(), action: "read", source },
            Refused::Because(reason) => Error::SavedSession { path: path.to_owned(), reason },
        })
    }

    fn read(&mut self, path: &Path) -> std::result::Result<Vec<u8>, Refused> {
        let mut file = File::open(path)?;
        let header = check(&mut file)?;
        let capacity = self.context_size();
        self.check_fit(&header)?;
        // Both are bounded: by the check above, and by what `save` takes.
        let n_tokens = header.tokens as usize;
        file.seek(io::SeekFrom::Start(HEADER as u64))?;
        let mut from = BufReader::with_capacity(1 << 20, file);
        let mut attachment = vec![0; header.attachment as usize];
        from.read_exact(&mut attachment)?;
        let mut tokens = Vec::with_capacity(capacity);
        let n_vocab = self.model.config().n_vocab;
        for _ in 0..n_tokens {
            let mut bytes = [0; 4];
            from.read_exact(&mut bytes)?;
            let id = u32::from_le_bytes(bytes);
            if id as usize >= n_vocab {
                return Err(Refused::Because(format!(
                    "token {id} is not below the vocabulary's {n_vocab}; remove the file and start over"
                )));
            }
            tokens.push(id);
        }
        self.clear();
        self.state.cache_mut().read_from(n_tokens, &mut from)?;
        self.cached = tokens;
        self.rng = SplitMix64::new(header.rng);
        Ok(attachment)
    }

    /// [`LONG`] where the rotation is that of long contexts.
    fn rotation_number(&self) -> u32 {
        let is_long = self.model.config().rope.is_long(self.context_size());
        if is_long { LONG } else { 0 }
    }

    /// Whether what a whole file holds can be gone on with here.
    fn check_fit(&self, header: &Header) -> std::result::Result<(), Refused> {
        let cache = self.state.cache();
        let refuse = |reason: String| Err(Refused::Because(reason));
        if header.fingerprint != self.model.fingerprint() {
            return refuse("it was saved with another model; load that one, or name another file".into());
        }
        let long = self.rotation_number();
        if header.kv & LONG != long {
            let size = if long == 0 { "larger" } else { "smaller" };
            return refuse(format!(
                "this model rotates otherwise in a {size} context, which it was saved in; use the size it had then (--ctx)"
            ));
        }
        if header.kv & !LONG != kv_number(cache.kind()) {
            let saved = KvType::ALL.into_iter().find(|&kv| kv_number(kv) == header.kv & !LONG).map_or("unknown", KvType::name);
            return refuse(format!("its cache is of type {saved}, this session's of {}; use the same (--kv)", cache.kind().name()));
        }
        let (n, capacity) = (header.tokens, cache.capacity());
        if n > capacity as u64 {
            return refuse(format!("its {n} tokens are more than the context of {capacity}; use a context of at least {n} (--ctx)"));
        }
        if header.cache != cache.filled_bytes(n as usize) as u64 {
            return refuse(format!("its cache does not have the size of {n} tokens; remove it and start over"));
        }
        if header.attachment > LARGEST_ATTACHMENT as u64 {
            return refuse(format!("its attachment of {} bytes is more than {LARGEST_ATTACHMENT}; remove it", header.attachment));
        }
        Ok(())
    }
}

/// Why a file is not gone on with.
enum Refused {
    Io(io::Error),
    Because(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Io(error)
    }
}

/// Checks magic, version, length and checksum of a file.
fn check(file: &mut File) -> std::result::Result<Header, Refused> {
    let mut bytes = Vec::with_capacity(HEADER);
    file.take(HEADER as u64).read_to_end(&mut bytes)?;
    let header = Header::from_bytes(&bytes).map_err(Refused::Because)?;
    let len = file.metadata()?.len();
    match header.file_bytes() {
        Some(expected) if len == expected => {}
        Some(expected) if len < expected => return Err(Refused::Because(cut_short())),
        _ => return Err(Refused::Because("it is longer than it says; remove it and start over".into())),
    }
    let mut hash = Sha256::new();
    hash.update(&bytes);
    let mut left = len - (HEADER + CHECKSUM) as u64;
    let mut piece = vec![0; 1 << 16];
    while left > 0 {
        let n = left.min(piece.len() as u64) as usize;
        file.read_exact(&mut piece[..n])?;
        hash.update(&piece[..n]);
        left -= n as u64;
    }
    let mut checksum = [0; CHECKSUM];
    file.read_exact(&mut checksum)?;
    if hash.finalize()[..] != checksum {
        return Err(Refused::Because("it is damaged, as its checksum shows; remove it and start over".into()));
    }
    Ok(header)
}

/// Where a file is written before it gets its name: beside it, so that it can be renamed, and under a name that no other
/// process and no other session of this one writes to.
fn part_path(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

/// What is written is hashed too.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
