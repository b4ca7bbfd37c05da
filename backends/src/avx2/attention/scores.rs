//! Scores: queries times keys, 16 keys to a panel.

#![allow(clippy::needless_range_loop, reason = "rows, panels and columns index several arrays at once")]

use std::arch::x86_64::*;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_PANEL, KV_GROUP, kv_groups};

use super::block::{Block, Scores};
use super::crowded;
use super::element::Element;
use crate::avx2::lanes::{self, WIDTH};

impl<T: Element> Block<'_, T> {
    /// Scores of all keys in `panels` of the block.
    ///
    /// # Safety
    /// Each of `q` holds a query, the cache the panels; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn score<const N: usize>(&self, q: &[*const f32; N], panels: Range<usize>, p: &mut [Scores; N]) {
        let mut panel = panels.start;
        while panel < panels.end {
            let left = panels.end - panel;
            // Enough chains of additions to hide their latency, as few as leave registers for the keys.
            // SAFETY: the caller's.
            panel += unsafe {
                match N {
                    1 if left >= 4 => self.score_panels::<N, 4>(q, panel, p),
                    1..=3 if left >= 2 => self.score_panels::<N, 2>(q, panel, p),
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
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn score_panels<const N: usize, const P: usize>(&self, q: &[*const f32; N], panel: usize, p: &mut [Scores; N]) -> usize {
        let panel_len = self.d * KEY_PANEL;
        let k = self.k[(self.start / KEY_PANEL + panel) * panel_len..][..P * panel_len].as_ptr();
        let mut acc = [[[_mm256_setzero_ps(); 2]; P]; N];
        let group_len = if T::SCALED { KV_GROUP } else { self.d };
        let mut from = 0;
        while from < self.d {
            let group = from..self.d.min(from + group_len);
            let mut scales = [[_mm256_setzero_ps(); 2]; P];
            if T::SCALED {
                for i in 0..P {
                    scales[i] = self.panel_scales(0, panel + i, from / KV_GROUP);
                }
            }
            for j in group {
                // SAFETY: component `j` of the queries, and of 16 keys of each panel.
                unsafe {
                    let k = k.add(j * KEY_PANEL);
                    if P == 1 {
                        let k = [scaled::<T>(T::load(k), scales[0][0]), scaled::<T>(T::load(k.add(WIDTH)), scales[0][1])];
                        for r in 0..N {
                            let q = _mm256_broadcast_ss(&*q[r].add(j));
                            for half in 0..2 {
                                acc[r][0][half] = _mm256_fmadd_ps(q, k[half], acc[r][0][half]);
                            }
                        }
                    } else {
                        let mut query = [_mm256_setzero_ps(); N];
                        for r in 0..N {
                            query[r] = _mm256_broadcast_ss(&*q[r].add(j));
                        }
                        for i in 0..P {
                            for half in 0..2 {
                                let k = scaled::<T>(T::load(k.add(i * panel_len + half * WIDTH)), scales[i][half]);
                                for r in 0..N {
                                    acc[r][i][half] = crowded::<N>(_mm256_fmadd_ps(query[r], k, acc[r][i][half]));
                                }
                            }
                        }
                    }
                }
            }
            from += group_len;
        }
        let scale = _mm256_set1_ps(self.scale);
        for r in 0..N {
            for i in 0..P {
                for half in 0..2 {
                    lanes::store(_mm256_mul_ps(acc[r][i][half], scale), &mut p[r][(panel + i) * KEY_PANEL + half * WIDTH..]);
                }
            }
        }
        P
    }

    /// The scales that a group of components has in a panel of the block: of keys if `which` is 0, of values if it is 1.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn panel_scales(&self, which: usize, panel: usize, group: usize) -> [__m256; 2] {
        let at = ((self.start / KEY_PANEL + panel) * kv_groups(self.d) + group) * KEY_PANEL;
        let scales: &[_; KEY_PANEL] = self.scales[which][at..].first_chunk().expect("scales of a whole panel");
        let at: *const __m128i = scales.as_ptr().cast();
        // SAFETY: twice 16 readable bytes; the loads need no alignment.
        unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at.add(1)))] }
    }
}

/// What was loaded, times its scale if it has one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn scaled<T: Element>(v: __m256, scale: __m256) -> __m256 {
    if T::SCALED { _mm256_mul_ps(scale, v) } else { v }
}
