//! The largest logit of each block: one pass over the vocabulary, after which best token and top-k look at few blocks.

use rml_kernels_ref::sampling::BLOCK;

use super::Ties;
use super::kernels::{CHUNK, Kernels, spread};
use super::patches::Patches;
use crate::exec::Team;
use crate::{Error, Result};

/// Maxima of blocks, and of blocks of those.
#[derive(Debug)]
pub(super) struct Maxima {
    blocks: Vec<f32>,  // (n_blocks)
    groups: Vec<f32>,  // (n_blocks.div_ceil(BLOCK))
    finite: Vec<bool>, // (n_chunks)
    ranked: Vec<u32>,  // (n_blocks) room for a selection
}

impl Maxima {
    pub(super) fn new(n_vocab: usize) -> Self {
        let n_blocks = n_vocab.div_ceil(BLOCK);
        Maxima {
            blocks: vec![0.0; n_blocks],
            groups: vec![0.0; n_blocks.div_ceil(BLOCK)],
            finite: vec![false; n_vocab.div_ceil(CHUNK)],
            ranked: Vec::with_capacity(n_blocks),
        }
    }

    /// Takes the maxima of `logits` (n_vocab).
    ///
    /// # Errors
    /// If a logit is NaN or infinite: names it.
    pub(super) fn observe(&mut self, kernels: &Kernels, logits: &[f32], team: Option<&Team>) -> Result<()> {
        spread(team, (&mut self.blocks, CHUNK / BLOCK), (&mut self.finite, 1), |i, blocks, finite| {
            let chunk = &logits[i * CHUNK..logits.len().min((i + 1) * CHUNK)];
            finite[0] = (kernels.block_max)(chunk, blocks);
        });
        if self.finite.iter().all(|&finite| finite) {
            return Ok(());
        }
        let i = logits.iter().position(|l| !l.is_finite()).unwrap_or(0);
        Err(Error::invalid("logits", format!("that of token {i} is {}; the model or its file is damaged", logits[i])))
    }

    /// Takes the maxima of blocks with a patch anew.
    pub(super) fn patch(&mut self, kernels: &Kernels, logits: &[f32], patches: &Patches) {
        let mut copy = [0.0; BLOCK];
        for b in patches.dirty() {
            // Suppressed tokens are at -inf here, so whether all are finite does not matter.
            (kernels.block_max)(patches.block(b, logits, &mut copy), &mut self.blocks[b..=b]);
        }
    }

    /// The largest logit of all.
    ///
    /// # Errors
    /// If every token is suppressed.
    pub(super) fn best(&mut self, kernels: &Kernels) -> Result<f32> {
        (kernels.block_max)(&self.blocks, &mut self.groups);
        let best = self.groups.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
        if best == f32::NEG_INFINITY {
            return Err(Error::invalid("suppress", "it names every token; leave at least one to be drawn"));
        }
        Ok(best)
    }

    /// The token with the logit `best`, which is the best.
    pub(super) fn locate(&self, best: f32, ties: Ties, logits: &[f32], patches: &Patches) -> u32 {
        let find = |x: &[f32]| match ties {
            Ties::Lower => x.iter().position(|&x| x == best),
            Ties::Higher => x.iter().rposition(|&x| x == best),
        };
        let within = |x: &[f32], i: usize| i * BLOCK + find(&x[i * BLOCK..x.len().min((i + 1) * BLOCK)]).unwrap_or(0);
        let group = find(&self.groups).unwrap_or(0);
        let b = within(&self.blocks, group);
        let mut copy = [0.0; BLOCK];
        (b * BLOCK + find(patches.block(b, logits, &mut copy)).unwrap_or(0)) as u32
    }

    /// A logit that at least `k` tokens reach, if there are that many: the `k`-th largest of the maxima.
    fn reached_by(&mut self, k: usize) -> f32 {
        if k > self.blocks.len() {
            return f32::MIN;
        }
        self.ranked.clear();
        self.ranked.extend(self.blocks.iter().map(|&l| ascending(l)));
        let (_, kth, _) = self.ranked.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        // Not below f32::MIN, where suppressed tokens are.
        unordered(*kth).max(f32::MIN)
    }

    /// Hands tokens and their logits to `found`, by id: the `k` best, and others not below the threshold that was used.
    pub(super) fn each_of_the_best(
        &mut self,
        kernels: &Kernels,
        k: usize,
        logits: &[f32],
        patches: &Patches,
        mut found: impl FnMut(usize, f32),
    ) {
        let threshold = self.reached_by(k);
        let (mut copy, mut hits) = ([0.0; BLOCK], [0; BLOCK]);
        kernels.each_at_least(&self.blocks, threshold, |b| {
            let block = patches.block(b, logits, &mut copy);
            let n = (kernels.at_least)(block, threshold, &mut hits);
            hits[..n].iter().for_each(|&i| found(b * BLOCK + i as usize, block[i as usize]));
        });
    }
}

/// Bits that compare as the numbers do; both zeros become one.
pub(super) fn ascending(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

/// The number that [`ascending`] was given.
pub(super) fn unordered(bits: u32) -> f32 {
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_in_the_order_of_numbers() {
        let x = [f32::NEG_INFINITY, f32::MIN, -1.5, -1.0, -1e-45, 0.0, 1e-45, 1.0, f32::MAX, f32::INFINITY];
        assert!(x.windows(2).all(|w| ascending(w[0]) < ascending(w[1])));
        assert!(x.iter().all(|&x| unordered(ascending(x)) == x));
        assert_eq!(ascending(-0.0), ascending(0.0));
    }
}
