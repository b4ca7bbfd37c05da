//! Formats without a packing of their own: blocks are decoded when they are packed, to a byte a weight and scales in f32.
//!
//! A panel takes 9 bits a weight where 32 weights share a scale, and 8.6 where 16 share a whole one. That is two to six
//! times the file's, but products run as those of `Q8_0` do, and one kernel serves all formats of a kind.

use std::arch::x86_64::*;

use rml_kernels_ref::activation::{ActivationKind, Activations};
use rml_kernels_ref::blocks::Block;
use rml_kernels_ref::format::Format;

use super::bits;
use super::codec::{Codec, Heads, Sum};
use super::head::{Scale, SignedGroups};
use crate::TileMut;
use crate::backend::Refusal;
use crate::matmul::{MatmulKernel, PackedLayout, Weights};
use crate::panels::{BLOCK, BLOCKS_OF_256, EIGHT_BITS, ROWS, VECTOR, far_groups, near_groups};

/// Bytes of 16 f32.
pub(crate) const FLOATS: usize = 4 * ROWS;

/// A format whose blocks are decoded into the units of `kernel`, which multiplies them.
#[derive(Debug)]
pub(crate) struct Decoded<K> {
    id: &'static str,
    format: Format,
    units: Units,
    kernel: K,
}

/// What stands in a unit: the blocks of 16 rows, and how many blocks of 32 columns these are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Units {
    /// [`Scaled`]
    Scaled(usize),
    /// [`Grouped`]
    Grouped,
}

impl<K> Decoded<K> {
    /// The kernel that prints as `id`; `kernel` takes such units.
    pub(crate) const fn new(id: &'static str, format: Format, units: Units, kernel: K) -> Self {
        Decoded { id, format, units, kernel }
    }
}

impl<K: MatmulKernel> MatmulKernel for Decoded<K> {
    fn id(&self) -> &'static str {
        self.id
    }

    fn format(&self) -> Format {
        self.format
    }

    fn activation(&self) -> ActivationKind {
        self.kernel.activation()
    }

    fn layout(&self, n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        self.kernel.layout(n, k)
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        let row_bytes = self.format.row_bytes(k).expect("a shape that layout accepted");
        assert!(n_rows <= ROWS && src.len() == n_rows * row_bytes, "a panel of {n_rows} rows");
        dst.fill(0); // the missing rows
        let (n_units, block_bytes) = (k / self.format.block_len(), self.format.block_bytes());
        let mut block = Block::default();
        for (i, unit) in dst.chunks_exact_mut((dst.len() / n_units.max(1)).max(1)).enumerate() {
            for r in 0..n_rows {
                block.read(self.format, &src[r * row_bytes + i * block_bytes..][..block_bytes]);
                self.units.put(&block, r, unit);
            }
        }
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        self.kernel.multiply(w, x, out);
    }
}

impl Units {
    /// Puts a block into row `r` of a unit.
    fn put(self, block: &Block, r: usize, unit: &mut [u8]) {
        let n = match self {
            Units::Scaled(n) => n,
            Units::Grouped => BLOCKS_OF_256,
        };
        let (quants, scales) = unit.split_at_mut(n * EIGHT_BITS);
        for (quants, q) in quants.chunks_exact_mut(EIGHT_BITS).zip(block.q.as_chunks::<BLOCK>().0) {
            for (vector, q) in quants.chunks_exact_mut(VECTOR).zip(q.as_chunks::<4>().0) {
                vector[4 * r..][..4].copy_from_slice(&q.map(|q| q as u8));
            }
        }
        let put = |floats: &mut [u8], scale: f32| floats[4 * r..][..4].copy_from_slice(&scale.to_le_bytes());
        match self {
            Units::Scaled(_) => scales.chunks_exact_mut(FLOATS).zip(block.scale).for_each(|(floats, scale)| put(floats, scale)),
            Units::Grouped => {
                let (groups, supers) = scales.split_at_mut(16 * ROWS);
                groups.chunks_exact_mut(ROWS).zip(block.group).for_each(|(groups, group)| groups[r] = group as u8);
                put(supers, block.scale[0]);
            }
        }
    }
}

/// `N` blocks with a scale for 32 columns. Unit: bytes (8 vectors, one a group), for each block; then scales (16 f32), for each.
pub(crate) struct Scaled<const N: usize>;

impl<const N: usize> Codec for Scaled<N> {
    /// One of those that have such units.
    const FORMAT: Format = if N == 1 { Format::IQ4_NL } else { Format::IQ4_XS };
    const SUM: Sum = Sum::Signed;
    const UNIT_BYTES: usize = N * (EIGHT_BITS + FLOATS);
    type Head = Scale<0>;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        far_groups(p)
    }

    unsafe fn pack(_: &[&[u8]; ROWS], _: &mut [u8]) {
        unreachable!("blocks are decoded by `Decoded`")
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with 8 vectors a block.
        unsafe { pair(unit, b, half, far_groups(p)) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        for (b, head) in room[..N].iter_mut().enumerate() {
            // SAFETY: the scales stand behind the quants.
            head.write(Scale { d: unsafe { floats(unit.add(N * EIGHT_BITS + b * FLOATS)) } });
        }
        room.as_ptr().cast()
    }
}

/// 8 blocks with a whole scale for 16 columns. Unit: bytes (8 vectors, one a group), for each block; then whole scales (16, 16
/// rows); then scales of scales (16 f32).
pub(crate) struct Grouped;

impl Codec for Grouped {
    /// One of those that have such units.
    const FORMAT: Format = Format::IQ2_XS;
    const SUM: Sum = Sum::Signed;
    const UNIT_BYTES: usize = BLOCKS_OF_256 * EIGHT_BITS + 16 * ROWS + FLOATS;
    type Head = SignedGroups;

    #[inline]
    fn groups(p: usize) -> [usize; 2] {
        near_groups(p)
    }

    unsafe fn pack(_: &[&[u8]; ROWS], _: &mut [u8]) {
        unreachable!("blocks are decoded by `Decoded`")
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn pair(unit: *const u8, b: usize, half: usize, p: usize) -> [__m256i; 2] {
        // SAFETY: the unit starts with 8 vectors a block.
        unsafe { pair(unit, b, half, near_groups(p)) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads(unit: *const u8, room: &mut Heads<Self::Head>) -> *const Self::Head {
        // SAFETY: the scales stand behind the quants, then the scales of scales.
        unsafe {
            let groups = unit.add(BLOCKS_OF_256 * EIGHT_BITS);
            let d = floats(groups.add(16 * ROWS));
            for (b, head) in room.iter_mut().enumerate() {
                let groups = groups.add(2 * b * ROWS).cast::<[i8; ROWS]>();
                head.write(SignedGroups::new(d, [&*groups, &*groups.add(1)]));
            }
        }
        room.as_ptr().cast()
    }
}

/// # Safety
/// `unit` holds more than `b` blocks; `half < 2`; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pair(unit: *const u8, b: usize, half: usize, groups: [usize; 2]) -> [__m256i; 2] {
    // SAFETY: the caller's.
    unsafe { [bits::load(unit.add(b * EIGHT_BITS), half, groups[0]), bits::load(unit.add(b * EIGHT_BITS), half, groups[1])] }
}

/// 16 f32, rows by halves.
///
/// # Safety
/// `src` holds them; the CPU has the features.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn floats(src: *const u8) -> [__m256; 2] {
    // SAFETY: twice 32 bytes.
    unsafe { [_mm256_loadu_ps(src.cast()), _mm256_loadu_ps(src.add(32).cast())] }
}
