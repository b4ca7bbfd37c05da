//! `Q4_K` and `Q5_K`: nibbles, and a fifth bit, for 8 blocks with 6-bit scales and minima.
//!
//! Once its scales are multiplied out, a block is one of `Q4_1` or `Q5_1`.

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::ScaleMin;
use super::q5;
use super::scales::{halves, widen};
use crate::panels::{BLOCKS_OF_256, FIVE_BITS, FOUR_BITS, HALVES, ROWS, SIXES, far_groups, store_bytes, store_halves};

/// Unit: nibbles (8 blocks, 4 vectors), 6-bit scales (12, 16 rows), scales of scales and of minima (16 f16 each).
pub(crate) struct Q4K;

/// Unit: nibbles and fifth bits (8 blocks, 4 + 1 vectors), then as [`Q4K`].
pub(crate) struct Q5K;

impl Codec for Q4K {
    const FORMAT: Format = Format::Q4_K;
    const SUM: Sum = Sum::Pairs(4);
    type Head = ScaleMin;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(BLOCKS_OF_256 * FOUR_BITS);
        for (b, quants) in quants.chunks_exact_mut(FOUR_BITS).enumerate() {
            bits::store_dwords(&rows.map(|row| nibbles(&row[4 + SIXES..], b)), quants);
        }
        store_scales(rows, scales);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with the blocks' quants.
        unsafe { bits::nibbles(unit.add(b * FOUR_BITS), half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants.
        unsafe { heads(unit.add(BLOCKS_OF_256 * FOUR_BITS), room) }
    }
}

impl Codec for Q5K {
    const FORMAT: Format = Format::Q5_K;
    const SUM: Sum = Sum::Pairs(2);
    type Head = ScaleMin;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(BLOCKS_OF_256 * FIVE_BITS);
        let fifths = 4 + SIXES;
        for (b, quants) in quants.chunks_exact_mut(FIVE_BITS).enumerate() {
            bits::store_dwords(&rows.map(|row| nibbles(&row[fifths + 32..], b)), quants);
            bits::store_bits(&rows.map(|row| bits::gather_bits(&row[fifths..], b)), &mut quants[FOUR_BITS..]);
        }
        store_scales(rows, scales);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with the blocks' quants.
        unsafe { q5::quants(unit.add(b * FIVE_BITS), half, p) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants.
        unsafe { heads(unit.add(BLOCKS_OF_256 * FIVE_BITS), room) }
    }
}

/// The nibbles of block `b` in the order of `Q4_0`. In the file two blocks share 32 bytes, one has the low nibbles.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn nibbles(quants: &[u8], b: usize) -> __m128i {
    let bytes = &quants[32 * (b / 2)..];
    let (first, last) = (bits::load_bytes(bytes), bits::load_bytes(&bytes[16..]));
    let low = _mm_set1_epi8(15);
    if b.is_multiple_of(2) {
        _mm_or_si128(_mm_and_si128(first, low), _mm_slli_epi16::<4>(_mm_and_si128(last, low)))
    } else {
        _mm_or_si128(_mm_and_si128(_mm_srli_epi16::<4>(first), low), _mm_andnot_si128(low, last))
    }
}

/// Packs what stands before the quants in the file: two f16, then the 6-bit scales.
fn store_scales(rows: &[&[u8]; ROWS], dst: &mut [u8]) {
    let (sixes, supers) = dst.split_at_mut(SIXES * ROWS);
    store_bytes::<SIXES>(rows, 4, sixes);
    store_halves(rows, 0, supers);
    store_halves(rows, 2, &mut supers[HALVES..]);
}

/// Multiplies the scales and minima of the 8 blocks out.
///
/// # Safety
/// `scales` holds 6-bit scales (12, 16 rows) and twice 16 f16; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn heads(scales: *const u8, room: &mut Heads<ScaleMin>) -> *const ScaleMin {
    let mut whole = [[0_u8; ROWS]; 2 * BLOCKS_OF_256]; // scales, then minima
    let (d, dmin);
    // SAFETY: 12 times 16 bytes, then the f16; `whole` has 16 times 16 bytes. Two blocks go at a time.
    unsafe {
        let sixes = scales.cast::<__m256i>();
        let dst = whole.as_mut_ptr().cast::<__m256i>();
        let (low4, low6, high2) = (_mm256_set1_epi8(15), _mm256_set1_epi8(63), _mm256_set1_epi8(0b11_0000));
        for i in 0..2 {
            let (a, b, c) = (_mm256_loadu_si256(sixes.add(i)), _mm256_loadu_si256(sixes.add(2 + i)), _mm256_loadu_si256(sixes.add(4 + i)));
            // The first four of both fill 6 bits of their byte; its upper two belong to one of the last four.
            let upper_a = _mm256_and_si256(_mm256_srli_epi16::<2>(a), high2);
            let upper_b = _mm256_and_si256(_mm256_srli_epi16::<2>(b), high2);
            _mm256_storeu_si256(dst.add(i), _mm256_and_si256(a, low6));
            _mm256_storeu_si256(dst.add(2 + i), _mm256_or_si256(_mm256_and_si256(c, low4), upper_a));
            _mm256_storeu_si256(dst.add(4 + i), _mm256_and_si256(b, low6));
            _mm256_storeu_si256(dst.add(6 + i), _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16::<4>(c), low4), upper_b));
        }
        d = halves(scales.add(SIXES * ROWS));
        dmin = halves(scales.add(SIXES * ROWS + HALVES)).map(|dmin| _mm256_xor_ps(dmin, _mm256_set1_ps(-0.0)));
    }
    for (b, head) in room.iter_mut().enumerate() {
        head.write(ScaleMin { d: times(d, &whole[b]), m: times(dmin, &whole[BLOCKS_OF_256 + b]) });
    }
    room.as_ptr().cast()
}

/// Scales of scales times whole scales, rows by halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn times(scale: [__m256; 2], whole: &[u8; ROWS]) -> [__m256; 2] {
    [_mm256_mul_ps(scale[0], _mm256_cvtepi32_ps(widen(whole, 0))), _mm256_mul_ps(scale[1], _mm256_cvtepi32_ps(widen(whole, 1)))]
}
