//! Prompt lookup: what followed the last time that the context ended like this.
//!
//! The guesses are certain, so they are judged by the target's own draws and no reply depends on them.

use super::drafter::{CLASSES, Drafter, Outlook};
use super::guesses::Guesses;
use super::suffixes::Suffixes;
use crate::Result;
use crate::generate::Interrupt;

/// The shortest suffix of each class, and the chance that it goes on as before.
const BY_LENGTH: [(usize, f64); CLASSES] = [(1, 0.15), (2, 0.3), (3, 0.45), (4, 0.55), (5, 0.65), (8, 0.75), (16, 0.85), (32, 0.9)];

/// Guesses by the longest suffix of the context that occurred in it before.
#[derive(Debug)]
pub struct Lookup {
    seen: Suffixes,
    repeated: (usize, usize), // length of the suffix, and the index of its last token where it occurred before
}

impl Lookup {
    /// For contexts of up to `context_size` tokens.
    ///
    /// # Errors
    /// If memory is short.
    pub fn new(context_size: usize) -> Result<Self> {
        Ok(Lookup { seen: Suffixes::new(context_size)?, repeated: (0, 0) })
    }

    fn take_in(&mut self, context: &[u32]) {
        for &id in &context[self.seen.tokens().len().min(context.len())..] {
            self.seen.push(id);
            self.repeated = self.seen.repeated();
        }
    }

    /// Guess `i`: where the earlier occurrence reaches the end of the context, it goes on with its own guesses.
    fn nth(&self, i: usize) -> u32 {
        let tokens = self.seen.tokens();
        let after = self.repeated.1 + 1;
        tokens[after + i % (tokens.len() - after)]
    }
}

impl Drafter for Lookup {
    fn begin(&mut self, prompt: &[u32]) -> Result<()> {
        if !prompt.starts_with(self.seen.tokens()) {
            self.seen.clear();
            self.repeated = (0, 0);
        }
        self.take_in(prompt);
        Ok(())
    }

    fn outlook(&mut self, context: &[u32]) -> Outlook {
        self.take_in(context);
        let Some(class) = BY_LENGTH.iter().rposition(|&(least, _)| least <= self.repeated.0) else {
            return Outlook { class: 0, chance: 0.0, most: 0, behind: 1, free: None };
        };
        Outlook { class, chance: BY_LENGTH[class].1, most: usize::MAX, behind: 1, free: Some(self.nth(0)) }
    }

    fn guess(&mut self, _: &[u32], n: usize, guesses: &mut Guesses, _: &Interrupt) -> Result<()> {
        (0..n).for_each(|i| guesses.push(self.nth(i)));
        Ok(())
    }

    fn keep(&mut self, _: usize) {
        // Only tokens that were kept are ever handed over.
    }

    fn reseed(&mut self, _: u64) {}

    fn relative_cost(&self) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::sampler::SamplerConfig;

    fn guesses(context: &[u32], n: usize) -> Vec<u32> {
        let mut lookup = Lookup::new(100).unwrap();
        lookup.begin(&context[..context.len() / 2]).unwrap();
        let outlook = lookup.outlook(context);
        let mut guesses = Guesses::new(n, 1000, &SamplerConfig::default());
        if outlook.most > 0 {
            lookup.guess(context, n, &mut guesses, &Interrupt::default()).unwrap();
            assert_eq!(outlook.free, guesses.tokens().first().copied());
        }
        guesses.tokens().to_vec()
    }

    #[test]
    fn what_followed_the_longest_suffix_is_guessed() {
        assert_eq!(guesses(&[1, 2, 3, 9, 2, 4, 1, 2], 3), [3, 9, 2]);
        assert_eq!(guesses(&[5, 2, 3, 4, 9, 2, 3, 8, 5, 2, 3], 2), [4, 9], "5 2 3 was longer than 2 3");
        assert_eq!(guesses(&[1, 2, 3], 2), [0_u32; 0], "nothing occurred before");
    }

    #[test]
    fn a_loop_goes_on() {
        assert_eq!(guesses(&[7, 7], 3), [7, 7, 7]);
        assert_eq!(guesses(&[1, 2, 1, 2, 1], 5), [2, 1, 2, 1, 2]);
    }

    #[test]
    fn a_prompt_that_is_another_is_taken_in_anew() {
        let mut lookup = Lookup::new(10).unwrap();
        lookup.begin(&[1, 2, 3]).unwrap();
        lookup.begin(&[1, 2, 3, 4, 1]).unwrap();
        assert_eq!(lookup.outlook(&[1, 2, 3, 4, 1]).free, Some(2));
        lookup.begin(&[1, 5, 1]).unwrap();
        assert_eq!((lookup.outlook(&[1, 5, 1]).free, lookup.seen.tokens().len()), (Some(5), 3));
    }

    #[test]
    fn long_suffixes_are_another_class_than_short_ones() {
        let mut lookup = Lookup::new(200).unwrap();
        let text: Vec<u32> = (0..40).collect();
        lookup.begin(&text).unwrap();
        let class = |lookup: &mut Lookup, n: usize| lookup.outlook(&[&text[..], &text[..n]].concat()).class;
        let classes = [1, 2, 3, 4, 7, 8, 15, 16, 40].map(|n| class(&mut lookup, n));
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 5, 6, 7]);
    }
}
