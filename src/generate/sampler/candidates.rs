//! Tokens that may be drawn, in order of rank: selection of the best, and of the nucleus, without sorting the vocabulary.

use rml_kernels_ref::sampling::fixed;

use super::Ties;
use super::maxima::{ascending, unordered};

/// A token and its weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    key: u64, // logit, then id, so that what ranks first is larger
    pub(super) weight: f32,
}

impl Candidate {
    pub(super) fn new(id: usize, logit: f32, weight: f32, ties: Ties) -> Self {
        Candidate { key: key(id, logit, ties), weight }
    }

    pub(super) fn id(&self, ties: Ties) -> u32 {
        let id = self.key as u32;
        if ties == Ties::Lower { !id } else { id }
    }

    pub(super) fn logit(&self) -> f32 {
        unordered((self.key >> 32) as u32)
    }

    pub(super) fn key(&self) -> u64 {
        self.key
    }
}

/// A number that is larger for what ranks first.
pub(super) fn key(id: usize, logit: f32, ties: Ties) -> u64 {
    let id = id as u32;
    u64::from(ascending(logit)) << 32 | u64::from(if ties == Ties::Lower { !id } else { id })
}

fn by_rank(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.key.cmp(&a.key)
}

/// Leaves the `k` best, in no order.
pub(super) fn keep_best(candidates: &mut Vec<Candidate>, k: usize) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, by_rank);
        candidates.truncate(k);
    }
}

/// Leaves the fewest best whose [`fixed`] weights sum to `target`, the last of them at the end; all if they do not reach it.
///
/// Halves what is left, and goes on in the half where the sum reaches the target: the sums are exact, so the result is that
/// of adding up in order of rank.
pub(super) fn keep_nucleus(candidates: &mut Vec<Candidate>, target: u64) {
    /// Fewer than this are sorted.
    const FEW: usize = 48;
    let (mut start, mut end, mut sum) = (0, candidates.len(), 0);
    while end - start > FEW {
        let half = (end - start) / 2;
        candidates[start..end].select_nth_unstable_by(half - 1, by_rank);
        let upper: u64 = candidates[start..start + half].iter().map(|c| fixed(c.weight)).sum();
        if sum + upper >= target {
            end = start + half;
        } else {
            start += half;
            sum += upper;
        }
    }
    candidates[start..end].sort_unstable_by(by_rank);
    for i in start..end {
        sum += fixed(candidates[i].weight);
        if sum >= target {
            candidates.truncate(i + 1);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_by_id() {
        for (ties, want) in [(Ties::Lower, [4, 1, 2]), (Ties::Higher, [4, 3, 2])] {
            let mut c: Vec<_> = [(1, 0.0), (2, -0.0), (3, 0.0), (4, 1.0), (0, -1.0)].map(|(id, l)| Candidate::new(id, l, 0.0, ties)).into();
            keep_best(&mut c, 3);
            c.sort_by(by_rank);
            assert_eq!(c.iter().map(|c| c.id(ties)).collect::<Vec<_>>(), want);
            assert_eq!(c[0].logit(), 1.0);
        }
    }

    #[test]
    fn nucleus_is_that_of_a_sort() {
        let mut rng = super::super::SplitMix64::new(3);
        for n in [1, 2, 47, 48, 49, 50, 97, 500, 3000] {
            let all: Vec<_> = (0..n)
                .map(|id| {
                    let logit = (rng.below(40) as f32) / 4.0; // many ties
                    Candidate::new(id, logit, (logit - 10.0).exp(), Ties::Lower)
                })
                .collect();
            let mut sorted = all.clone();
            sorted.sort_by(by_rank);
            let total: u64 = all.iter().map(|c| fixed(c.weight)).sum();
            for target in [1, total / 3, total / 2, total - total / 20, total, total + 1] {
                let mut sum = 0;
                let n_want = sorted.iter().take_while(|c| (sum < target, sum += fixed(c.weight)).0).count();
                let mut got = all.clone();
                keep_nucleus(&mut got, target);
                assert_eq!(got.len(), n_want, "{n} {target}");
                assert_eq!(got.iter().map(|c| c.key).min(), sorted[..n_want].iter().map(|c| c.key).min());
                assert!(target > total || got.last().map(|c| c.key) == sorted[..n_want].last().map(|c| c.key));
            }
        }
    }
}
