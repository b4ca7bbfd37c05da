//! Writing a position into the key-value cache of a head, in the layout of [`crate::kv`].

use half::f16;

use crate::kv::{KEY_PANEL, KV_GROUP, KvHeadMut, kv_groups};

/// Where component `j` of key `t` stands.
pub(crate) fn key_index(t: usize, j: usize, d: usize) -> usize {
    (t / KEY_PANEL * d + j) * KEY_PANEL + t % KEY_PANEL
}

/// Where the scale of component `j` of position `t` stands.
pub(crate) fn scale_index(t: usize, j: usize, d: usize) -> usize {
    key_index(t, j / KV_GROUP, kv_groups(d))
}

/// Writes key and value of position `t` into the cache of a head.
///
/// - Formula: the layout of [`crate::kv`].
/// - Shapes: `key`, `value` (d); the cache for more than `t` positions.
/// - Requires: equal lengths.
/// - Numerics: f16 by rounding to even; what is too large becomes infinite. i8 as [`quantize_group`] says.
/// - Cost: `2 d` numbers, the key's 16 apart.
pub fn append(kv: &mut KvHeadMut<'_>, t: usize, key: &[f32], value: &[f32]) {
    let d = key.len();
    assert_eq!(d, value.len(), "append");
    match kv {
        KvHeadMut::F16 { k, v } => {
            for (j, (&key, &value)) in key.iter().zip(value).enumerate() {
                k[key_index(t, j, d)] = f16::from_f32(key);
                v[t * d + j] = f16::from_f32(value);
            }
        }
        KvHeadMut::F32 { k, v } => {
            for (j, (&key, &value)) in key.iter().zip(value).enumerate() {
                k[key_index(t, j, d)] = key;
                v[t * d + j] = value;
            }
        }
        KvHeadMut::I8 { k, v, k_scale, v_scale } => {
            for j in (0..d).step_by(KV_GROUP) {
                let group = j..d.min(j + KV_GROUP);
                let mut q = [0; KV_GROUP];
                k_scale[scale_index(t, j, d)] = quantize_group(&key[group.clone()], &mut q);
                group.clone().zip(q).for_each(|(j, q)| k[key_index(t, j, d)] = q);
                v_scale[scale_index(t, j, d)] = quantize_group(&value[group.clone()], &mut q);
                group.zip(q).for_each(|(j, q)| v[t * d + j] = q);
            }
        }
    }
}

/// Quantizes up to 32 numbers to `scale * q` and returns the scale; `q` is written as far as `x` goes.
///
/// `scale` is `max|x| / 127` in f16, `q` is `x * (1 / scale)` rounded to even and kept within 127. A group whose scale is no
/// finite number, as some `x` is none or too large, has `q = 0` and so reads as NaN; one with scale 0 reads as 0.
pub fn quantize_group(x: &[f32], q: &mut [i8; KV_GROUP]) -> f16 {
    // The order of magnitudes is the order of their bits, so the maximum is free of any order of comparing.
    let max = f32::from_bits(x.iter().fold(0, |m, x| m.max(x.abs().to_bits())));
    let (scale, inverse) = group_scale(max);
    for (q, &x) in q.iter_mut().zip(x) {
        *q = if inverse == 0.0 { 0 } else { (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8 };
    }
    scale
}

/// The scale of a group whose largest magnitude is `max`, and what its numbers are multiplied with: 0 where `q` is to be 0.
pub fn group_scale(max: f32) -> (f16, f32) {
    let scale = f16::from_f32(max / 127.0);
    let inverse = 1.0 / scale.to_f32();
    (scale, if scale.is_finite() && inverse.is_finite() { inverse } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantized(x: &[f32]) -> (f32, [i8; KV_GROUP]) {
        let mut q = [99; KV_GROUP];
        let scale = quantize_group(x, &mut q);
        (scale.to_f32(), q)
    }

    #[test]
    fn the_largest_is_127_and_ties_go_to_even() {
        let (scale, q) = quantized(&[254.0, -127.0, 1.0, 3.0, -5.0, 0.9]);
        assert_eq!((scale, &q[..7]), (2.0, &[127, -64, 0, 2, -2, 0, 99][..]));
    }

    #[test]
    fn a_scale_that_f16_rounds_down_stays_within_127() {
        // 1.4 of the least subnormal rounds to 1 of it.
        let least = 2.0_f32.powi(-24);
        let (scale, q) = quantized(&[127.0 * 1.4 * least, -127.0 * 1.4 * least, least]);
        assert_eq!((scale, &q[..3]), (least, &[127, -127, 1][..]));
    }

    #[test]
    fn nothing_and_what_is_no_number() {
        assert_eq!(quantized(&[0.0, -0.0, 1e-9]).0, 0.0);
        assert_eq!(quantized(&[0.0, 1e-9]).1[..2], [0, 0]);
        assert!(quantized(&[1.0, f32::NAN]).0.is_nan());
        for x in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let (scale, q) = quantized(&[1.0, x]);
            assert!((scale * f32::from(q[0])).is_nan() && (scale * f32::from(q[1])).is_nan(), "{x}");
        }
    }

    #[test]
    fn positions_and_groups_have_their_places() {
        // d = 33: a group of 32 and one of 1.
        let (mut k, mut v, mut k_scale, mut v_scale) = ([9_i8; 32 * 33], [9_i8; 32 * 33], [f16::ZERO; 64], [f16::ZERO; 64]);
        let mut kv = KvHeadMut::I8 { k: &mut k, v: &mut v, k_scale: &mut k_scale, v_scale: &mut v_scale };
        let mut key = [0.0; 33];
        (key[3], key[32]) = (127.0, 254.0);
        let value = key.map(|x| -2.0 * x);
        append(&mut kv, 17, &key, &value);
        assert_eq!((k[16 * 33 + 3 * 16 + 1], k[16 * 33 + 32 * 16 + 1], v[17 * 33 + 3], v[17 * 33 + 32]), (127, 127, -127, -127));
        // Panel 1 of 2 groups starts at 32; position 17 is the second of its panel.
        assert_eq!([k_scale[33], k_scale[49], v_scale[33], v_scale[49]].map(f16::to_f32), [1.0, 2.0, 2.0, 4.0]);
        assert_eq!(k.iter().filter(|&&q| q == 9).count(), 31 * 33, "no other position is touched");
        assert_eq!(v_scale.iter().filter(|&&s| s != f16::ZERO).count(), 2);
    }
}
