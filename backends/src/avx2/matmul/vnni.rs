//! Dot products of bytes, for CPUs that have them without AVX-512 (AVX-VNNI).
//!
//! The instruction stands in `asm!`: tiles are generic, so they are functions for any CPU with AVX2, into which a function for
//! CPUs with more is not inlined. What uses it is handed out by [`Avx2::install`](crate::avx2::Avx2) alone, after it has seen `avxvnni`.

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;

use rml_kernels_ref::format::Format;

use super::codec::{Codec, Heads, Sum};
use super::head::Head;
use super::tokens::TokenBlock;
use crate::panels::ROWS;

/// What makes a signed byte unsigned.
const SIGNED: i16 = 128;

/// The codec `C` with quants as dot products take them: unsigned.
pub(crate) struct Vnni<C>(PhantomData<C>);

impl<C: Codec> Codec for Vnni<C> {
    const FORMAT: Format = C::FORMAT;
    const SUM: Sum = Sum::Dot(if matches!(C::SUM, Sum::Signed) { SIGNED } else { C::Head::OFFSET });
    const UNIT_BYTES: usize = C::UNIT_BYTES;
    const UNIT: usize = C::UNIT;
    type Head = C::Head;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        C::groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        // SAFETY: the caller's.
        unsafe { C::pack(rows, unit) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the caller's.
        let pair = unsafe { C::pair(unit, b, half, p) };
        if matches!(C::SUM, Sum::Signed) {
            let sign = _mm256_set1_epi8(i8::MIN);
            [_mm256_xor_si256(pair[0], sign), _mm256_xor_si256(pair[1], sign)]
        } else {
            pair
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the caller's.
        unsafe { C::heads(unit, room) }
    }
}

/// What sums start from, so that they come out as if no quant had `offset` added: over columns `16 * columns ..` in a grouped
/// format, else over all.
///
/// # Safety
/// The CPU has the features; `columns < 2`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn seed<H: Head>(x: &TokenBlock, columns: usize, offset: i16) -> __m256i {
    if offset == 0 {
        return _mm256_setzero_si256();
    }
    let factors = match (H::GROUPED, columns) {
        (false, _) => [-offset; 2],
        (true, 0) => [-offset, 0],
        (true, _) => [0, -offset],
    };
    let both = u32::from(factors[0] as u16) | u32::from(factors[1] as u16) << 16;
    _mm256_madd_epi16(x.sums, _mm256_set1_epi32(both as i32))
}

/// `sum` plus, in each lane, the products of four unsigned quants and four activations.
///
/// Not declared `pure`, so that the order stays: the compiler would load all quants first, and there are not as many registers.
///
/// # Safety
/// The CPU has AVX-VNNI.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn dot(mut sum: __m256i, quants: __m256i, activations: __m256i) -> __m256i {
    // SAFETY: within registers; the caller vouches for the instruction.
    unsafe {
        asm!(
            "{{vex}} vpdpbusd {sum}, {quants}, {activations}",
            sum = inout(ymm_reg) sum, quants = in(ymm_reg) quants, activations = in(ymm_reg) activations,
            options(nomem, nostack, preserves_flags)
        );
    }
    sum
}
