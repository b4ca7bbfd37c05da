//! Values: their sum, each times the exponential of its score.

#![allow(clippy::needless_range_loop, reason = "rows and columns index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_BLOCK, KEY_PANEL, KV_GROUP};

use super::Seen;
use super::block::{Block, Scores, WIDTH};
use super::columns::{Acc, Columns, Scales};
use super::element::Element;
use super::rows::{Fold, first};

impl<T: Element> Block<'_, T> {
    /// Sums values times `p` over the keys seen, and folds them into `out`. (N, d)
    ///
    /// # Safety
    /// [`Block::weigh`] wrote `p` and returned `fold`, the cache holds the keys seen; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn add_values<const N: usize>(
        &self,
        p: &[MaybeUninit<Scores>; N],
        seen: Option<&[Seen; N]>,
        fold: &Fold,
        out: &mut [f32],
    ) {
        if fold.is_none() {
            return;
        }
        // SAFETY: the caller's: they are written.
        let p = unsafe { &*std::ptr::from_ref(p).cast::<[Scores; N]>() };
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
        seen: Option<&[Seen; N]>,
        fold: &Fold,
        j: usize,
        out: &mut [f32],
    ) -> usize {
        let v = self.v.as_ptr().wrapping_add(j);
        let there = if WHOLE { u16::MAX } else { u16::MAX >> (WIDTH - (self.d - j)) };
        let mut scales = [Scales { of: [MaybeUninit::uninit(); KEY_BLOCK] }; C];
        if T::SCALED {
            self.widen_scales(seen.map_or((0, KEY_BLOCK), |seen| super::hull(seen)), j, &mut scales);
        }
        let columns = Columns { v, d: self.d, there, j, scales: scales.as_ptr() };
        // SAFETY: the caller's: the keys that are seen have these columns.
        let acc = unsafe {
            match seen {
                None => columns.sums::<N, C, WHOLE>(p),
                Some(seen) => columns.sums_of_seen::<N, C, WHOLE>(p, seen),
            }
        };
        // Seen anew for each column: factors broadcast ahead for all of them would not find registers.
        self.fold(&acc, std::hint::black_box(fold), there, j, out);
        C * WIDTH
    }

    /// Values of `keys` as f32, in the same places of `to`.
    ///
    /// # Safety
    /// The cache holds the keys; the CPU has the features.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn widen_values(&self, keys: Range<usize>, to: &mut [f32]) {
        for j in (0..self.d).step_by(WIDTH) {
            let there = u16::MAX >> WIDTH.saturating_sub(self.d - j);
            let mut scales = [Scales { of: [MaybeUninit::uninit(); KEY_BLOCK] }];
            if T::SCALED {
                self.widen_scales((keys.start, keys.end), j, &mut scales);
            }
            let columns = Columns { v: self.v[j..].as_ptr(), d: self.d, there, j, scales: scales.as_ptr() };
            for t in keys.clone() {
                let to = &mut to[t * self.d + j..][..WIDTH.min(self.d - j)];
                // SAFETY: the caller's: these columns of the key are there, and have their place in `to`.
                unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), there, columns.load::<1, false>(t)[0]) };
            }
        }
    }

    /// Widens the scales of the groups that columns `j .. j + 16 C` are in, for the panels of keys `from .. to`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn widen_scales<const C: usize>(&self, (from, to): (usize, usize), j: usize, scales: &mut [Scales; C]) {
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
    fn fold<const N: usize, const C: usize>(&self, acc: &Acc<N, C>, fold: &Fold, there: u16, j: usize, out: &mut [f32]) {
        assert!(out.len() >= N * self.d, "outputs of {N} rows");
        let out = out.as_mut_ptr();
        let row = |r: usize| out.wrapping_add(r * self.d + j);
        // SAFETY: the columns that are there are within the row.
        unsafe {
            if fold.mix == first(N) {
                for r in 0..N {
                    mix(&acc[r], fold.older[r], fold.newer[r], there, row(r));
                }
                return;
            }
            for r in 0..N {
                if fold.mix >> r & 1 == 1 {
                    mix(&acc[r], fold.older[r], fold.newer[r], there, row(r));
                } else if fold.replace >> r & 1 == 1 {
                    for c in 0..C {
                        _mm512_mask_storeu_ps(row(r).wrapping_add(c * WIDTH), there, acc[r][c]);
                    }
                }
            }
        }
    }
}

/// Mixes the sums of a row into its output.
///
/// # Safety
/// The columns that are there can be read and written; the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn mix<const C: usize>(acc: &[__m512; C], older: f32, newer: f32, there: u16, out: *mut f32) {
    for c in 0..C {
        let out = out.wrapping_add(c * WIDTH);
        let scaled = _mm512_mul_ps(acc[c], _mm512_set1_ps(newer));
        // SAFETY: the caller's.
        unsafe {
            let so_far = _mm512_maskz_loadu_ps(there, out);
            _mm512_mask_storeu_ps(out, there, _mm512_fmadd_ps(so_far, _mm512_set1_ps(older), scaled));
        }
    }
}
