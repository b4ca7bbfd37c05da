//! Layout of the key-value cache of one head, shared by every backend.
//!
//! Keys stand in panels of 16 positions, so that one vector holds the scores of 16 keys: key `t`, component `j` is at
//! `((t / 16) * d + j) * 16 + t % 16`. Values stand a row a position: value `t`, component `j` is at `t * d + j`.
//!
//! Integers of 8 bits share a scale a group of 32 components, the last group of a head being shorter where `d` is no multiple;
//! the number is `scale * q`, which f32 holds exactly. Scales of keys and of values alike stand in panels of 16 positions: that
//! of position `t` and group `i` is at `((t / 16) * groups + i) * 16 + t % 16`.

use half::f16;

/// Positions in a panel of keys.
pub const KEY_PANEL: usize = 16;
/// Keys that share one maximum: the unit in which attention walks the cache.
pub const KEY_BLOCK: usize = 64;
/// Keys folded in order before spans are merged in order: the unit that threads may share out.
pub const KEY_SPAN: usize = 512;

/// Components that share a scale where numbers are stored in 8 bits.
pub const KV_GROUP: usize = 32;

/// Scales of a key or a value of `d` components.
pub const fn kv_groups(d: usize) -> usize {
    d.div_ceil(KV_GROUP)
}

/// Type of the numbers in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// IEEE half, the default.
    F16,
    /// 32-bit float.
    F32,
    /// 8-bit integers with a scale in f16 for each 32: a little more than half the memory of f16.
    I8,
}

impl KvType {
    /// Every type.
    pub const ALL: [KvType; 3] = [KvType::F16, KvType::F32, KvType::I8];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::F32 => "f32",
            KvType::I8 => "i8",
        }
    }

    /// Bytes of a key or a value of `d` components, its scales included.
    pub const fn row_bytes(self, d: usize) -> usize {
        match self {
            KvType::F16 => 2 * d,
            KvType::F32 => 4 * d,
            KvType::I8 => d + 2 * kv_groups(d),
        }
    }
}

/// The cache of one key-value head, for a capacity of `c` positions (a multiple of [`KEY_PANEL`]).
#[derive(Clone, Copy, Debug)]
pub enum KvHead<'a> {
    /// Keys (c / 16, d, 16) and values (c, d).
    F16 {
        /// Keys in panels.
        k: &'a [f16],
        /// Values in rows.
        v: &'a [f16],
    },
    /// Keys (c / 16, d, 16) and values (c, d).
    F32 {
        /// Keys in panels.
        k: &'a [f32],
        /// Values in rows.
        v: &'a [f32],
    },
    /// Keys (c / 16, d, 16) and values (c, d), and the scales of both (c / 16, groups, 16).
    I8 {
        /// Keys in panels.
        k: &'a [i8],
        /// Values in rows.
        v: &'a [i8],
        /// Scales of the keys, in panels.
        k_scale: &'a [f16],
        /// Scales of the values, in panels.
        v_scale: &'a [f16],
    },
}

/// One span of keys attended by `m` tokens and the `g` query heads that share a key-value head.
///
/// Token `i` stands at position `first + i` and sees the keys `t` with `t <= first + i` and `t + window > first + i`.
#[derive(Clone, Copy, Debug)]
pub struct AttendSpan<'a> {
    /// Queries: token `i`, head `h` at `i * q_stride + h * d`. ((m - 1) * q_stride + g * d or more)
    pub q: &'a [f32],
    /// Distance of two tokens in `q`.
    pub q_stride: usize,
    /// Tokens.
    pub m: usize,
    /// Query heads.
    pub g: usize,
    /// Head size.
    pub d: usize,
    /// The cache of the head.
    pub kv: KvHead<'a>,
    /// Position of token 0.
    pub first: usize,
    /// How many positions back a token sees, itself included; `usize::MAX` for all.
    pub window: usize,
    /// Which span: keys `span * KEY_SPAN ..` up to the next.
    pub span: usize,
    /// What scores are multiplied with, usually `1 / sqrt(d)`.
    pub scale: f32,
    /// What keeps scores within limits, if anything: [`soft_cap`](crate::gate::soft_cap).
    pub cap: Option<f32>,
}

/// What a span yields for every row `r = i * g + h`, relative to the maximum score it saw.
#[derive(Debug)]
pub struct SpanState<'a> {
    /// Sum of `exp(score - max) * v`. (m * g, d)
    pub out: &'a mut [f32],
    /// Largest score, `-inf` where no key of the span is seen. (m * g)
    pub max: &'a mut [f32],
    /// Sum of `exp(score - max)`, 0 where no key is seen. (m * g)
    pub sum: &'a mut [f32],
}

/// [`KvHead`], to be written.
#[derive(Debug)]
pub enum KvHeadMut<'a> {
    /// As [`KvHead::F16`].
    F16 {
        /// Keys in panels.
        k: &'a mut [f16],
        /// Values in rows.
        v: &'a mut [f16],
    },
    /// As [`KvHead::F32`].
    F32 {
        /// Keys in panels.
        k: &'a mut [f32],
        /// Values in rows.
        v: &'a mut [f32],
    },
    /// As [`KvHead::I8`].
    I8 {
        /// Keys in panels.
        k: &'a mut [i8],
        /// Values in rows.
        v: &'a mut [i8],
        /// Scales of the keys, in panels.
        k_scale: &'a mut [f16],
        /// Scales of the values, in panels.
        v_scale: &'a mut [f16],
    },
}

impl<'a> KvHeadMut<'a> {
    /// The cache, to be read.
    pub fn into_shared(self) -> KvHead<'a> {
        match self {
            KvHeadMut::F16 { k, v } => KvHead::F16 { k, v },
            KvHeadMut::F32 { k, v } => KvHead::F32 { k, v },
            KvHeadMut::I8 { k, v, k_scale, v_scale } => KvHead::I8 { k, v, k_scale, v_scale },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 34 bytes for 32 numbers against 64, by hand.
    #[test]
    fn i8_takes_little_more_than_half_of_f16() {
        assert_eq!(KvType::ALL.map(|kind| kind.row_bytes(80)), [160, 320, 86]);
        for d in [32, 64, 80, 96, 128, 192, 256] {
            let (i8, f16) = (KvType::I8.row_bytes(d), KvType::F16.row_bytes(d));
            assert!(100 * i8 <= 55 * f16, "d = {d}: {i8} bytes of {f16}");
        }
    }
}
