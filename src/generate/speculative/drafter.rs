//! Who guesses.

use super::guesses::Guesses;
use crate::Result;
use crate::generate::Interrupt;

/// Kinds of outlook that acceptance is measured apart for.
pub const CLASSES: usize = 8;

/// What guessing promises now.
#[derive(Clone, Copy, Debug)]
pub struct Outlook {
    /// Places of one class have about the same chance. Below [`CLASSES`].
    pub class: usize,
    /// The chance that a guess is kept, until enough of the class were judged.
    pub chance: f64,
    /// Guesses that can be had; 0 for none.
    pub most: usize,
    /// Tokens of the context that the drafter has to take in first; 1 or 2 are the rule.
    pub behind: usize,
    /// The first guess, where that costs nothing: it shows what guessing would have brought.
    pub free: Option<u32>,
}

/// Someone who guesses what comes next. What it guesses changes the speed of a reply, not its distribution.
///
/// Contexts are handed over whole. Between [`begin`](Self::begin) and the next, each continues the one before, up to the
/// length that [`keep`](Self::keep) said last.
pub trait Drafter: std::fmt::Debug + Send {
    /// A reply to `prompt` begins. What it shares with the last context need not be taken in again.
    ///
    /// # Errors
    /// If memory is short.
    fn begin(&mut self, prompt: &[u32]) -> Result<()>;

    /// What guessing after `context` promises. Must cost next to nothing.
    fn outlook(&mut self, context: &[u32]) -> Outlook;

    /// Adds up to `n` guesses of what follows `context`; fewer if interrupted.
    ///
    /// # Errors
    /// If a pass fails. The reply ends with this error, and the session stays usable.
    fn guess(&mut self, context: &[u32], n: usize, guesses: &mut Guesses, interrupt: &Interrupt) -> Result<()>;

    /// The context is what it was up to `len`; guesses after it were replaced.
    fn keep(&mut self, len: usize);

    /// Starts draws anew, if there are any.
    fn reseed(&mut self, seed: u64);

    /// Time of one guess relative to a pass of the target over one token, as far as that is known before it is measured.
    fn relative_cost(&self) -> f64;
}
