//! Files put together by hand, byte by byte, so that they can be wrong in any way.

/// The parts of a file. Counts are those of the parts unless set.
#[derive(Clone)]
pub(crate) struct Forged {
    pub(crate) version: u32,
    pub(crate) n_tensors: Option<u64>,
    pub(crate) n_entries: Option<u64>,
    pub(crate) entries: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
}

impl Default for Forged {
    fn default() -> Self {
        Forged { version: 3, n_tensors: None, n_entries: None, entries: Vec::new(), tensors: Vec::new(), data: Vec::new() }
    }
}

impl Forged {
    /// The file, with the data at the next multiple of 32.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_entries.unwrap_or(self.entries.len() as u64).to_le_bytes());
        out.extend(self.entries.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }
}

/// A file with one entry, of the type numbered `id`.
pub(crate) fn with_entry(id: u32, value: &[u8]) -> Vec<u8> {
    Forged { entries: vec![entry(b"k", id, value)], ..Forged::default() }.bytes()
}

/// A file with one tensor and 256 bytes of data.
pub(crate) fn with_tensor(tensor: Vec<u8>) -> Vec<u8> {
    Forged { tensors: vec![tensor], data: vec![0; 256], ..Forged::default() }.bytes()
}

pub(crate) fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

pub(crate) fn entry(key: &[u8], id: u32, value: &[u8]) -> Vec<u8> {
    [text(key), id.to_le_bytes().to_vec(), value.to_vec()].concat()
}

/// An array value that says it has `n` elements.
pub(crate) fn array(element: u32, n: u64, bytes: &[u8]) -> Vec<u8> {
    [&element.to_le_bytes()[..], &n.to_le_bytes(), bytes].concat()
}

pub(crate) fn tensor(name: &[u8], shape: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut out = text(name);
    out.extend((shape.len() as u32).to_le_bytes());
    shape.iter().for_each(|d| out.extend(d.to_le_bytes()));
    out.extend(kind.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out
}
