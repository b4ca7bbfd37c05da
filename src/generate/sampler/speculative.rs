//! One step of speculative sampling: accept the draft, or correct it.
//!
//! A draft `d` drawn from `q` is kept with probability `min(1, p[d] / q[d])`, else replaced by a draw from `max(0, p - q)`;
//! what is emitted is then distributed as `p` (Leviathan et al. 2023, <https://arxiv.org/abs/2211.17192>; Chen et al. 2023,
//! <https://arxiv.org/abs/2302.01318>).

use super::SplitMix64;
use super::chain::SamplerScratch;
use super::draw::{check, draw_with, is_weight, walk};
use super::kernels::{CHUNK, spread};
use crate::exec::Team;
use crate::{Error, Result};

/// Judges the draft `d`, drawn from `q`, where the target's distribution is `p`.
///
/// `None` if it is accepted, else the token to take instead. If nothing is left of `p - q`, it is drawn from `p`.
/// Shapes: `p` and `q` are (n_vocab), normalized. Takes one number from `rng`, and another on rejection. The pass over the
/// vocabulary is shared out over `team`; the result does not depend on it.
///
/// # Errors
/// [`Error::InvalidArgument`] if a length is not that of the vocabulary, or `p` or `q` has a weight that is negative, NaN or
/// infinite, or `p` has none above 0 where it is needed; [`Error::OutOfRange`] if `d` is not in the vocabulary.
pub fn spec_accept_or_correct(
    p: &[f32],
    q: &[f32],
    d: u32,
    rng: &mut SplitMix64,
    scratch: &mut SamplerScratch,
    team: Option<&Team>,
) -> Result<Option<u32>> {
    let n_vocab = scratch.n_vocab();
    if p.len() != n_vocab || q.len() != n_vocab {
        return Err(Error::invalid("distribution", format!("{} and {} tokens for a vocabulary of {n_vocab}", p.len(), q.len())));
    }
    let (Some(&p_d), Some(&q_d)) = (p.get(d as usize), q.get(d as usize)) else {
        return Err(Error::out_of_range("draft", format!("token {d} is not in a vocabulary of {n_vocab}")));
    };
    check([p_d, q_d].into_iter(), 2)?;
    if accepts(p_d, q_d, rng) {
        return Ok(None);
    }
    let kernels = *scratch.kernels();
    let (left, found) = scratch.room();
    spread(team, (&mut *left, CHUNK), (&mut *found, 1), |i, left, found| {
        let part = i * CHUNK..i * CHUNK + left.len();
        let (mut some, mut sound) = (false, true);
        for ((left, &p), &q) in left.iter_mut().zip(&p[part.clone()]).zip(&q[part]) {
            *left = residual(p, q);
            some |= *left > 0.0;
            sound &= is_weight(p) & is_weight(q);
        }
        found[0] = if sound { u64::from(some) } else { UNSOUND };
    });
    if found.contains(&UNSOUND) {
        return Err(Error::invalid("distribution", "a probability is negative, NaN or infinite"));
    }
    let weights = if found.contains(&1) { left } else { p };
    draw_with(&kernels, weights, rng).map(Some)
}

/// Says of a chunk that it holds what is no probability.
const UNSOUND: u64 = 2;

/// [`spec_accept_or_correct`] for distributions given as lists by id: the same answer from the same numbers.
///
/// # Errors
/// As [`spec_accept_or_correct`]; also if a list is not by id, without repetition.
pub fn spec_accept_or_correct_sparse(p: &[(u32, f32)], q: &[(u32, f32)], d: u32, rng: &mut SplitMix64) -> Result<Option<u32>> {
    for list in [p, q] {
        check(list.iter().map(|&(_, w)| w), list.len())?;
        if !list.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(Error::invalid("distribution", "its tokens are not in ascending order"));
        }
    }
    if accepts(of(p, d), of(q, d), rng) {
        return Ok(None);
    }
    let left = p.iter().map(|&(id, p)| (id, residual(p, of(q, id))));
    if left.clone().all(|(_, w)| w == 0.0) { walk(p.iter().copied(), rng) } else { walk(left, rng) }.map(Some)
}

/// Whether a draft is kept: `u < p / q`.
fn accepts(p: f32, q: f32, rng: &mut SplitMix64) -> bool {
    rng.next_f64() * f64::from(q) < f64::from(p)
}

/// What the target has more than the draft.
fn residual(p: f32, q: f32) -> f32 {
    (p - q).max(0.0)
}

/// The probability of `id`.
fn of(list: &[(u32, f32)], id: u32) -> f32 {
    list.binary_search_by_key(&id, |&(id, _)| id).map_or(0.0, |i| list[i].1)
}
