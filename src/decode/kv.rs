//! The key-value cache of one sequence.
//!
//! Layers one behind the other, in each its heads, in each the layout of `rml_kernels_ref::kv`: the numbers of a head and,
//! where they have scales, those behind them.

mod filled;

use bytemuck::{cast_slice, cast_slice_mut};
use rml_kernels_ref::kv::{KEY_PANEL, KvHead, KvHeadMut, KvType};

use crate::exec::{Block, Chunks, HUGE_PAGE, Pages, free_memory, zeroed};
use crate::model::Config;
use crate::{Error, Result};

/// Keys and values of every layer for up to `capacity` positions.
#[derive(Debug)]
pub struct KvCache {
    kind: KvType,
    keys: Block,   // (layers, kv_heads), each (padded / 16, d, 16), then scales (padded / 16, groups, 16)
    values: Block, // (layers, kv_heads), each (padded, d), then scales (padded / 16, groups, 16)
    n_kv_heads: usize,
    d: usize,
    capacity: usize,
    padded: usize, // capacity rounded up to whole panels
    len: usize,
}

/// Bytes of a cache for `capacity` positions, or `None` if that is more than can be addressed.
pub fn kv_bytes(config: &Config, kind: KvType, capacity: usize) -> Option<usize> {
    let padded = capacity.checked_next_multiple_of(KEY_PANEL)?;
    [config.n_layers, config.n_kv_heads, kind.row_bytes(config.d_head), 2].iter().try_fold(padded, |n, &x| n.checked_mul(x))
}

/// Bytes of `capacity` positions of `position` bytes each, if these are free.
fn check_room(kind: KvType, capacity: usize, position: usize, free: Option<u64>) -> Result<usize> {
    let bytes = capacity.checked_next_multiple_of(KEY_PANEL).and_then(|padded| padded.checked_mul(position));
    let free = free.unwrap_or(isize::MAX as u64);
    match bytes {
        Some(bytes) if bytes as u64 <= free => Ok(bytes),
        _ => {
            let fit = free / position as u64 / KEY_PANEL as u64 * KEY_PANEL as u64;
            let (name, need) = (kind.name(), (capacity as u128 * position as u128) >> 20);
            let reason = format!(
                "{capacity} positions need {need} MiB for keys and values in {name}, and {} MiB are free; at most {fit} fit",
                free >> 20
            );
            Err(Error::out_of_range("context size", reason))
        }
    }
}

impl KvCache {
    /// An empty cache for `capacity` positions.
    ///
    /// # Errors
    /// If `capacity` is 0, or there is no memory for it: the error says how many positions there is memory for.
    pub fn new(config: &Config, kind: KvType, capacity: usize) -> Result<Self> {
        if capacity == 0 {
            return Err(Error::invalid("context size", "0; it must be at least 1"));
        }
        let position =
            [config.n_layers, config.n_kv_heads, kind.row_bytes(config.d_head), 2].iter().fold(1_usize, |n, &x| n.saturating_mul(x));
        let half = check_room(kind, capacity, position, free_memory())? / 2;
        // Heads fill from their starts: if each lay in a huge page of its own, the first token would take all of the cache.
        let head_bytes = half / (config.n_layers * config.n_kv_heads).max(1);
        let pages = if head_bytes >= HUGE_PAGE { Pages::Huge } else { Pages::Small };
        Ok(KvCache {
            kind,
            keys: zeroed(half, "context size", pages)?,
            values: zeroed(half, "context size", pages)?,
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

    /// Bytes of the keys of one head, scales included; of its values too.
    fn head_bytes(&self) -> usize {
        self.padded * self.kind.row_bytes(self.d)
    }

    /// The cache of one head.
    pub(super) fn head(&self, layer: usize, head: usize) -> KvHead<'_> {
        let (len, bytes) = (self.head_len(), self.head_bytes());
        let at = (layer * self.n_kv_heads + head) * bytes;
        let (keys, values) = (&self.keys[at..][..bytes], &self.values[at..][..bytes]);
        match self.kind {
            KvType::F16 => KvHead::F16 { k: cast_slice(keys), v: cast_slice(values) },
            KvType::F32 => KvHead::F32 { k: cast_slice(keys), v: cast_slice(values) },
            KvType::I8 => {
                let ((k, k_scale), (v, v_scale)) = (keys.split_at(len), values.split_at(len));
                KvHead::I8 { k: cast_slice(k), v: cast_slice(v), k_scale: cast_slice(k_scale), v_scale: cast_slice(v_scale) }
            }
        }
    }

    /// The bytes of one layer's keys and values, a part a head; [`head_mut`] says what they are.
    pub(super) fn heads_mut(&mut self, layer: usize) -> (Chunks<'_, u8>, Chunks<'_, u8>) {
        let head_bytes = self.head_bytes();
        let layer_bytes = self.n_kv_heads * head_bytes;
        let range = layer * layer_bytes..(layer + 1) * layer_bytes;
        (Chunks::new(&mut self.keys[range.clone()], head_bytes), Chunks::new(&mut self.values[range], head_bytes))
    }
}

/// The cache of one head of `d` numbers a position, from its bytes.
pub(super) fn head_mut<'a>(kind: KvType, d: usize, keys: &'a mut [u8], values: &'a mut [u8]) -> KvHeadMut<'a> {
    match kind {
        KvType::F16 => KvHeadMut::F16 { k: cast_slice_mut(keys), v: cast_slice_mut(values) },
        KvType::F32 => KvHeadMut::F32 { k: cast_slice_mut(keys), v: cast_slice_mut(values) },
        KvType::I8 => {
            let len = keys.len() / kind.row_bytes(d) * d;
            let ((k, k_scale), (v, v_scale)) = (keys.split_at_mut(len), values.split_at_mut(len));
            KvHeadMut::I8 { k: cast_slice_mut(k), v: cast_slice_mut(v), k_scale: cast_slice_mut(k_scale), v_scale: cast_slice_mut(v_scale) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 16 positions of 1000 bytes are 16000 bytes; 100 are padded to 112.
    #[test]
    fn a_context_that_does_not_fit_is_refused_with_the_one_that_does() {
        let check = |capacity, free| check_room(KvType::I8, capacity, 1000, free);
        assert_eq!(check(100, Some(112_000)).unwrap(), 112_000);
        let told = |capacity, free: u64| check(capacity, Some(free)).unwrap_err().to_string();
        assert!(told(100, 111_999).contains("100 positions") && told(100, 111_999).contains("in i8"));
        assert!(told(100, 111_999).ends_with("at most 96 fit"), "{}", told(100, 111_999));
        assert!(told(usize::MAX, 15_999).ends_with("at most 0 fit"));
        assert!(check(usize::MAX / 1000, None).is_err() && check(1 << 40, None).is_ok(), "where nobody says how much is free");
    }
}
