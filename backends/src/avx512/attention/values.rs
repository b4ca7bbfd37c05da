//! Values: their sum, each times the exponential of its score.

#![allow(clippy::needless_range_loop, reason = "rows and columns index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_BLOCK, KEY_PANEL, KV_GROUP};

use super::Seen;
use super::block::{Block, Fold, Scores, WIDTH};
use super::element::Element;

/// Sums of `C` registers of columns for `N` rows.
type Acc<const N: usize, const C: usize> = [[__m512; C]; N];

impl<T: Element> Block<'_, T> {
    /// Sums values times `p` over the keys seen, and folds them into `out`. (N, d)
    ///
    /// # Safety
    /// The cache holds the keys seen; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn add_values<const N: usize>(&self, p: &[Scores; N], seen: &[Seen; N], fold: &[Fold; N], out: &mut [f32]) {
        let mut j = 0;
        while j < self.d {
            let left = self.d - j;
            // SAFETY: the caller's; this many columns are left of a row.
            j += unsafe {
                match N {
                    1..=2 if left >= 8 * WIDTH => self.add_columns::<N, 8, true>(p, seen, fold, j, out),
                    1..=6 if left >= 4 * WIDTH => self.add_columns::<N, 4, true>(p, seen, fold, j, out),
                    _ if left >= 2 * WIDTH => self.add_columns::<N, 2, true>(p, seen, fold, j, out),
                    _ if left >= WIDTH => self.add_columns::<N, 1, true>(p, seen, fold, j, out),
                    _ => self.add_columns::<N, 1, false>(p, seen, fold, j, out),
                }
            };
        }
    }

    /// [`Block::add_values`] for `C` registers of columns from `j` on; returns how many columns these may be. If they are
    /// not `WHOLE`, the row ends within the one register.
    ///
    /// # Safety
    /// As for [`Block::add_values`]; `j + 16 C <= d` if `WHOLE`, else `C` is 1 and `j < d`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn add_columns<const N: usize, const C: usize, const WHOLE: bool>(
        &self,
        p: &[Scores; N],
        seen: &[Seen; N],
        fold: &[Fold; N],
        j: usize,
        out: &mut [f32],
    ) -> usize {
        let v = self.v.as_ptr().wrapping_add(j);
        let there = if WHOLE { u16::MAX } else { u16::MAX >> (WIDTH - (self.d - j)) };
        let mut scales = [Scales { of: [MaybeUninit::uninit(); KEY_BLOCK] }; C];
        if T::SCALED {
            self.widen_scales(seen, j, &mut scales);
        }
        let columns = Columns { v, d: self.d, there, j, scales: scales.as_ptr() };
        let mut acc = [[_mm512_setzero_ps(); C]; N];
        // Every row takes its keys in ascending order: those before the common ones, the common ones, those behind.
        let from = seen.iter().fold(0, |from, s| from.max(s.from));
        let to = seen.iter().fold(KEY_BLOCK, |to, s| to.min(s.to)).max(from);
        // SAFETY: the caller's: these keys of the block have these columns.
        unsafe {
            for r in 0..N {
                columns.add_to_row::<C, WHOLE>(&p[r], seen[r].from..seen[r].to.min(from), &mut acc[r]);
            }
            for t in from..to {
                let v = columns.load::<C, WHOLE>(t);
                for r in 0..N {
                    let p = _mm512_set1_ps(*p[r].get_unchecked(t)); // `to` is at most the length of a block
                    for c in 0..C {
                        acc[r][c] = _mm512_fmadd_ps(p, v[c], acc[r][c]);
                    }
                }
            }
            for r in 0..N {
                columns.add_to_row::<C, WHOLE>(&p[r], seen[r].from.max(to)..seen[r].to, &mut acc[r]);
            }
        }
        self.fold::<N, C>(&acc, fold, there, j, out);
        C * WIDTH
    }

    /// Values of `keys` as f32, in the same places of `to`.
    ///
    /// # Safety
    /// The cache holds the keys; the CPU has the features.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn widen_values(&self, keys: Range<usize>, to: &mut [f32]) {
        let seen = [Seen { from: keys.start, to: keys.end }];
        for j in (0..self.d).step_by(WIDTH) {
            let there = u16::MAX >> WIDTH.saturating_sub(self.d - j);
            let mut scales = [Scales { of: [MaybeUninit::uninit(); KEY_BLOCK] }];
            if T::SCALED {
                self.widen_scales(&seen, j, &mut scales);
            }
            let columns = Columns { v: self.v[j..].as_ptr(), d: self.d, there, j, scales: scales.as_ptr() };
            for t in keys.clone() {
                let to = &mut to[t * self.d + j..][..WIDTH.min(self.d - j)];
                // SAFETY: the caller's: these columns of the key are there, and have their place in `to`.
                unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), there, columns.load::<1, false>(t)[0]) };
            }
        }
    }

    /// Widens the scales of the groups that columns `j .. j + 16 C` are in, for the panels whose keys are seen.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn widen_scales<const N: usize, const C: usize>(&self, seen: &[Seen; N], j: usize, scales: &mut [Scales; C]) {
        let (from, to) = super::hull(seen);
        let first = j / KV_GROUP;
        for group in first..=(j + C * WIDTH - 1) / KV_GROUP {
            for panel in from / KEY_PANEL..to.div_ceil(KEY_PANEL) {
                let widened = self.panel_scales(1, panel, group);
                let panel = &mut scales[group - first].of.as_chunks_mut::<WIDTH>().0[panel];
                // SAFETY: 16 writable numbers; the store needs no alignment.
                unsafe { _mm512_storeu_ps(panel.as_mut_ptr().cast(), widened) };
            }
        }
    }

    /// Folds the sums of columns `j ..` into `out`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn fold<const N: usize, const C: usize>(&self, acc: &Acc<N, C>, fold: &[Fold; N], there: u16, j: usize, out: &mut [f32]) {
        for r in 0..N {
            let out = &mut out[r * self.d..][..self.d][j..];
            for c in 0..C {
                let out = out[c * WIDTH..].as_mut_ptr();
                // SAFETY: the columns that are there are within the row.
                unsafe {
                    match fold[r] {
                        Fold::Keep => {}
                        Fold::Replace => _mm512_mask_storeu_ps(out, there, acc[r][c]),
                        Fold::Mix(a, b) => {
                            let scaled = _mm512_mul_ps(acc[r][c], _mm512_set1_ps(b));
                            let older = _mm512_maskz_loadu_ps(there, out);
                            _mm512_mask_storeu_ps(out, there, _mm512_fmadd_ps(older, _mm512_set1_ps(a), scaled));
                        }
                    }
                }
            }
        }
    }
}

/// Columns of the values of a block.
struct Columns<T> {
    v: *const T, // the first column of the block's first key
    d: usize,
    there: u16,            // of the only register, where a row ends in it
    j: usize,              // the first column
    scales: *const Scales, // of the groups from that column's on, where values are scaled
}

/// Scales of one group, a key of the block each; written for the panels whose keys are seen.
#[derive(Clone, Copy)]
struct Scales {
    of: [MaybeUninit<f32>; KEY_BLOCK],
}

impl<T: Element> Columns<T> {
    /// Columns of key `t`.
    ///
    /// # Safety
    /// The key is there and seen, and so are the columns and, if there are to be any, its scales; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load<const C: usize, const WHOLE: bool>(&self, t: usize) -> [__m512; C] {
        let mut v = [_mm512_setzero_ps(); C];
        for c in 0..C {
            // SAFETY: the caller's.
            unsafe {
                let at = self.v.add(t * self.d + c * WIDTH);
                v[c] = if WHOLE { T::load(at) } else { T::load_some(self.there, at) };
                if T::SCALED {
                    let group = &*self.scales.add((self.j + c * WIDTH) / KV_GROUP - self.j / KV_GROUP);
                    v[c] = _mm512_mul_ps(_mm512_set1_ps(group.of.get_unchecked(t).assume_init()), v[c]);
                }
            }
        }
        v
    }

    /// Adds the values of `keys` to one row.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for all the keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn add_to_row<const C: usize, const WHOLE: bool>(&self, p: &Scores, keys: Range<usize>, acc: &mut [__m512; C]) {
        for t in keys {
            // SAFETY: the caller's.
            let v = unsafe { self.load::<C, WHOLE>(t) };
            let p = _mm512_set1_ps(p[t]);
            for c in 0..C {
                acc[c] = _mm512_fmadd_ps(p, v[c], acc[c]);
            }
        }
    }
}
