//! The longest suffix of a sequence that occurred in it before, kept up to date a token at a time.
//!
//! A suffix automaton (Blumer et al. 1985, <https://doi.org/10.1016/0304-3975(85)90157-4>): each state stands for the
//! substrings that end at the same places, the link of a state for the longest suffix that ends elsewhere too. The link of
//! the state of the whole sequence is therefore what is asked for. A token takes constant time on average; `n` tokens make at
//! most `2n` states and `3n` edges.

use bytemuck::{cast_slice, cast_slice_mut};

use crate::exec::{Block, Pages, zeroed};
use crate::{Error, Result};

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// Sequences so long that states or edges could not be numbered are refused.
const LONGEST: usize = 1 << 29;

/// A sequence and the automaton of its substrings.
pub(super) struct Suffixes {
    tokens: Vec<u32>,
    states: Vec<State>,
    edges: Vec<Edge>,
    table: Block, // u32: edge and 1 by hash of state and token, 0 for none
    last: u32,    // state of the whole sequence
}

#[derive(Clone, Copy)]
struct State {
    len: u32,  // of its longest substring
    link: u32, // to the longest suffix that is of another state
    end: u32,  // where it occurred: index of the last token
    edge: u32, // first of its edges
}

#[derive(Clone, Copy)]
struct Edge {
    from: u32,
    token: u32,
    to: u32,
    next: u32, // of the same state
}

impl std::fmt::Debug for Suffixes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suffixes").field("tokens", &self.tokens.len()).field("states", &self.states.len()).finish_non_exhaustive()
    }
}

impl Suffixes {
    /// An empty sequence, with room for `capacity` tokens.
    ///
    /// # Errors
    /// If memory is short.
    pub(super) fn new(capacity: usize) -> Result<Self> {
        let too_large = || Error::out_of_range("context size", format!("an index of {capacity} tokens needs more memory than can be had"));
        if capacity > LONGEST {
            return Err(too_large());
        }
        let (mut tokens, mut states, mut edges) = (Vec::new(), Vec::new(), Vec::new());
        let reserved = tokens.try_reserve_exact(capacity).is_ok()
            && states.try_reserve_exact(2 * capacity + 2).is_ok()
            && edges.try_reserve_exact(3 * capacity + 3).is_ok();
        if !reserved {
            return Err(too_large());
        }
        // At most three quarters full.
        let table = zeroed(4 * (4 * capacity + 4).next_power_of_two(), "context size", Pages::Small)?;
        let mut suffixes = Suffixes { tokens, states, edges, table, last: ROOT };
        suffixes.clear();
        Ok(suffixes)
    }

    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Starts anew.
    pub(super) fn clear(&mut self) {
        if !self.edges.is_empty() {
            self.table.fill(0);
        }
        self.tokens.clear();
        self.edges.clear();
        self.states.clear();
        self.states.push(State { len: 0, link: NONE, end: NONE, edge: NONE });
        self.last = ROOT;
    }

    /// Appends a token.
    pub(super) fn push(&mut self, token: u32) {
        let end = self.tokens.len() as u32;
        self.tokens.push(token);
        let whole = self.state(State { len: end + 1, link: ROOT, end, edge: NONE });
        let mut p = self.last;
        while p != NONE && self.find(p, token).is_none() {
            self.connect(p, token, whole);
            p = self.states[p as usize].link;
        }
        if p != NONE {
            let edge = self.find(p, token).expect("the loop ended at it");
            let q = self.edges[edge].to;
            let len = self.states[p as usize].len + 1;
            self.states[whole as usize].link = if self.states[q as usize].len == len { q } else { self.split(p, token, q, len) };
        }
        self.last = whole;
    }

    /// The length of the longest suffix that occurred before, and the index of the last token of such an occurrence: of the
    /// one that was asked for last, else the first. The length is 0 if there is none.
    pub(super) fn repeated(&mut self) -> (usize, usize) {
        let link = self.states[self.last as usize].link;
        if link == NONE || link == ROOT {
            return (0, 0);
        }
        let state = &mut self.states[link as usize];
        let found = (state.len as usize, state.end as usize);
        state.end = self.tokens.len() as u32 - 1;
        found
    }

    /// Parts those substrings of `q` that are no longer than `len` from the rest: from now on they end in more places.
    fn split(&mut self, mut p: u32, token: u32, q: u32, len: u32) -> u32 {
        let old = self.states[q as usize];
        let part = self.state(State { len, edge: NONE, ..old });
        let mut edge = old.edge;
        while edge != NONE {
            let Edge { token, to, next, .. } = self.edges[edge as usize];
            self.connect(part, token, to);
            edge = next;
        }
        self.states[q as usize].link = part;
        while p != NONE {
            match self.find(p, token).filter(|&edge| self.edges[edge].to == q) {
                Some(edge) => self.edges[edge].to = part,
                None => break,
            }
            p = self.states[p as usize].link;
        }
        part
    }

    fn state(&mut self, state: State) -> u32 {
        self.states.push(state);
        self.states.len() as u32 - 1
    }

    fn connect(&mut self, from: u32, token: u32, to: u32) {
        let (edge, slot) = (self.edges.len() as u32, self.slot(from, token));
        let state = &mut self.states[from as usize];
        self.edges.push(Edge { from, token, to, next: state.edge });
        state.edge = edge;
        cast_slice_mut::<u8, u32>(&mut self.table)[slot] = edge + 1;
    }

    fn find(&self, from: u32, token: u32) -> Option<usize> {
        (self.slots()[self.slot(from, token)] as usize).checked_sub(1)
    }

    fn slots(&self) -> &[u32] {
        cast_slice(&self.table)
    }

    /// Where the edge stands in the table, or would.
    fn slot(&self, from: u32, token: u32) -> usize {
        let slots = self.slots();
        let key = u64::from(from) << 32 | u64::from(token);
        let mut slot = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (slots.len() - 1);
        loop {
            match (slots[slot] as usize).checked_sub(1).map(|edge| self.edges[edge]) {
                Some(edge) if (edge.from, edge.token) != (from, token) => slot = (slot + 1) & (slots.len() - 1),
                _ => return slot,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::sampler::SplitMix64;

    /// Length of the longest suffix with an earlier occurrence, by trying all.
    fn longest(tokens: &[u32]) -> usize {
        let n = tokens.len();
        (1..n).rev().find(|&len| (0..n - len).any(|at| tokens[at..at + len] == tokens[n - len..])).unwrap_or(0)
    }

    #[test]
    fn the_longest_suffix_is_found_after_every_token() {
        let mut rng = SplitMix64::new(8);
        for (n, alphabet) in [(1, 1), (40, 1), (300, 2), (300, 3), (300, 20), (200, 100_000)] {
            let mut suffixes = Suffixes::new(n).unwrap();
            for round in 0..3 {
                suffixes.clear();
                for _ in 0..n {
                    // Copies of what was there, now and then, make long repeats.
                    let from = rng.below(suffixes.tokens.len() as u64 + 1) as usize;
                    let len = if rng.below(10) == 0 { rng.below(12) as usize } else { 0 };
                    let mut new: Vec<u32> = suffixes.tokens[from..].iter().take(len).copied().collect();
                    new.push(rng.below(alphabet) as u32 * 7919);
                    for token in new {
                        if suffixes.tokens.len() == n {
                            break;
                        }
                        suffixes.push(token);
                        let (len, end) = suffixes.repeated();
                        let tokens = &suffixes.tokens;
                        assert_eq!(len, longest(tokens), "round {round}: {tokens:?}");
                        if len > 0 {
                            assert!(end + 1 < tokens.len() && end + 1 >= len, "an earlier place");
                            assert_eq!(tokens[end + 1 - len..=end], tokens[tokens.len() - len..]);
                        }
                    }
                }
                let n = suffixes.tokens.len();
                assert!(suffixes.states.len() <= 2 * n + 1 && suffixes.edges.len() <= 3 * n, "the room that was reserved");
            }
        }
    }

    #[test]
    fn the_place_is_where_it_was_asked_for_last() {
        let mut suffixes = Suffixes::new(20).unwrap();
        let mut place = |token| {
            suffixes.push(token);
            suffixes.repeated()
        };
        let places = [1, 2, 3, 1, 4, 1].map(&mut place);
        assert_eq!(places, [(0, 0), (0, 0), (0, 0), (1, 0), (0, 0), (1, 3)]);
    }

    #[test]
    fn an_index_that_no_memory_holds_is_refused() {
        assert!(Suffixes::new(usize::MAX).is_err() && Suffixes::new(LONGEST + 1).is_err());
    }
}
