//! Logits that biases, penalties and the suppress list change: a short list, found by token and by block.
//!
//! The logits themselves are never copied. A token is in the list once however often it is named: an epoch table knows
//! the tokens of this call, so that nothing of the size of the vocabulary is cleared between calls.

use rml_kernels_ref::sampling::BLOCK;

use super::SamplerConfig;
use super::kernels::Kernels;
use crate::{Error, Result};

/// The patches of one call.
#[derive(Debug)]
pub(super) struct Patches {
    epoch: u32,         // number of the call
    tokens: Vec<Mark>,  // (n_vocab)
    blocks: Vec<Block>, // (n_blocks)
    dirty: Vec<u32>,    // blocks with a patch
    list: Vec<Patch>,
}

/// Where in the list a token stands, if `epoch` is the call's.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    epoch: u32,
    place: u32,
}

/// Which tokens of a block are patched (bit by position), if `epoch` is the call's.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    tokens: u64,
    epoch: u32,
}

const _: () = assert!(BLOCK == u64::BITS as usize, "a bit for each token of a block");

/// A token whose logit changes.
#[derive(Clone, Copy, Debug)]
struct Patch {
    token: u32,
    count: u32, // occurrences in the window of the penalties
    bias: f64,
    suppressed: bool,
    logit: f32,  // as changed; -inf if suppressed
    weight: f32, // relative to the best; 0 if suppressed
}

impl Patches {
    pub(super) fn new(n_vocab: usize) -> Self {
        let n_blocks = n_vocab.div_ceil(BLOCK);
        Patches {
            epoch: 0,
            tokens: vec![Mark::default(); n_vocab],
            blocks: vec![Block::default(); n_blocks],
            dirty: Vec::with_capacity(n_blocks),
            list: Vec::with_capacity(n_vocab),
        }
    }

    /// Starts anew with no patch.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.dirty.clear();
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // Marks of 2^32 calls ago would look like today's.
            self.tokens.fill(Mark::default());
            self.blocks.fill(Block::default());
            self.epoch = 1;
        }
    }

    /// Starts anew with what `config` changes after `context`. `logits` is (n_vocab), all finite.
    pub(super) fn set(&mut self, config: &SamplerConfig, logits: &[f32], context: &[u32]) -> Result<()> {
        self.clear();
        for &(token, bias) in &config.logit_bias {
            self.patch(token).bias += f64::from(bias);
        }
        if config.penalizes() {
            let start = context.len().saturating_sub(config.repetition_window);
            for &token in &context[start..] {
                if token as usize >= self.tokens.len() {
                    let n_vocab = self.tokens.len();
                    return Err(Error::out_of_range("context", format!("token {token} is not in a vocabulary of {n_vocab}")));
                }
                self.patch(token).count += 1;
            }
        }
        for &token in &config.suppress {
            self.patch(token).suppressed = true;
        }
        for patch in &mut self.list {
            patch.logit = changed(logits[patch.token as usize], patch, config);
        }
        Ok(())
    }

    /// The patch of `token`, new if it has none yet.
    fn patch(&mut self, token: u32) -> &mut Patch {
        let mark = &mut self.tokens[token as usize];
        if mark.epoch != self.epoch {
            *mark = Mark { epoch: self.epoch, place: self.list.len() as u32 };
            self.list.push(Patch { token, count: 0, bias: 0.0, suppressed: false, logit: 0.0, weight: 0.0 });
            let (b, bit) = (token as usize / BLOCK, 1 << (token as usize % BLOCK));
            let block = &mut self.blocks[b];
            if block.epoch != self.epoch {
                *block = Block { tokens: 0, epoch: self.epoch };
                self.dirty.push(b as u32);
            }
            block.tokens |= bit;
        }
        &mut self.list[mark.place as usize]
    }

    /// The blocks that have a patch, in no order.
    pub(super) fn dirty(&self) -> impl Iterator<Item = usize> {
        self.dirty.iter().map(|&b| b as usize)
    }

    /// The patches of block `b`, each with its place in the block.
    fn of_block(&self, b: usize) -> impl Iterator<Item = (usize, &Patch)> {
        let mut left = if self.blocks[b].epoch == self.epoch { self.blocks[b].tokens } else { 0 };
        std::iter::from_fn(move || {
            let i = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some((i, &self.list[self.tokens[b * BLOCK + i].place as usize]))
        })
    }

    /// Block `b` of the logits as changed: part of `logits`, or of `copy` if it has a patch.
    pub(super) fn block<'a>(&self, b: usize, logits: &'a [f32], copy: &'a mut [f32; BLOCK]) -> &'a [f32] {
        let block = &logits[b * BLOCK..logits.len().min((b + 1) * BLOCK)];
        if self.blocks[b].epoch != self.epoch {
            return block;
        }
        let copy = &mut copy[..block.len()];
        copy.copy_from_slice(block);
        self.of_block(b).for_each(|(i, patch)| copy[i] = patch.logit);
        copy
    }

    /// The logit of `token` as changed.
    pub(super) fn logit(&self, token: usize, logits: &[f32]) -> f32 {
        let mark = self.tokens[token];
        if mark.epoch == self.epoch { self.list[mark.place as usize].logit } else { logits[token] }
    }

    /// Weighs the patches: `exp((logit - best) * sharpness)`, 0 for those suppressed.
    pub(super) fn weigh(&mut self, kernels: &Kernels, best: f32, sharpness: f32) {
        for part in self.list.chunks_mut(BLOCK) {
            let (mut logits, mut weights) = ([0.0; BLOCK], [0.0; BLOCK]);
            logits.iter_mut().zip(&*part).for_each(|(l, patch)| *l = patch.logit);
            (kernels.exp_weights)(&logits, best, sharpness, &mut weights);
            part.iter_mut().zip(weights).for_each(|(patch, w)| patch.weight = if patch.suppressed { 0.0 } else { w });
        }
    }

    /// Puts the weights of the patches into `weights`, which start at block `first`.
    pub(super) fn overwrite(&self, first: usize, weights: &mut [f32]) {
        for (b, weights) in weights.chunks_mut(BLOCK).enumerate() {
            self.of_block(first + b).for_each(|(i, patch)| weights[i] = patch.weight);
        }
    }
}

/// The logit after bias, penalties and suppression. In f64, where none of the steps overflows.
fn changed(logit: f32, patch: &Patch, config: &SamplerConfig) -> f32 {
    if patch.suppressed {
        return f32::NEG_INFINITY;
    }
    let mut l = f64::from(logit) + patch.bias;
    if patch.count > 0 {
        let penalty = f64::from(config.repetition_penalty);
        l = if l > 0.0 { l / penalty } else { l * penalty };
        l -= f64::from(config.presence_penalty);
        l -= f64::from(config.frequency_penalty) * f64::from(patch.count);
    }
    l.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All logits as changed.
    fn change(patches: &mut Patches, config: &SamplerConfig, logits: &[f32], context: &[u32]) -> Vec<f32> {
        patches.set(config, logits, context).unwrap();
        let by_token: Vec<f32> = (0..logits.len()).map(|i| patches.logit(i, logits)).collect();
        let mut copy = [f32::NAN; BLOCK];
        let by_block: Vec<f32> = (0..logits.len().div_ceil(BLOCK)).flat_map(|b| patches.block(b, logits, &mut copy).to_vec()).collect();
        assert_eq!(by_token, by_block);
        by_token
    }

    #[test]
    fn once_a_token_over_the_last_of_the_window() {
        let config = SamplerConfig { repetition_penalty: 1.1, repetition_window: 3, ..Default::default() };
        let logits = [2.0, 1.0, 0.0, -1.0];
        assert_eq!(change(&mut Patches::new(4), &config, &logits, &[1, 0, 3, 0]), [2.0 / 1.1, 1.0, 0.0, -1.1]);
    }

    #[test]
    fn presence_once_frequency_each_time_bias_first() {
        let config = SamplerConfig {
            repetition_penalty: 2.0,
            presence_penalty: 0.25,
            frequency_penalty: 0.5,
            logit_bias: vec![(0, 1.0), (2, 3.0), (0, 1.0)],
            suppress: vec![3, 3],
            ..Default::default()
        };
        let logits = [2.0, 1.0, -1.0, 7.0];
        // Token 0: (2 + 2) / 2 - 0.25 - 3 * 0.5; token 1: 1 / 2 - 0.25 - 0.5; token 2: -1 + 3, not in the window.
        assert_eq!(change(&mut Patches::new(4), &config, &logits, &[0, 1, 0, 0]), [0.25, -0.25, 2.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn a_call_forgets_the_one_before_even_when_epochs_wrap() {
        let config = SamplerConfig { presence_penalty: 1.0, ..Default::default() };
        let logits = vec![0.0; 200];
        let mut patches = Patches::new(200);
        for epoch in [0, u32::MAX - 1] {
            patches.epoch = epoch;
            for token in [0, 64, 130, 199] {
                let got = change(&mut patches, &config, &logits, &[token]);
                assert_eq!(got.iter().sum::<f32>(), -1.0);
                assert_eq!(got[token as usize], -1.0);
            }
        }
    }

    #[test]
    fn nothing_overflows() {
        let config = SamplerConfig {
            repetition_penalty: 1e-30,
            presence_penalty: f32::MAX,
            frequency_penalty: f32::MIN,
            logit_bias: vec![(0, f32::MAX), (0, f32::MAX), (1, f32::MIN)],
            ..Default::default()
        };
        let got = change(&mut Patches::new(3), &config, &[f32::MAX, f32::MIN, f32::MAX], &[0, 1, 2, 2]);
        assert!(got.iter().all(|l| l.is_finite()), "{got:?}");
    }

    #[test]
    fn context_outside_the_vocabulary_is_an_error() {
        let config = SamplerConfig { presence_penalty: 1.0, ..Default::default() };
        let error = Patches::new(2).set(&config, &[0.0; 2], &[1, 2]).unwrap_err();
        assert_eq!(error.to_string(), "context: token 2 is not in a vocabulary of 2");
    }
}
