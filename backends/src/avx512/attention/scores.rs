//! Scores: queries times keys, 16 keys to a panel.

#![allow(clippy::needless_range_loop, reason = "rows and panels index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_BLOCK, KEY_PANEL, KV_GROUP, kv_groups};

use super::block::{Block, Queries, Scores, store};
use super::element::Element;

impl<T: Element> Block<'_, T> {
    /// Scores of all keys in `panels` of the block.
    ///
    /// # Safety
    /// The cache holds the panels; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn score<const N: usize>(&self, queries: &Queries<'_, N>, panels: Range<usize>, p: &mut [MaybeUninit<Scores>; N]) {
        assert!(panels.end <= KEY_BLOCK / KEY_PANEL, "panels of a block");
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
    /// As for [`Block::score`]; the block has these panels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn score_panels<const N: usize, const P: usize>(
        &self,
        queries: &Queries<'_, N>,
        panel: usize,
        p: &mut [MaybeUninit<Scores>; N],
    ) -> usize {
        let panel_len = self.d * KEY_PANEL;
        let k = self.k[panel * panel_len..][..P * panel_len].as_ptr();
        for query in queries {
            assert!(query.len() >= self.d, "a query of {}", self.d);
        }
        let mut acc = [[_mm512_setzero_ps(); P]; N];
        // SAFETY: the caller's; queries are long enough.
        unsafe {
            if T::SCALED {
                for from in (0..self.d).step_by(KV_GROUP) {
                    let mut scale = [_mm512_setzero_ps(); P];
                    for i in 0..P {
                        scale[i] = self.panel_scales(0, panel + i, from / KV_GROUP);
                    }
                    self.add_products(queries, k, from..self.d.min(from + KV_GROUP), &scale, &mut acc);
                }
            } else {
                self.add_products(queries, k, 0..self.d, &[_mm512_setzero_ps(); P], &mut acc);
            }
        }
        let scale = _mm512_set1_ps(self.scale);
        for r in 0..N {
            for i in 0..P {
                // SAFETY: the panel is one of the block, so its scores have their place.
                unsafe { _mm512_storeu_ps(p[r].as_mut_ptr().cast::<f32>().add((panel + i) * KEY_PANEL), _mm512_mul_ps(acc[r][i], scale)) };
            }
        }
        P
    }

    /// Adds the products of some components to the scores of the panels at `k`.
    ///
    /// # Safety
    /// Queries, and the cache for `P` panels, hold the components; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn add_products<const N: usize, const P: usize>(
        &self,
        queries: &Queries<'_, N>,
        k: *const T,
        components: Range<usize>,
        scale: &[__m512; P],
        acc: &mut [[__m512; P]; N],
    ) {
        for j in components {
            let mut key = [_mm512_setzero_ps(); P];
            for i in 0..P {
                // SAFETY: component `j` of 16 keys of a panel.
                key[i] = unsafe { T::load(k.add((i * self.d + j) * KEY_PANEL)) };
                if T::SCALED {
                    key[i] = _mm512_mul_ps(scale[i], key[i]);
                }
            }
            for r in 0..N {
                // SAFETY: the caller's.
                let q = _mm512_set1_ps(unsafe { *queries[r].get_unchecked(j) });
                for i in 0..P {
                    acc[r][i] = _mm512_fmadd_ps(q, key[i], acc[r][i]);
                }
            }
        }
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
