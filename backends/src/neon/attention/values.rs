//! Values: their sum, each times the exponential of its score.

#![allow(clippy::needless_range_loop, reason = "rows, panels and columns index several arrays at once")]

use std::arch::aarch64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_BLOCK, KEY_PANEL, KV_GROUP};

use super::Seen;
use super::block::{Block, Fold, Scores};
use super::element::Element;
use super::scores::scaled;
use crate::neon::lanes::{self, WIDTH, all};

impl<T: Element> Block<'_, T> {
    /// Sums values times `p` over the keys seen, and folds them into `out`. (N, d)
    ///
    /// # Safety
    /// The cache holds the keys seen.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn add_values<const N: usize>(&self, p: &[Scores; N], seen: &[Seen; N], fold: &[Fold; N], out: &mut [f32]) {
        let mut j = 0;
        while j < self.d {
            let left = (self.d - j) / WIDTH;
            // SAFETY: the caller's; this many registers are left of a row.
            j += unsafe {
                match N {
                    _ if left == 0 => self.add_last_columns(p, seen, fold, j, out),
                    1 if left >= 8 => self.add_columns::<N, 8>(p, seen, fold, j, out),
                    _ if left >= 4 => self.add_columns::<N, 4>(p, seen, fold, j, out),
                    _ => self.add_columns::<N, 1>(p, seen, fold, j, out),
                }
            };
        }
    }

    /// [`Block::add_values`] for `C` registers of columns from `j` on; returns how many columns these are.
    ///
    /// # Safety
    /// As for [`Block::add_values`]; `j + 4 C <= d`.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn add_columns<const N: usize, const C: usize>(
        &self,
        p: &[Scores; N],
        seen: &[Seen; N],
        fold: &[Fold; N],
        j: usize,
        out: &mut [f32],
    ) -> usize {
        let v = self.v.as_ptr().wrapping_add(self.start * self.d + j);
        let mut scales = [Scales { of: [MaybeUninit::uninit(); KEY_BLOCK] }; C];
        if T::SCALED {
            self.widen_scales(seen, j, &mut scales);
        }
        let columns = Columns { v, d: self.d, j, scales: scales.as_ptr() };
        let mut acc = [[all(0.0); C]; N];
        // Every row takes its keys in ascending order: those before the common ones, the common ones, those behind.
        let from = seen.iter().fold(0, |from, s| from.max(s.from));
        let to = seen.iter().fold(KEY_BLOCK, |to, s| to.min(s.to)).max(from);
        // SAFETY: the caller's: these keys of the block have these columns.
        unsafe {
            for r in 0..N {
                columns.add_to_row(&p[r], seen[r].from..seen[r].to.min(from), &mut acc[r]);
            }
            for t in from..to {
                for c in 0..C {
                    let v = columns.register(t, c);
                    for r in 0..N {
                        let p = *p[r].get_unchecked(t); // `to` is at most the length of a block
                        acc[r][c] = vfmaq_n_f32(acc[r][c], v, p);
                    }
                }
            }
            for r in 0..N {
                columns.add_to_row(&p[r], seen[r].from.max(to)..seen[r].to, &mut acc[r]);
            }
        }
        for r in 0..N {
            for (c, out) in out[r * self.d + j..][..C * WIDTH].as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
                match fold[r] {
                    Fold::Keep => {}
                    Fold::Replace => lanes::store(acc[r][c], out),
                    Fold::Mix(a, b) => {
                        let scaled = vmulq_n_f32(acc[r][c], b);
                        lanes::store(vfmaq_n_f32(scaled, lanes::load(out), a), out);
                    }
                }
            }
        }
        C * WIDTH
    }

    /// Widens the scales of the groups that columns `j .. j + 4 C` are in, for the panels whose keys are seen.
    #[inline]
    #[target_feature(enable = "neon")]
    fn widen_scales<const N: usize, const C: usize>(&self, seen: &[Seen; N], j: usize, scales: &mut [Scales; C]) {
        let (from, to) = super::hull(seen);
        let first = j / KV_GROUP;
        for group in first..=(j + C * WIDTH - 1) / KV_GROUP {
            for panel in from / KEY_PANEL..to.div_ceil(KEY_PANEL) {
                let widened = self.panel_scales(1, panel, group);
                let at = scales[group - first].of.as_chunks_mut::<KEY_PANEL>().0[panel].as_mut_ptr().cast::<f32>();
                for (quad, widened) in widened.into_iter().enumerate() {
                    // SAFETY: 16 writable numbers; the stores need no alignment.
                    unsafe { vst1q_f32(at.add(quad * WIDTH), widened) };
                }
            }
        }
    }

    /// [`Block::add_values`] for the columns from `j` on that do not fill a register; returns how many these are.
    #[target_feature(enable = "neon")]
    fn add_last_columns<const N: usize>(
        &self,
        p: &[Scores; N],
        seen: &[Seen; N],
        fold: &[Fold; N],
        first: usize,
        out: &mut [f32],
    ) -> usize {
        let mut scales = [Scales { of: [MaybeUninit::uninit(); KEY_BLOCK] }];
        if T::SCALED {
            self.widen_scales(seen, first, &mut scales);
        }
        for r in 0..N {
            for j in first..self.d {
                let mut sum = 0.0_f32;
                for t in seen[r].from..seen[r].to {
                    let mut v = self.v[(self.start + t) * self.d + j].widen();
                    if T::SCALED {
                        // SAFETY: the panels whose keys are seen are written, and these columns are in one group.
                        v *= unsafe { scales[0].of[t].assume_init() };
                    }
                    sum = p[r][t].mul_add(v, sum);
                }
                let out = &mut out[r * self.d + j];
                match fold[r] {
                    Fold::Keep => {}
                    Fold::Replace => *out = sum,
                    Fold::Mix(a, b) => *out = out.mul_add(a, sum * b),
                }
            }
        }
        self.d - first
    }
}

/// Columns of the values of a block.
struct Columns<T> {
    v: *const T, // the first column of the block's first key
    d: usize,
    j: usize,              // the first column
    scales: *const Scales, // of the groups from that column's on, where values are scaled
}

/// Scales of one group, a key of the block each; written for the panels whose keys are seen.
#[derive(Clone, Copy)]
struct Scales {
    of: [MaybeUninit<f32>; KEY_BLOCK],
}

impl<T: Element> Columns<T> {
    /// Register `c` of the columns of key `t`.
    ///
    /// # Safety
    /// The key is there and seen, and so are the columns and, if there are to be any, its scales.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn register(&self, t: usize, c: usize) -> float32x4_t {
        // SAFETY: the caller's.
        unsafe {
            let v = T::load(self.v.add(t * self.d + c * WIDTH));
            if !T::SCALED {
                return v;
            }
            let group = &*self.scales.add((self.j + c * WIDTH) / KV_GROUP - self.j / KV_GROUP);
            scaled::<T>(v, all(group.of.get_unchecked(t).assume_init()))
        }
    }

    /// Columns of key `t`.
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load<const C: usize>(&self, t: usize) -> [float32x4_t; C] {
        let mut v = [all(0.0); C];
        for c in 0..C {
            // SAFETY: the caller's.
            v[c] = unsafe { self.register(t, c) };
        }
        v
    }

    /// Adds the values of `keys` to one row.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for all the keys.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn add_to_row<const C: usize>(&self, p: &Scores, keys: Range<usize>, acc: &mut [float32x4_t; C]) {
        for t in keys {
            // SAFETY: the caller's.
            let v = unsafe { self.load::<C>(t) };
            for c in 0..C {
                acc[c] = vfmaq_n_f32(acc[c], v[c], p[t]);
            }
        }
    }
}
