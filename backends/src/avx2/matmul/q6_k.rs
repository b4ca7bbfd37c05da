//! `Q6_K`: nibbles and two more bits for 8 blocks, with a signed scale for 16 columns.

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::Grouped;
use super::scales::halves;
use crate::panels::{BLOCKS_OF_256, FOUR_BITS, ROWS, SIX_BITS, near_groups, store_bytes, store_halves};

/// Unit: nibbles and two bits (8 blocks, 4 + 2 vectors), scales (16, 16 rows), scales of scales (16 f16).
pub(crate) struct Q6K;

impl Codec for Q6K {
    const FORMAT: Format = Format::Q6_K;
    const SUM: Sum = Sum::Pairs(1);
    type Head = Grouped<5>;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        near_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(BLOCKS_OF_256 * SIX_BITS);
        for (b, quants) in quants.chunks_exact_mut(SIX_BITS).enumerate() {
            // In the file 128 columns share 64 bytes of nibbles and 32 bytes of the two upper bits.
            let (low, high) = (64 * (b / 4) + 32 * (b % 2), 128 + 32 * (b / 4));
            let nibbles = |row: &[u8]| {
                let halves = [0, 16].map(|i| at(bits::load_bytes(&row[low + i..]), b % 4 / 2 * 4, 15));
                let [even, odd] = deal(halves);
                _mm_or_si128(even, _mm_slli_epi16::<4>(odd))
            };
            bits::store_dwords(&rows.map(nibbles), quants);
            let two_bits = |row: &[u8]| [0, 16].map(|i| at(bits::load_bytes(&row[high + i..]), 2 * (b % 4), 3));
            bits::store_two_bits(&rows.map(two_bits), &mut quants[FOUR_BITS..]);
        }
        let (groups, supers) = scales.split_at_mut(16 * ROWS);
        store_bytes::<16>(rows, 192, groups);
        store_halves(rows, 208, supers);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with the blocks' quants.
        unsafe {
            let block = unit.add(b * SIX_BITS);
            let [low, high] = bits::nibbles(block, half, p);
            let (upper, [g, h]) = (block.add(FOUR_BITS), near_groups(p));
            [_mm256_or_si256(low, bits::two_bits(upper, half, g, 4)), _mm256_or_si256(high, bits::two_bits(upper, half, h, 4))]
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants, then the scales of scales.
        unsafe {
            let groups = unit.add(BLOCKS_OF_256 * SIX_BITS);
            let d = halves(groups.add(16 * ROWS));
            for (b, head) in room.iter_mut().enumerate() {
                let groups = groups.add(2 * b * ROWS).cast::<[i8; ROWS]>();
                head.write(Grouped::new(d, [&*groups, &*groups.add(1)]));
            }
        }
        room.as_ptr().cast()
    }
}

/// The bits `mask << from` of every byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn at(v: __m128i, from: usize, mask: i8) -> __m128i {
    _mm_and_si128(_mm_srl_epi16(v, _mm_cvtsi64_si128(from as i64)), _mm_set1_epi8(mask))
}

/// Groups of 4 columns of 32, the even ones and the odd ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn deal(columns: [__m128i; 2]) -> [__m128i; 2] {
    let [a, b] = columns.map(|c| _mm_castsi128_ps(c));
    [_mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(a, b)), _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(a, b))]
}
