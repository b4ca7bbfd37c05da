//! The pace in made-up worlds, where times and chances are known.

use super::*;
use crate::generate::sampler::SplitMix64;

/// Times in passes over one token.
#[derive(Clone, Copy, Debug)]
struct World {
    chance: f64,
    guess: f64,
    slope: f64, // what each further token adds to a pass
    free: bool,
}

impl World {
    fn pass(&self, m: usize) -> f64 {
        1.0 + self.slope * (m - 1) as f64
    }

    /// Tokens in the time of a plain one, with always `n` guesses.
    fn rate(&self, n: usize) -> f64 {
        let tokens: f64 = (0..=n).map(|i| self.chance.powi(i as i32)).sum();
        tokens / (self.pass(n + 1) + n as f64 * self.guess)
    }

    /// The same at the pace that is chosen, over so many tokens, each round with up to `noise` of added time.
    fn paced(&self, pace: &mut Pace, most: usize, n_tokens: usize, noise: f64, rng: &mut SplitMix64) -> f64 {
        let (mut tokens, mut time, mut behind) = (0, 0.0, 500);
        while tokens < n_tokens {
            let first = rng.next_f64() < self.chance;
            let outlook = Outlook { class: 0, chance: 0.7, most, behind, free: self.free.then_some(0) };
            let n = pace.choose(&outlook, most);
            assert!(n <= most);
            let kept = (0..n).take_while(|&i| if i == 0 { first } else { rng.next_f64() < self.chance }).count();
            let pass_seconds = self.pass(n + 1) * (1.0 + noise * rng.next_f64());
            // A prompt is taken in beforehand, so to speak; what is late costs a quarter of a guess a token.
            let late = if n > 0 && tokens > 40 { behind - 1 } else { 0 };
            let guess_seconds = (n as f64 + 0.25 * late as f64) * self.guess * (1.0 + noise * rng.next_f64());
            behind = if n > 0 { 1 } else { behind + 1 };
            pace.record(&Round { outlook, n, guess_seconds, pass_seconds }, n.min(kept + 1), kept);
            if n == 0 && self.free {
                pace.record_free(&outlook, first);
            }
            tokens += kept + 1;
            time += pass_seconds + guess_seconds;
        }
        tokens as f64 / time
    }
}

fn worlds() -> Vec<World> {
    let mut worlds = Vec::new();
    for chance in [0.0, 0.2, 0.5, 0.8, 0.95, 1.0] {
        for (guess, free) in [(0.0, true), (0.125, false), (0.37, false), (1.0, false)] {
            worlds.extend([0.02, 0.1, 0.3, 1.0].map(|slope| World { chance, guess, slope, free }));
        }
    }
    worlds
}

#[test]
fn it_is_never_much_slower_than_plain() {
    for world in worlds() {
        for most in [1, 4, 16] {
            for seed in 0..5 {
                let mut pace = Pace::new(most, world.guess);
                let rate = world.paced(&mut pace, most, 200, 0.0, &mut SplitMix64::new(seed));
                assert!(rate >= 0.97, "{world:?}, up to {most}: {rate}");
            }
        }
    }
}

#[test]
fn it_comes_near_the_best_there_is() {
    for world in worlds() {
        for most in [4, 16] {
            let best = (0..=most).map(|n| world.rate(n)).fold(0.0, f64::max);
            let mut pace = Pace::new(most, world.guess);
            let rate = world.paced(&mut pace, most, 5000, 0.0, &mut SplitMix64::new(3));
            assert!(rate >= 0.9 * best, "{world:?}, up to {most}: {rate} of {best}");
        }
    }
}

/// Two minutes of another program in the middle of it, and passes that take up to a third longer than they need.
#[test]
fn noise_does_not_lead_it_astray() {
    let world = World { chance: 0.8, guess: 0.125, slope: 0.05, free: false };
    let mut rng = SplitMix64::new(4);
    let mut pace = Pace::new(4, world.guess);
    world.paced(&mut pace, 4, 100, 0.3, &mut rng);
    let outlook = Outlook { class: 0, chance: 0.7, most: 4, behind: 1, free: None };
    pace.record(&Round { outlook, n: 4, guess_seconds: 1.0, pass_seconds: 120.0 / 0.01 }, 4, 4);
    pace.record(&Round { outlook, n: 0, guess_seconds: 0.0, pass_seconds: 120.0 / 0.01 }, 0, 0);
    let rate = world.paced(&mut pace, 4, 1000, 0.3, &mut rng);
    assert!(rate * 1.15 >= 0.9 * world.rate(4), "{rate} of {}", world.rate(4));
}

#[test]
fn what_did_not_pay_is_tried_again() {
    // A draft that reads what it has missed for less than what may be lost.
    let useless = World { chance: 0.0, guess: 0.02, slope: 0.05, free: false };
    let useful = World { chance: 0.9, ..useless };
    let mut rng = SplitMix64::new(5);
    let mut pace = Pace::new(4, useless.guess);
    let rate = useless.paced(&mut pace, 4, 2000, 0.0, &mut rng);
    assert!((0.985..1.0).contains(&rate), "tried, but rarely: {rate}");
    useful.paced(&mut pace, 4, 1000, 0.0, &mut rng);
    let rate = useful.paced(&mut pace, 4, 1000, 0.0, &mut rng);
    assert!(rate >= 0.9 * useful.rate(4), "{rate}");
}

/// A context that grows makes every pass slower, by as much for one token as for five.
#[test]
fn plain_passes_are_measured_anew() {
    let mut pace = Pace::new(4, 0.0);
    let outlook = Outlook { class: 0, chance: 0.7, most: 4, behind: 1, free: None };
    let (mut plain, mut rounds) = (0, 0);
    for i in 0..2000 {
        let n = pace.choose(&outlook, 4);
        let pass_seconds = 1.0 + 0.001 * f64::from(i) + 0.02 * n as f64;
        pace.record(&Round { outlook, n, guess_seconds: 0.0, pass_seconds }, n, n);
        plain += i32::from(n == 0);
        rounds += 1;
        let known = pace.passes.seconds(1);
        assert!(i < 100 || known > 0.7 * pass_seconds, "{known} at {pass_seconds}");
    }
    assert!(plain * 20 < rounds, "{plain} of {rounds}");
}
