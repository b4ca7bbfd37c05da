//! `Q4_0` and `Q4_1`: 4-bit quants for 32 columns, whose nibble order is that of a unit.

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::codec::{Codec, Heads, ROWS, Sum, far_groups};
use super::head::{Scale, ScaleMin};
use super::pack;

/// Bytes of a unit's quants.
const QUANTS: usize = 256;

/// Unit: quants (4 pairs, 64), scales (16) as f16.
pub(super) struct Q4_0;

/// Unit: quants (4 pairs, 64), scales (16) and minima (16) as f16.
pub(super) struct Q4_1;

impl Codec for Q4_0 {
    const FORMAT: Format = Format::Q4_0;
    const SUM: Sum = Sum::Pairs(4);
    type Head = Scale<8>;

    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(QUANTS);
        pack::store_dwords(&rows.map(|row| pack::load(&row[2..])), quants.as_mut_array().expect("4 pairs"));
        pack::store_halves(rows, 0, scales);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the caller's.
        unsafe { nibbles(unit, half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants.
        room[0].write(Scale { d: unsafe { halves(unit.add(QUANTS)) } })
    }
}

impl Codec for Q4_1 {
    const FORMAT: Format = Format::Q4_1;
    const SUM: Sum = Sum::Pairs(4);
    type Head = ScaleMin;

    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(QUANTS);
        pack::store_dwords(&rows.map(|row| pack::load(&row[4..])), quants.as_mut_array().expect("4 pairs"));
        let (scales, minima) = scales.split_at_mut(2 * ROWS);
        pack::store_halves(rows, 0, scales);
        pack::store_halves(rows, 2, minima);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the caller's.
        unsafe { nibbles(unit, half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales and then the minima stand behind the quants.
        room[0].write(unsafe { ScaleMin { d: halves(unit.add(QUANTS)), m: halves(unit.add(QUANTS + 2 * ROWS)) } })
    }
}

/// The low and the high nibbles of pair `p`, rows by `half`.
///
/// # Safety
/// `quants` holds 4 pairs of nibbles; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn nibbles(quants: *const u8, half: usize, p: usize) -> [__m256i; 2] {
    // SAFETY: 32 bytes within the 256 that the caller vouches for.
    let raw = unsafe { _mm256_loadu_si256(quants.add(64 * p + 32 * half).cast()) };
    let mask = _mm256_set1_epi8(15);
    [_mm256_and_si256(raw, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(raw), mask)]
}

/// 16 f16 as f32.
///
/// # Safety
/// `src` holds 16 f16; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn halves(src: *const u8) -> [__m256; 2] {
    // SAFETY: twice 16 bytes.
    unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(src.cast())), _mm256_cvtph_ps(_mm_loadu_si128(src.add(16).cast()))] }
}
