//! Scores: queries times keys, 16 keys to a panel.

#![allow(clippy::needless_range_loop, reason = "rows and panels index several arrays at once")]

use std::arch::x86_64::*;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_PANEL, KV_GROUP, kv_groups};

use super::block::{Block, Queries, Scores, WIDTH, store};
use super::element::Element;

impl<T: Element> Block<'_, T> {
    /// Scores of all keys in `panels` of the block.
    ///
    /// # Safety
    /// `d` numbers of each query are written, the cache holds the panels; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn score<const N: usize>(&self, queries: &Queries<N>, panels: Range<usize>, p: &mut [Scores; N]) {
        let mut panel = panels.start;
        while panel < panels.end {
            // One panel at a time is one stream, which the CPU fetches ahead by itself; more rows come for what is in its cache.
            // SAFETY: the caller's.
            panel += unsafe {
                match N {
                    7.. if panels.end - panel >= 2 => self.score_panels::<N, 2>(queries, panel, p),
                    _ => self.score_panels::<N, 1>(queries, panel, p),
                }
            };
        }
    }

    /// Scores of `P` panels; returns `P`.
    ///
    /// # Safety
    /// As for [`Block::score`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn score_panels<const N: usize, const P: usize>(&self, queries: &Queries<N>, panel: usize, p: &mut [Scores; N]) -> usize {
        let panel_len = self.d * KEY_PANEL;
        let k = self.k[panel * panel_len..][..P * panel_len].as_ptr();
        let mut acc = [[_mm512_setzero_ps(); P]; N];
        let group_len = if T::SCALED { KV_GROUP } else { self.d };
        let mut from = 0;
        while from < self.d {
            let group = from..self.d.min(from + group_len);
            let mut scale = [_mm512_setzero_ps(); P];
            if T::SCALED {
                for i in 0..P {
                    scale[i] = self.panel_scales(0, panel + i, from / KV_GROUP);
                }
            }
            for j in group {
                let mut key = [_mm512_setzero_ps(); P];
                for i in 0..P {
                    // SAFETY: component `j` of 16 keys of a panel.
                    key[i] = unsafe { T::load(k.add(i * panel_len + j * KEY_PANEL)) };
                    if T::SCALED {
                        key[i] = _mm512_mul_ps(scale[i], key[i]);
                    }
                }
                for r in 0..N {
                    // SAFETY: `j` is below `d`, and `d` numbers are written.
                    let q = _mm512_set1_ps(unsafe { queries[r].get_unchecked(j).assume_init() });
                    for i in 0..P {
                        acc[r][i] = _mm512_fmadd_ps(q, key[i], acc[r][i]);
                    }
                }
            }
            from += group_len;
        }
        let scale = _mm512_set1_ps(self.scale);
        for r in 0..N {
            let p = &mut p[r].as_chunks_mut::<WIDTH>().0[panel..panel + P];
            for i in 0..P {
                store(_mm512_mul_ps(acc[r][i], scale), &mut p[i]);
            }
        }
        P
    }

    /// Keys of `panels` as f32, in the same places of `to`.
    ///
    /// # Safety
    /// The cache holds the panels; the CPU has the features.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn widen_keys(&self, panels: Range<usize>, to: &mut [f32]) {
        for panel in panels {
            let start = panel * self.d * KEY_PANEL;
            let (k, to) = (self.k[start..][..self.d * KEY_PANEL].as_chunks::<KEY_PANEL>().0, to[start..].as_chunks_mut().0);
            let mut scale = _mm512_setzero_ps();
            for (j, (k, to)) in k.iter().zip(to).enumerate() {
                // SAFETY: 16 numbers.
                let mut key = unsafe { T::load(k.as_ptr()) };
                if T::SCALED {
                    if j.is_multiple_of(KV_GROUP) {
                        scale = self.panel_scales(0, panel, j / KV_GROUP);
                    }
                    key = _mm512_mul_ps(scale, key);
                }
                store(key, to);
            }
        }
    }

    /// The scales that a group of components has in a panel of the block: of keys if `which` is 0, of values if it is 1.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn panel_scales(&self, which: usize, panel: usize, group: usize) -> __m512 {
        let at = (panel * kv_groups(self.d) + group) * KEY_PANEL;
        let scales: &[_; KEY_PANEL] = self.scales[which][at..].first_chunk().expect("scales of a whole panel");
        // SAFETY: 32 readable bytes; the load needs no alignment.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(scales.as_ptr().cast()) })
    }
}
