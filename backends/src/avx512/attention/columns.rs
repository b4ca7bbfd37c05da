//! Some columns of the values of a block, and their sums.

#![allow(clippy::needless_range_loop, reason = "rows and columns index several arrays at once")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use rml_kernels_ref::kv::{KEY_BLOCK, KV_GROUP};

use super::Seen;
use super::block::{Scores, WIDTH};
use super::element::Element;

/// Sums of `C` registers of columns for `N` rows.
pub(super) type Acc<const N: usize, const C: usize> = [[__m512; C]; N];

/// Columns of the values of a block.
pub(super) struct Columns<T> {
    pub(super) v: *const T, // the first column of the block's first key
    pub(super) d: usize,
    pub(super) there: u16,            // of the only register, where a row ends in it
    pub(super) j: usize,              // the first column
    pub(super) scales: *const Scales, // of the groups from that column's on, where values are scaled
}

/// Scales of one group, a key of the block each; written for the panels whose keys are seen.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    pub(super) of: [MaybeUninit<f32>; KEY_BLOCK],
}

impl<T: Element> Columns<T> {
    /// Columns of key `t`.
    ///
    /// # Safety
    /// The key is there and seen, and so are the columns and, if there are to be any, its scales; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn load<const C: usize, const WHOLE: bool>(&self, t: usize) -> [__m512; C] {
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

    /// Sums over the whole block.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for all keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn sums<const N: usize, const C: usize, const WHOLE: bool>(&self, p: &[Scores; N]) -> Acc<N, C> {
        let mut acc = [[_mm512_setzero_ps(); C]; N];
        // SAFETY: the caller's.
        unsafe { self.add_to_rows::<N, C, WHOLE>(p, 0..KEY_BLOCK, &mut acc) };
        acc
    }

    /// Sums over the keys that are seen. Not inlined: here sums are in memory, which those of whole blocks must not share.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for the keys that are seen.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn sums_of_seen<const N: usize, const C: usize, const WHOLE: bool>(
        &self,
        p: &[Scores; N],
        seen: &[Seen; N],
    ) -> Acc<N, C> {
        let mut acc = [[_mm512_setzero_ps(); C]; N];
        // Every row takes its keys in ascending order: those before the common ones, the common ones, those behind.
        let (from, to) = super::common(seen);
        // SAFETY: the caller's.
        unsafe {
            for r in 0..N {
                self.add_to_rows::<1, C, WHOLE>(
                    std::array::from_ref(&p[r]),
                    seen[r].from..seen[r].to.min(from),
                    std::array::from_mut(&mut acc[r]),
                );
            }
            self.add_to_rows::<N, C, WHOLE>(p, from..to, &mut acc);
            for r in 0..N {
                self.add_to_rows::<1, C, WHOLE>(
                    std::array::from_ref(&p[r]),
                    seen[r].from.max(to)..seen[r].to,
                    std::array::from_mut(&mut acc[r]),
                );
            }
        }
        acc
    }

    /// Adds the values of `keys`, all of the block, to the sums of `N` rows.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for these keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn add_to_rows<const N: usize, const C: usize, const WHOLE: bool>(
        &self,
        p: &[Scores; N],
        keys: Range<usize>,
        acc: &mut Acc<N, C>,
    ) {
        for t in keys {
            // SAFETY: the caller's.
            unsafe {
                let v = self.load::<C, WHOLE>(t);
                for r in 0..N {
                    let p = _mm512_set1_ps(*p[r].get_unchecked(t));
                    for c in 0..C {
                        acc[r][c] = _mm512_fmadd_ps(p, v[c], acc[r][c]);
                    }
                }
            }
        }
    }
}
