//! Gated activations.

use std::arch::x86_64::*;

use super::exp::exp_each;

/// Numbers in a register.
const WIDTH: usize = 16;
/// Registers that are taken together: a step of an exponential takes four cycles, in which the others' can start.
const TOGETHER: usize = 4;

pub(super) fn silu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "silu_mul");
    // SAFETY: installed.
    unsafe { silu_mul_avx512(gate, up) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn silu_mul_avx512(gate: &mut [f32], up: &[f32]) {
    let ((gates, gates_left), (ups, ups_left)) = (gate.as_chunks_mut::<{ TOGETHER * WIDTH }>(), up.as_chunks::<{ TOGETHER * WIDTH }>());
    for (gate, up) in gates.iter_mut().zip(ups) {
        silu_mul_each::<TOGETHER>(gate, up);
    }
    for (gate, up) in gates_left.chunks_mut(WIDTH).zip(ups_left.chunks(WIDTH)) {
        silu_mul_each::<1>(gate, up);
    }
}

/// `gate / (1 + exp(-gate)) * up` of `V` registers, the last of which need not be full.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn silu_mul_each<const V: usize>(gate: &mut [f32], up: &[f32]) {
    let n = gate.len();
    assert!(n > (V - 1) * WIDTH && n <= V * WIDTH && n == up.len());
    let there = |i: usize| if i + 1 < V { u16::MAX } else { u16::MAX >> (V * WIDTH - n) };
    let (mut x, mut negative) = ([_mm512_setzero_ps(); V], [_mm512_setzero_ps(); V]);
    for i in 0..V {
        // SAFETY: the numbers that are there.
        x[i] = unsafe { _mm512_maskz_loadu_ps(there(i), gate.as_ptr().add(i * WIDTH)) };
        negative[i] = _mm512_xor_ps(x[i], _mm512_set1_ps(-0.0));
    }
    let e = exp_each(negative);
    for i in 0..V {
        let silu = _mm512_div_ps(x[i], _mm512_add_ps(_mm512_set1_ps(1.0), e[i]));
        // SAFETY: the numbers that are there.
        unsafe {
            let up = _mm512_maskz_loadu_ps(there(i), up.as_ptr().add(i * WIDTH));
            _mm512_mask_storeu_ps(gate.as_mut_ptr().add(i * WIDTH), there(i), _mm512_mul_ps(silu, up));
        }
    }
}
