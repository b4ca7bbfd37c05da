//! The key-value cache of one sequence.
//!
//! Layers one behind the other, in each its heads, in each the layout of `rml_kernels_ref::kv`.

use bytemuck::{cast_slice, cast_slice_mut};
use rml_kernels_ref::kv::{KEY_PANEL, KvHead, KvHeadMut, KvType};

use crate::exec::{Block, Chunks, zeroed};
use crate::model::Config;
use crate::{Error, Result};

/// Keys and values of every layer for up to `capacity` positions.
#[derive(Debug)]
pub struct KvCache {
    kind: KvType,
    keys: Block,   // (layers, kv_heads, padded / 16, d, 16)
    values: Block, // (layers, kv_heads, padded, d)
    n_kv_heads: usize,
    d: usize,
    capacity: usize,
    padded: usize, // capacity rounded up to whole panels
    len: usize,
}

/// Bytes of one number.
pub(super) fn kv_number_bytes(kind: KvType) -> usize {
    match kind {
        KvType::F16 => 2,
        KvType::F32 => 4,
    }
}

/// Bytes of a cache for `capacity` positions, or `None` if that is more than can be addressed.
pub fn kv_bytes(config: &Config, kind: KvType, capacity: usize) -> Option<usize> {
    let padded = capacity.checked_next_multiple_of(KEY_PANEL)?;
    [config.n_layers, config.n_kv_heads, config.d_head, kv_number_bytes(kind), 2].iter().try_fold(padded, |n, &x| n.checked_mul(x))
}

impl KvCache {
    /// An empty cache for `capacity` positions.
    ///
    /// # Errors
    /// If `capacity` is 0 or there is no memory for it.
    pub fn new(config: &Config, kind: KvType, capacity: usize) -> Result<Self> {
        if capacity == 0 {
            return Err(Error::invalid("context size", "0; it must be at least 1"));
        }
        let too_large = || Error::out_of_range("context size", format!("{capacity} positions need more memory than can be addressed"));
        let half = kv_bytes(config, kind, capacity).ok_or_else(too_large)? / 2;
        Ok(KvCache {
            kind,
            keys: zeroed(half, "context size")?,
            values: zeroed(half, "context size")?,
            n_kv_heads: config.n_kv_heads,
            d: config.d_head,
            capacity,
            padded: capacity.next_multiple_of(KEY_PANEL),
            len: 0,
        })
    }

    /// Positions filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Type of the numbers.
    pub fn kind(&self) -> KvType {
        self.kind
    }

    /// Forgets all positions from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.len += n;
        debug_assert!(self.len <= self.capacity);
    }

    /// Numbers of the keys of one head; of its values too.
    fn head_len(&self) -> usize {
        self.padded * self.d
    }

    /// The cache of one head.
    pub(super) fn head(&self, layer: usize, head: usize) -> KvHead<'_> {
        let len = self.head_len();
        let at = (layer * self.n_kv_heads + head) * len;
        match self.kind {
            KvType::F16 => KvHead::F16 { k: &cast_slice(&self.keys)[at..][..len], v: &cast_slice(&self.values)[at..][..len] },
            KvType::F32 => KvHead::F32 { k: &cast_slice(&self.keys)[at..][..len], v: &cast_slice(&self.values)[at..][..len] },
        }
    }

    /// The bytes of one layer's keys and values, a part a head; [`head_mut`] says what they are.
    pub(super) fn heads_mut(&mut self, layer: usize) -> (Chunks<'_, u8>, Chunks<'_, u8>) {
        let head_bytes = self.head_len() * kv_number_bytes(self.kind);
        let layer_bytes = self.n_kv_heads * head_bytes;
        let range = layer * layer_bytes..(layer + 1) * layer_bytes;
        (Chunks::new(&mut self.keys[range.clone()], head_bytes), Chunks::new(&mut self.values[range], head_bytes))
    }
}

/// The cache of one head, from its bytes.
pub(super) fn head_mut<'a>(kind: KvType, keys: &'a mut [u8], values: &'a mut [u8]) -> KvHeadMut<'a> {
    match kind {
        KvType::F16 => KvHeadMut::F16 { k: cast_slice_mut(keys), v: cast_slice_mut(values) },
        KvType::F32 => KvHeadMut::F32 { k: cast_slice_mut(keys), v: cast_slice_mut(values) },
    }
}
