//! The memory of a step.

use super::super::activations::Prepared;
use super::super::attention::{AttendScratch, Partials};
use super::experts::Routed;
use crate::exec::Arena;
use crate::model::{Config, Norms};

/// Up to this many tokens each thread normalizes and quantizes all of them for itself, which costs less than a phase.
pub(super) const ALONE: usize = 8;

/// Every buffer of a step, for up to `m` tokens; `p` is `m`, or with experts the pairs of a token and an expert that it uses.
pub(super) struct Buffers<'a> {
    pub(super) x: &'a mut [f32],                    // residual stream (m, d_model)
    pub(super) q: &'a mut [f32],                    // (m, heads * d)
    pub(super) k: &'a mut [f32],                    // (m, kv_heads * d), and as much for what is added to it
    pub(super) v: &'a mut [f32],                    // the same
    pub(super) attn: &'a mut [f32],                 // (m, heads * d)
    pub(super) out: &'a mut [f32],                  // what is added to x (p, d_model)
    pub(super) gate: &'a mut [f32],                 // (p, d_ff)
    pub(super) up: &'a mut [f32],                   // (p, d_ff)
    pub(super) cos: &'a mut [f32],                  // (rotations, m, n_rot / 2)
    pub(super) sin: &'a mut [f32],                  // (rotations, m, n_rot / 2)
    pub(super) shared: Prepared<'a>,                // of all tokens
    pub(super) own: &'a mut [Prepared<'a>],         // of up to ALONE tokens, one for each thread
    pub(super) attend: &'a mut [AttendScratch<'a>], // one for each thread
    pub(super) partials: Partials<'a>,
    pub(super) routed: Routed<'a>,
    pub(super) spare: &'a mut [f32], // what is added to x, normalized (m, d_model)
}

impl<'a> Buffers<'a> {
    pub(super) fn new(arena: &'a Arena, config: &Config, m: usize, n_threads: usize, capacity: usize) -> Self {
        let (q, kv) = (config.n_heads * config.d_head, config.n_kv_heads * config.d_head);
        let widest = config.d_model.max(config.d_ff).max(q);
        let p = m * config.experts.map_or(1, |experts| experts.used);
        let angles = config.ropes().count() * m * config.rope.n_rot / 2;
        let is_normed = config.family.norms != Norms::Before;
        Buffers {
            x: arena.slice(m * config.d_model),
            q: arena.slice(m * q),
            k: arena.slice(2 * m * kv),
            v: arena.slice(2 * m * kv),
            attn: arena.slice(m * q),
            out: arena.slice(p * config.d_model),
            gate: arena.slice(p * config.d_ff),
            up: arena.slice(p * config.d_ff),
            cos: arena.slice(angles),
            sin: arena.slice(angles),
            shared: Prepared::new(arena, p, widest),
            own: arena.collect(n_threads, || Prepared::new(arena, p.min(ALONE), widest)),
            attend: arena.collect(n_threads, || AttendScratch::new(arena, config, m)),
            partials: Partials::new(arena, config, capacity),
            routed: Routed::new(arena, config, m),
            spare: arena.slice(if is_normed { m * config.d_model } else { 0 }),
        }
    }
}
