//! What a cache holds, as bytes that go into a file and come back: for each head its keys in the panels that are filled, then
//! its values, each with their scales behind them. Bytes that belong to no position are 0.

use std::io::{self, Read, Write};
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_PANEL, KvType, kv_groups};

use super::KvCache;

impl KvCache {
    /// How many bytes [`write_to`](Self::write_to) writes for `len` positions.
    pub(crate) fn filled_bytes(&self, len: usize) -> usize {
        let parts = Filled::new(self, len);
        self.keys.len() / self.head_bytes() * parts.parts().iter().map(|p| p.range.len()).sum::<usize>()
    }

    /// Writes the positions that are filled.
    pub(crate) fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let filled = Filled::new(self, self.len);
        for start in (0..self.keys.len() / self.head_bytes()).map(|head| head * self.head_bytes()) {
            for part in filled.parts() {
                let of = if part.of_keys { &self.keys } else { &self.values };
                let bytes = &of[start..][part.range.clone()];
                let whole = bytes.len() - part.panel.min(bytes.len());
                out.write_all(&bytes[..whole])?;
                // The last panel without what is left in it of positions that were forgotten.
                let mut panel = bytes[whole..].to_vec();
                for row in panel.chunks_exact_mut(part.row) {
                    row[part.used..].fill(0);
                }
                out.write_all(&panel)?;
            }
        }
        Ok(())
    }

    /// Reads `len` positions, no more than there is room for. If that fails none is filled.
    pub(crate) fn read_from(&mut self, len: usize, from: &mut dyn Read) -> io::Result<()> {
        assert!(len <= self.capacity, "{len} positions of {}", self.capacity);
        self.len = 0;
        let (filled, head_bytes) = (Filled::new(self, len), self.head_bytes());
        for start in (0..self.keys.len() / head_bytes).map(|head| head * head_bytes) {
            for part in filled.parts() {
                let of = if part.of_keys { &mut self.keys } else { &mut self.values };
                from.read_exact(&mut of[start..][part.range.clone()])?;
            }
        }
        self.len = len;
        Ok(())
    }
}

/// A run of bytes of a head.
#[derive(Clone)]
struct Part {
    of_keys: bool,
    range: Range<usize>,
    panel: usize, // bytes of the last panel
    row: usize,   // bytes of one component of 16 positions, in a panel
    used: usize,  // bytes of a row in the last panel that belong to positions
}

/// The bytes of a head that its first positions are in.
struct Filled([Part; 4]);

impl Filled {
    fn new(cache: &KvCache, len: usize) -> Self {
        let d = cache.d;
        let (number, groups) = match cache.kind {
            KvType::F16 => (2, 0),
            KvType::F32 => (4, 0),
            KvType::I8 => (1, kv_groups(d)),
        };
        let (n_panels, numbers) = (len.div_ceil(KEY_PANEL), cache.head_len() * number);
        let in_last = len - n_panels.saturating_sub(1) * KEY_PANEL;
        // `n` components of `size` bytes each, from `start` on.
        let panels = |of_keys, start: usize, n: usize, size: usize| Part {
            of_keys,
            range: start..start + n_panels * n * KEY_PANEL * size,
            panel: n * KEY_PANEL * size,
            row: KEY_PANEL * size,
            used: in_last * size,
        };
        let rows = Part { of_keys: false, range: 0..len * d * number, panel: 0, row: 1, used: 1 };
        Filled([panels(true, 0, d, number), panels(true, numbers, groups, 2), rows, panels(false, numbers, groups, 2)])
    }

    fn parts(&self) -> &[Part; 4] {
        &self.0
    }
}
