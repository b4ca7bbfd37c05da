//! Scales of 4 rows by 32 columns, and how they turn exact integer sums into a contribution to the result.

use std::arch::aarch64::*;

/// What is known of the same block of up to 4 tokens besides its quants, a lane each. What [`Scales`] do not ask for is 0.
#[derive(Clone, Copy)]
pub(super) struct TokenBlock {
    /// Scale.
    pub(super) scale: float32x4_t,
    /// Scale times sum.
    pub(super) scaled_sum: float32x4_t,
    /// Sums of the two halves.
    pub(super) sums: [int32x4_t; 2],
}

/// Scales of a block.
pub(super) trait Scales: Copy + 'static {
    /// What was added to quants: sums start from as many times less than nothing as the activations' sum.
    const OFFSET: i32 = 0;
    /// Whether there is a minimum, which takes [`TokenBlock::scaled_sum`].
    const MIN: bool = false;
    /// Whether each half of the columns has a whole scale, so that sums are taken by halves.
    const GROUPED: bool = false;
    /// Whether [`TokenBlock::sums`] are asked for.
    const SUMS: bool = Self::OFFSET != 0;

    /// The sum of both halves, whole scales applied.
    ///
    /// # Safety
    /// None is needed, here and below, as every CPU of this architecture has NEON.
    unsafe fn join(&self, low: int32x4_t, high: int32x4_t) -> int32x4_t;

    /// `acc` with this block added for token `t`, given the sum of both halves.
    unsafe fn finish(&self, acc: float32x4_t, sum: int32x4_t, x: &TokenBlock, t: usize) -> float32x4_t;
}

/// One scale for 32 columns; quants are stored with `OFFSET` added.
#[derive(Clone, Copy)]
pub(super) struct Scale<const OFFSET: i32>(pub(super) float32x4_t);

impl<const OFFSET: i32> Scales for Scale<OFFSET> {
    const OFFSET: i32 = OFFSET;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn join(&self, low: int32x4_t, high: int32x4_t) -> int32x4_t {
        vaddq_s32(low, high)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn finish(&self, acc: float32x4_t, sum: int32x4_t, x: &TokenBlock, t: usize) -> float32x4_t {
        vfmaq_f32(acc, times(self.0, x.scale, t), vcvtq_f32_s32(sum))
    }
}

/// One scale and one minimum for 32 columns.
#[derive(Clone, Copy)]
pub(super) struct ScaleMin {
    /// Scale.
    pub(super) d: float32x4_t,
    /// What is added for each column.
    pub(super) m: float32x4_t,
}

impl Scales for ScaleMin {
    const MIN: bool = true;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn join(&self, low: int32x4_t, high: int32x4_t) -> int32x4_t {
        vaddq_s32(low, high)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn finish(&self, acc: float32x4_t, sum: int32x4_t, x: &TokenBlock, t: usize) -> float32x4_t {
        let acc = vfmaq_f32(acc, times(self.d, x.scale, t), vcvtq_f32_s32(sum));
        plus_times(acc, self.m, x.scaled_sum, t)
    }
}

/// A whole scale for 16 columns and one scale of scales; quants are stored with `OFFSET` added.
#[derive(Clone, Copy)]
pub(super) struct Grouped<const OFFSET: i32> {
    /// Scale of scales.
    pub(super) d: float32x4_t,
    /// Whole scales, by halves of the columns.
    pub(super) groups: [int32x4_t; 2],
}

impl<const OFFSET: i32> Scales for Grouped<OFFSET> {
    const OFFSET: i32 = OFFSET;
    const GROUPED: bool = true;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn join(&self, low: int32x4_t, high: int32x4_t) -> int32x4_t {
        vmlaq_s32(vmulq_s32(low, self.groups[0]), high, self.groups[1])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn finish(&self, acc: float32x4_t, sum: int32x4_t, x: &TokenBlock, t: usize) -> float32x4_t {
        vfmaq_f32(acc, times(self.d, x.scale, t), vcvtq_f32_s32(sum))
    }
}

/// A whole scale and a whole minimum for 16 columns, and a scale of each.
#[derive(Clone, Copy)]
pub(super) struct GroupedMin {
    /// Scale of scales.
    pub(super) d: float32x4_t,
    /// Scale of minima.
    pub(super) dmin: float32x4_t,
    /// Whole scales, by halves of the columns.
    pub(super) groups: [int32x4_t; 2],
    /// Whole minima, by halves of the columns.
    pub(super) minima: [int32x4_t; 2],
}

impl Scales for GroupedMin {
    const GROUPED: bool = true;
    const SUMS: bool = true;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn join(&self, low: int32x4_t, high: int32x4_t) -> int32x4_t {
        vmlaq_s32(vmulq_s32(low, self.groups[0]), high, self.groups[1])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn finish(&self, acc: float32x4_t, sum: int32x4_t, x: &TokenBlock, t: usize) -> float32x4_t {
        let acc = vfmaq_f32(acc, times(self.d, x.scale, t), vcvtq_f32_s32(sum));
        let minima = match t {
            0 => vmlaq_laneq_s32::<0>(vmulq_laneq_s32::<0>(self.minima[0], x.sums[0]), self.minima[1], x.sums[1]),
            1 => vmlaq_laneq_s32::<1>(vmulq_laneq_s32::<1>(self.minima[0], x.sums[0]), self.minima[1], x.sums[1]),
            2 => vmlaq_laneq_s32::<2>(vmulq_laneq_s32::<2>(self.minima[0], x.sums[0]), self.minima[1], x.sums[1]),
            _ => vmlaq_laneq_s32::<3>(vmulq_laneq_s32::<3>(self.minima[0], x.sums[0]), self.minima[1], x.sums[1]),
        };
        vfmsq_f32(acc, times(self.dmin, x.scale, t), vcvtq_f32_s32(minima))
    }
}

/// `v` times lane `t` of `lanes`; a constant once loops are unrolled.
#[inline]
#[target_feature(enable = "neon")]
fn times(v: float32x4_t, lanes: float32x4_t, t: usize) -> float32x4_t {
    match t {
        0 => vmulq_laneq_f32::<0>(v, lanes),
        1 => vmulq_laneq_f32::<1>(v, lanes),
        2 => vmulq_laneq_f32::<2>(v, lanes),
        _ => vmulq_laneq_f32::<3>(v, lanes),
    }
}

/// `acc` plus `v` times lane `t` of `lanes`.
#[inline]
#[target_feature(enable = "neon")]
fn plus_times(acc: float32x4_t, v: float32x4_t, lanes: float32x4_t, t: usize) -> float32x4_t {
    match t {
        0 => vfmaq_laneq_f32::<0>(acc, v, lanes),
        1 => vfmaq_laneq_f32::<1>(acc, v, lanes),
        2 => vfmaq_laneq_f32::<2>(acc, v, lanes),
        _ => vfmaq_laneq_f32::<3>(acc, v, lanes),
    }
}
