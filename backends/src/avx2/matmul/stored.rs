//! Float weights: how they are widened, and how rows are turned into panels.

use std::arch::x86_64::*;

use half::{bf16, f16};
use rml_kernels_ref::format::Format;

use super::bits::{load_bytes, store, transpose};
use crate::panels::ROWS;

/// A float that weights are stored as.
pub(crate) trait Stored: 'static {
    /// The format.
    const FORMAT: Format;
    /// Bytes of a weight.
    const BYTES: usize = Self::FORMAT.block_bytes();

    /// 16 weights, widened exactly.
    ///
    /// # Safety
    /// `at` holds them; the CPU has the features.
    unsafe fn load(at: *const u8) -> [__m256; 2];

    /// Packs a panel: weight `j` of row `r` goes to `16 j + r`, and zeros where rows are missing.
    ///
    /// # Safety
    /// `src` holds `n_rows` rows of `k` weights, `dst` 16; the CPU has the features.
    unsafe fn pack(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]);
}

impl Stored for f32 {
    const FORMAT: Format = Format::F32;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const u8) -> [__m256; 2] {
        // SAFETY: 64 bytes, the caller's; no alignment is needed.
        unsafe { [_mm256_loadu_ps(at.cast()), _mm256_loadu_ps(at.add(32).cast())] }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        let whole = if n_rows == ROWS { k / 4 * 4 } else { 0 };
        for j in (0..whole).step_by(4) {
            for r in (0..ROWS).step_by(4) {
                let rows = [0, 1, 2, 3].map(|i| load_bytes(&src[((r + i) * k + j) * 4..]));
                for (i, v) in transpose(&rows).into_iter().enumerate() {
                    store(v, &mut dst[((j + i) * ROWS + r) * 4..]);
                }
            }
        }
        pack_rest::<4>(src, n_rows, k, whole, dst);
    }
}

impl Stored for f16 {
    const FORMAT: Format = Format::F16;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const u8) -> [__m256; 2] {
        // SAFETY: 32 bytes, the caller's; no alignment is needed.
        unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(at.cast())), _mm256_cvtph_ps(_mm_loadu_si128(at.add(16).cast()))] }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        pack_shorts(src, n_rows, k, dst);
    }
}

impl Stored for bf16 {
    const FORMAT: Format = Format::BF16;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const u8) -> [__m256; 2] {
        // SAFETY: 32 bytes, the caller's; no alignment is needed.
        let halves = unsafe { [_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast())] };
        let wide = [_mm256_cvtepu16_epi32(halves[0]), _mm256_cvtepu16_epi32(halves[1])];
        [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide[0])), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide[1]))]
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        pack_shorts(src, n_rows, k, dst);
    }
}

/// [`Stored::pack`] for weights of 2 bytes.
#[target_feature(enable = "avx2,fma,f16c")]
fn pack_shorts(src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
    let whole = if n_rows == ROWS { k / 8 * 8 } else { 0 };
    for j in (0..whole).step_by(8) {
        for r in (0..ROWS).step_by(8) {
            let rows = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| load_bytes(&src[((r + i) * k + j) * 2..]));
            for (i, v) in transpose_shorts(&rows).into_iter().enumerate() {
                store(v, &mut dst[((j + i) * ROWS + r) * 2..]);
            }
        }
    }
    pack_rest::<2>(src, n_rows, k, whole, dst);
}

/// Packs the columns from `first` on, one by one.
fn pack_rest<const N: usize>(src: &[u8], n_rows: usize, k: usize, first: usize, dst: &mut [u8]) {
    let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
    for j in first..k {
        for r in 0..ROWS {
            dst[j * ROWS + r] = if r < n_rows { src[r * k + j] } else { [0; N] };
        }
    }
}

/// Short `j` of row `r` becomes short `r` of row `j`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose_shorts(rows: &[__m128i; 8]) -> [__m128i; 8] {
    // Pairs of rows make dwords, whose transposition leaves pairs of rows of each column.
    let pairs = |i: usize| (_mm_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]), _mm_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]));
    let [(a, e), (b, f), (c, g), (d, h)] = [0, 1, 2, 3].map(pairs);
    let ([a, b, c, d], [e, f, g, h]) = (transpose(&[a, b, c, d]), transpose(&[e, f, g, h]));
    [a, b, c, d, e, f, g, h]
}
