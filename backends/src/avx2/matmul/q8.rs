//! `Q8_0`: signed bytes for 32 columns.

use std::arch::x86_64::*;

use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::Scale;
use super::scales::halves;
use crate::panels::{EIGHT_BITS, ROWS, VECTOR, far_groups, store_halves};

/// Unit: bytes (8 vectors, one a group), scales (16 f16).
pub(crate) struct Q8_0;

impl Codec for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const SUM: Sum = Sum::Signed;
    type Head = Scale<0>;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pack(rows: &[&[u8]; ROWS], unit: &mut [u8]) {
        let (quants, scales) = unit.split_at_mut(EIGHT_BITS);
        for (i, quants) in quants.chunks_exact_mut(4 * VECTOR).enumerate() {
            bits::store_dwords(&rows.map(|row| bits::load_bytes(&row[2 + 16 * i..])), quants);
        }
        store_halves(rows, 0, scales);
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, _: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with 8 vectors.
        unsafe { [bits::load(unit, half, far_groups(p)[0]), bits::load(unit, half, far_groups(p)[1])] }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants.
        room[0].write(Scale { d: unsafe { halves(unit.add(EIGHT_BITS)) } })
    }
}
