//! The slots of the dispatch table that sampling uses, and how the vocabulary is spread over a team.

use rml_backends::KernelTable;
use rml_backends::table::{AtLeast, BlockMax, ExpWeights, WeightSum};
use rml_kernels_ref::sampling::BLOCK;

use crate::exec::{Chunks, Team};

/// Tokens that one task of a team walks over.
pub(super) const CHUNK: usize = 256 * BLOCK;
/// Tokens whose weights stay in the first cache between one kernel and the next.
pub(super) const PIECE: usize = 32 * BLOCK;

/// The kernels of sampling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernels {
    pub(super) block_max: BlockMax,
    pub(super) at_least: AtLeast,
    pub(super) exp_weights: ExpWeights,
    pub(super) weight_sum: WeightSum,
}

impl From<&KernelTable> for Kernels {
    fn from(table: &KernelTable) -> Self {
        Kernels {
            block_max: table.block_max.get(),
            at_least: table.at_least.get(),
            exp_weights: table.exp_weights.get(),
            weight_sum: table.weight_sum.get(),
        }
    }
}

impl Kernels {
    /// Hands the indices of what is at least `threshold` to `found`, ascending.
    pub(super) fn each_at_least(&self, x: &[f32], threshold: f32, mut found: impl FnMut(usize)) {
        let mut hits = [0; PIECE];
        for (i, piece) in x.chunks(PIECE).enumerate() {
            let n = (self.at_least)(piece, threshold, &mut hits);
            hits[..n].iter().for_each(|&hit| found(i * PIECE + hit as usize));
        }
    }
}

/// Runs `task(i, part of a, part of b)` for each part, on the team or else one after the other.
///
/// Parts are of `a_len` and `b_len`, the last ones shorter; there are as many of `a` as of `b`.
pub(super) fn spread<A: Send, B: Send>(
    team: Option<&Team>,
    (a, a_len): (&mut [A], usize),
    (b, b_len): (&mut [B], usize),
    task: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    match team {
        None => a.chunks_mut(a_len).zip(b.chunks_mut(b_len)).enumerate().for_each(|(i, (a, b))| task(i, a, b)),
        Some(team) => team.pass().each((Chunks::new(a, a_len), Chunks::new(b, b_len)), |_, i, (a, b)| task(i, a, b)),
    }
}
