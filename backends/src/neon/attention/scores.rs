//! Scores: queries times keys, 16 keys to a panel.

#![allow(clippy::needless_range_loop, reason = "rows, panels and columns index several arrays at once")]

use std::arch::aarch64::*;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_PANEL, KV_GROUP, kv_groups};

use super::block::{Block, Scores};
use super::element::Element;
use crate::neon::half::load_halves;
use crate::neon::lanes::{self, Lanes, QUADS, WIDTH, all};

impl<T: Element> Block<'_, T> {
    /// Scores of all keys in `panels` of the block.
    ///
    /// # Safety
    /// Each of `q` holds a query, the cache the panels.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn score<const N: usize>(&self, q: &[*const f32; N], panels: Range<usize>, p: &mut [Scores; N]) {
        let mut panel = panels.start;
        while panel < panels.end {
            // A lone row takes two panels at a time: enough chains of additions to hide their latency.
            // SAFETY: the caller's.
            panel += unsafe {
                match N {
                    1 if panels.end - panel >= 2 => self.score_panels::<N, 2>(q, panel, p),
                    _ => self.score_panels::<N, 1>(q, panel, p),
                }
            };
        }
    }

    /// Scores of `P` panels; returns `P`.
    ///
    /// # Safety
    /// As for [`Block::score`].
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn score_panels<const N: usize, const P: usize>(&self, q: &[*const f32; N], panel: usize, p: &mut [Scores; N]) -> usize {
        let panel_len = self.d * KEY_PANEL;
        let k = self.k[(self.start / KEY_PANEL + panel) * panel_len..][..P * panel_len].as_ptr();
        let mut acc = [[[all(0.0); QUADS]; P]; N];
        let group_len = if T::SCALED { KV_GROUP } else { self.d };
        let mut from = 0;
        while from < self.d {
            let mut scales = [[all(0.0); QUADS]; P];
            if T::SCALED {
                for i in 0..P {
                    scales[i] = self.panel_scales(0, panel + i, from / KV_GROUP);
                }
            }
            for j in from..self.d.min(from + group_len) {
                for i in 0..P {
                    for quad in 0..QUADS {
                        // SAFETY: component `j` of 4 keys of a panel, and of the queries.
                        unsafe {
                            let k = scaled::<T>(T::load(k.add(i * panel_len + j * KEY_PANEL + quad * WIDTH)), scales[i][quad]);
                            for r in 0..N {
                                acc[r][i][quad] = vfmaq_n_f32(acc[r][i][quad], k, *q[r].add(j));
                            }
                        }
                    }
                }
            }
            from += group_len;
        }
        for r in 0..N {
            for i in 0..P {
                for quad in 0..QUADS {
                    lanes::store(vmulq_n_f32(acc[r][i][quad], self.scale), &mut p[r][(panel + i) * KEY_PANEL + quad * WIDTH..]);
                }
            }
        }
        P
    }

    /// The scales that a group of components has in a panel of the block: of keys if `which` is 0, of values if it is 1.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn panel_scales(&self, which: usize, panel: usize, group: usize) -> Lanes {
        let at = ((self.start / KEY_PANEL + panel) * kv_groups(self.d) + group) * KEY_PANEL;
        let scales: &[_; KEY_PANEL] = self.scales[which][at..].first_chunk().expect("scales of a whole panel");
        let at: *const u8 = scales.as_ptr().cast();
        // SAFETY: four times 8 readable bytes.
        unsafe { [load_halves(at), load_halves(at.add(8)), load_halves(at.add(16)), load_halves(at.add(24))] }
    }
}

/// What was loaded, times its scale if it has one.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn scaled<T: Element>(v: float32x4_t, scale: float32x4_t) -> float32x4_t {
    if T::SCALED { vmulq_f32(scale, v) } else { v }
}
