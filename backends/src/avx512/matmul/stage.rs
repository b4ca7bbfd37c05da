//! What a tile reads of its tokens besides their quants, brought side by side.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::scales::{Scales, TokenBlock};
use crate::panels::{BLOCK, Tokens};

/// Most blocks in a stretch.
pub(super) const STRETCH: usize = 32;

/// A stretch of at most [`STRETCH`] blocks of `N` tokens, at constant distances: a loop needs one address for all of them.
pub(super) struct Stage<const N: usize> {
    scale: [[f32; STRETCH]; N],
    scaled_sum: [[f32; STRETCH]; N],
    whole: [[[i32; STRETCH]; 2]; N],
}

impl<const N: usize> Stage<N> {
    /// Fills in what `S` asks for of the first `n_blocks` blocks.
    ///
    /// # Safety
    /// There are `N` tokens with `n_blocks <= STRETCH` blocks; the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn fill<S: Scales>(stage: &mut MaybeUninit<Self>, x: Tokens, n_blocks: usize) {
        let stage = stage.as_mut_ptr();
        for t in 0..N {
            let x = x.at(t, 0);
            for first in (0..n_blocks).step_by(16) {
                let there = u16::MAX >> (16 - (n_blocks - first).min(16));
                // SAFETY: only blocks that are there are read; 16 numbers from `first` on are within the stretch.
                unsafe {
                    let scale = _mm512_maskz_loadu_ps(there, x.scale.add(first));
                    _mm512_storeu_ps((&raw mut (*stage).scale[t]).cast::<f32>().add(first), scale);
                    if S::MIN {
                        let scaled_sum = _mm512_maskz_loadu_ps(there, x.scaled_sum.add(first));
                        _mm512_storeu_ps((&raw mut (*stage).scaled_sum[t]).cast::<f32>().add(first), scaled_sum);
                    }
                    if S::WHOLE {
                        let sums = _mm512_maskz_loadu_epi32(there, x.sum.add(2 * first).cast());
                        let [a, b] = S::whole(sums);
                        _mm512_storeu_si512((&raw mut (*stage).whole[t][0]).cast::<i32>().add(first).cast(), a);
                        _mm512_storeu_si512((&raw mut (*stage).whole[t][1]).cast::<i32>().add(first).cast(), b);
                    }
                }
            }
        }
    }

    /// Block `b` of token `t`; what was not asked for is 0.
    ///
    /// # Safety
    /// The stage was filled for `S` with more than `b` blocks; `t < N`.
    #[inline(always)]
    pub(super) unsafe fn block<S: Scales>(stage: &MaybeUninit<Self>, t: usize, b: usize) -> TokenBlock {
        let stage = stage.as_ptr();
        let mut block = TokenBlock { scale: 0.0, scaled_sum: 0.0, whole: [0; 2] };
        // SAFETY: within the stretch; what `S` asks for was filled in.
        unsafe {
            block.scale = (&raw const (*stage).scale[t]).cast::<f32>().add(b).read();
            if S::MIN {
                block.scaled_sum = (&raw const (*stage).scaled_sum[t]).cast::<f32>().add(b).read();
            }
            if S::WHOLE {
                block.whole[0] = (&raw const (*stage).whole[t][0]).cast::<i32>().add(b).read();
                block.whole[1] = (&raw const (*stage).whole[t][1]).cast::<i32>().add(b).read();
            }
        }
        block
    }
}

const _: () = assert!(STRETCH.is_multiple_of(16) && BLOCK == 32);
