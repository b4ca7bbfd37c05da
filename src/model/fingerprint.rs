//! What tells one model from another without reading all of it.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use super::gguf::Gguf;

/// Pieces of a tensor that are looked at, evenly apart, the first and the last among them.
const PIECES: usize = 4;
/// Bytes of a piece.
const PIECE: usize = 256;

/// A hash over all metadata, the tensor table and some weights of every tensor.
///
/// Two files with the same one give the same keys and values, unless somebody changed weights between the pieces looked at.
pub(super) fn fingerprint(file: &Gguf) -> [u8; 32] {
    let mut hash = Hash(Sha256::new());
    for (key, value) in file.metadata().iter() {
        hash.text(key);
        serde_json::to_writer(&mut hash, value).expect("values are JSON, and a hash takes every byte");
    }
    for tensor in file.tensors() {
        hash.text(&tensor.name);
        hash.text(&tensor.kind.to_string());
        tensor.shape.iter().for_each(|&n| hash.0.update((n as u64).to_le_bytes()));
        let bytes = file.bytes(tensor);
        if bytes.len() <= PIECES * PIECE {
            hash.0.update(bytes);
        } else {
            let last = bytes.len() - PIECE;
            (0..PIECES).for_each(|i| hash.0.update(&bytes[last / (PIECES - 1) * i..][..PIECE]));
        }
    }
    hash.0.finalize().into()
}

struct Hash(Sha256);

impl Hash {
    /// A text with its length, so that no two rows of texts are the same bytes.
    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }
}

impl Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
