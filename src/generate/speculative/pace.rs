//! How many guesses a round should have: as many as promise the most tokens a second, none if no number beats plain decode.
//!
//! Three things are measured: the time of a pass over each number of tokens, the time of a guess, and the share of guesses
//! that are kept. What guessing has cost so far compared with plain decode is kept count of, and no round is begun that
//! could take the loss beyond a small share of the time spent. So a wrong estimate costs little, whatever it was.

mod times;

use super::drafter::{CLASSES, Outlook};
use times::PassTimes;

/// Rounds after which counts of guesses have lost two thirds of their weight.
const MEMORY: f64 = 40.0;
/// Guesses that the drafter's own word on its chance weighs as much as.
const WORD: f64 = 3.0;
/// No estimate is surer than this.
const SUREST: f64 = 0.98;
/// How much faster guessing must promise to be, for estimates are not exact.
const MARGIN: f64 = 1.05;
/// Passes over one token whose time may be lost before anything was won.
const GRACE: f64 = 1.5;
/// Share of the time spent that may be lost.
const SHARE: f64 = 0.01;
/// Passes over one token whose time, once won, can be lost again.
const SAVINGS: f64 = 4.0;
/// Plain rounds before the first with guesses, to know the time of a pass.
const PLAIN_FIRST: u32 = 2;
/// Rounds with guesses after which one goes without, to see what a pass over one token takes by now.
const PLAIN_AGAIN: u32 = 64;
/// Plain rounds after which guessing is tried again though it did not pay, if what may be lost allows for it.
const TRY_AGAIN: u32 = 32;
/// A token that is taken in with many others, relative to a guess.
const AT_ONCE: f64 = 0.25;

/// What a round was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) outlook: Outlook,
    /// Guesses made.
    pub(super) n: usize,
    pub(super) guess_seconds: f64,
    pub(super) pass_seconds: f64,
}

/// Chooses the number of guesses.
#[derive(Debug)]
pub(super) struct Pace {
    passes: PassTimes,
    guess: Option<f64>, // seconds
    relative_cost: f64, // of a guess, until it is measured
    classes: [Share; CLASSES],
    won: f64,           // seconds, compared with plain decode
    spent: f64,         // seconds
    since_plain: u32,   // rounds
    since_guesses: u32, // rounds
}

/// Guesses judged and kept, the older ones for less.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    judged: f64,
    kept: f64,
}

impl Share {
    fn record(&mut self, judged: usize, kept: usize) {
        let fade = 1.0 - 1.0 / MEMORY;
        self.judged = self.judged * fade + judged as f64;
        self.kept = self.kept * fade + kept as f64;
    }

    /// The chance of a guess, where `word` is what was said of it before.
    fn chance(self, word: f64) -> f64 {
        ((self.kept + WORD * word) / (self.judged + WORD)).min(SUREST)
    }
}

impl Pace {
    /// For up to `most` guesses a round, of which one costs about `relative_cost` passes.
    pub(super) fn new(most: usize, relative_cost: f64) -> Self {
        Pace {
            passes: PassTimes::new(most + 1),
            guess: None,
            relative_cost,
            classes: [Share::default(); CLASSES],
            won: 0.0,
            spent: 0.0,
            since_plain: 0,
            since_guesses: 0,
        }
    }

    /// How many guesses, up to `most`, the next round should have.
    pub(super) fn choose(&self, outlook: &Outlook, most: usize) -> usize {
        if self.passes.n_plain() < PLAIN_FIRST || self.since_plain >= PLAIN_AGAIN {
            return 0;
        }
        let plain = self.passes.seconds(1);
        let chance = self.classes[outlook.class].chance(outlook.chance);
        let to_lose = self.won + GRACE * plain + SHARE * self.spent;
        let (mut best, mut best_rate, mut tokens) = (0, 0.0, 1.0);
        let mut all_kept = 1.0;
        for n in 1..=most.min(self.passes.longest_to_try() - 1) {
            all_kept *= chance;
            tokens += all_kept;
            let seconds = self.seconds(n, self.late(outlook));
            // A round gives one token at the least.
            if seconds - plain > to_lose {
                break;
            }
            if tokens / seconds > best_rate {
                (best, best_rate) = (n, tokens / seconds);
            }
        }
        let pays = best_rate * plain > MARGIN;
        if pays || self.is_curious(outlook) { best } else { 0 }
    }

    /// Learns from a round: how many of its guesses were judged, and how many of those kept.
    pub(super) fn record(&mut self, round: &Round, judged: usize, kept: usize) {
        let Round { outlook, n, guess_seconds, pass_seconds } = *round;
        let share = &mut self.classes[outlook.class];
        if judged > 0 {
            share.record(judged, kept);
        }
        let (late, guess) = (self.late(&outlook), self.guess_seconds());
        let guess_seconds = if late == 0 && outlook.behind > 2 { n as f64 * guess } else { guess_seconds };
        // A round that was held up from outside says nothing of what guessing costs.
        let expected = if self.passes.n_plain() > 0 { 2.0 * self.seconds(n, late) } else { f64::INFINITY };
        let seconds = (guess_seconds + pass_seconds).min(expected);
        self.passes.record(n + 1, pass_seconds);
        self.spent += seconds;
        if n == 0 {
            self.since_plain = 0;
            self.since_guesses = self.since_guesses.saturating_add(1);
            return;
        }
        if outlook.behind <= 2 {
            let measured = guess_seconds / n as f64;
            self.guess = Some(times::decayed(self.guess, measured, 1));
        }
        let plain = self.passes.seconds(1);
        self.won = (self.won + (kept + 1) as f64 * plain - seconds).min(SAVINGS * plain);
        self.since_plain += 1;
        self.since_guesses = 0;
    }

    /// Learns from a round without guesses whether the free one would have been kept.
    pub(super) fn record_free(&mut self, outlook: &Outlook, kept: bool) {
        self.classes[outlook.class].record(1, usize::from(kept));
    }

    /// Whether it is time to see if guessing pays by now. Where the first guess is free, that is known.
    fn is_curious(&self, outlook: &Outlook) -> bool {
        outlook.free.is_none() && self.since_guesses >= TRY_AGAIN
    }

    /// Tokens that have to be taken in only because guessing was given up. A prompt is not among them: whoever guesses reads it.
    fn late(&self, outlook: &Outlook) -> usize {
        if self.is_curious(outlook) { outlook.behind.saturating_sub(2) } else { 0 }
    }

    /// Expected time of a round with `n` guesses, for which `late` tokens have to be taken in.
    fn seconds(&self, n: usize, late: usize) -> f64 {
        let late = if n > 0 { AT_ONCE * late as f64 } else { 0.0 };
        self.passes.seconds(n + 1) + (n as f64 + late) * self.guess_seconds()
    }

    fn guess_seconds(&self) -> f64 {
        self.guess.unwrap_or(self.relative_cost * self.passes.seconds(1))
    }
}

#[cfg(test)]
mod tests;
