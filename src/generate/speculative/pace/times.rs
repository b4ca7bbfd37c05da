//! The time of a pass over 1, 2, … tokens: the least that was measured lately, and until then what it should be.

/// What each further token adds to a pass over one, before anything is measured. Hopeful, so that it is tried.
const SLOPE: f64 = 0.1;
/// How much a least time may rise a pass, and in all from one measurement to the next: it follows a context that grows, but not
/// a pass that was held up.
const RISE: f64 = 1.02;
const RISE_AT_ONCE: f64 = 1.25;
/// The first time of a length may be so much above what was expected.
const FIRST: f64 = 2.0;

/// The least of what was measured lately; the last measurement was `age` passes ago.
pub(super) fn decayed(least: Option<f64>, measured: f64, age: u32) -> f64 {
    let rise = RISE.powi(age.min(1000) as i32).min(RISE_AT_ONCE);
    least.map_or(measured, |least| measured.min(least * rise))
}

/// Times by number of tokens.
#[derive(Debug)]
pub(super) struct PassTimes {
    seconds: Vec<Option<f64>>, // at m - 1
    measured: Vec<u32>,        // when each was measured, in passes
    n_passes: u32,
    n_plain: u32,
}

impl PassTimes {
    /// For passes over up to `most` tokens.
    pub(super) fn new(most: usize) -> Self {
        PassTimes { seconds: vec![None; most], measured: vec![0; most], n_passes: 0, n_plain: 0 }
    }

    /// Passes over one token that were measured.
    pub(super) fn n_plain(&self) -> u32 {
        self.n_plain
    }

    /// A pass over `m` tokens took so long.
    pub(super) fn record(&mut self, m: usize, seconds: f64) {
        if m == 1 {
            self.n_plain = self.n_plain.saturating_add(1);
        }
        self.n_passes = self.n_passes.wrapping_add(1);
        let age = self.age(m - 1);
        self.measured[m - 1] = self.n_passes;
        // What was measured long ago may be less than a pass over one token takes by now.
        let old = self.seconds[m - 1].map(|old| if m > 1 { old.max(self.seconds(1)) } else { old });
        let seconds = if old.is_none() && self.n_plain > 0 && m > 1 { seconds.min(FIRST * self.seconds(m)) } else { seconds };
        self.seconds[m - 1] = Some(decayed(old, seconds, age));
    }

    /// Expected time of a pass over `m` tokens; 0 if nothing is known.
    pub(super) fn seconds(&self, m: usize) -> f64 {
        // More tokens take no less time, so a pass takes at most what longer ones do, as far as they were measured lately.
        let risen = |i: usize| self.seconds[i].map(|s| s * RISE.powi(self.age(i).min(1000) as i32));
        let longer = (m..self.seconds.len()).filter_map(risen).fold(f64::INFINITY, f64::min);
        let seconds = longer.min(self.seconds[m - 1].unwrap_or_else(|| self.between(m)));
        let seconds = if m > 1 { seconds.max(self.seconds(1)) } else { seconds };
        if seconds.is_finite() { seconds } else { 0.0 }
    }

    /// Passes since the time at `i` was measured.
    fn age(&self, i: usize) -> u32 {
        self.n_passes.wrapping_sub(self.measured[i])
    }

    /// Twice the tokens of the longest pass that was measured: what is unknown is approached in steps.
    pub(super) fn longest_to_try(&self) -> usize {
        let longest = self.seconds.iter().rposition(Option::is_some).map_or(1, |i| i + 1);
        (2 * longest).min(self.seconds.len())
    }

    /// On the line through the nearest lengths that were measured; beyond them, with the slope from one token on.
    fn between(&self, m: usize) -> f64 {
        let measured = |i: usize| self.seconds[i].map(|s| ((i + 1) as f64, s));
        let below = (0..m - 1).rev().find_map(measured);
        let above = (m..self.seconds.len()).find_map(measured);
        let Some((m0, s0)) = below else { return f64::INFINITY };
        let slope = match (above, self.seconds[0]) {
            (Some((m1, s1)), _) => (s1 - s0) / (m1 - m0),
            (None, Some(one)) if m0 > 1.0 => (s0 - one).max(0.0) / (m0 - 1.0),
            _ => SLOPE * s0,
        };
        s0 + slope * (m as f64 - m0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_lies_on_a_line() {
        let mut times = PassTimes::new(9);
        assert_eq!((times.seconds(3), times.longest_to_try()), (0.0, 2));
        times.record(1, 1.0);
        assert_eq!(times.seconds(5), 1.0 + 4.0 * SLOPE);
        times.record(3, 1.5);
        assert_eq!((times.seconds(2), times.seconds(5), times.longest_to_try()), (1.25, 2.0, 6));
        times.record(5, 1.6);
        assert!((times.seconds(4) - 1.55).abs() < 1e-12);
        times.record(5, 1.4);
        assert_eq!(times.seconds(3), 1.4, "no more than a longer pass");
        assert_eq!(times.longest_to_try(), 9);
    }

    #[test]
    fn a_pass_that_was_held_up_hardly_counts() {
        let mut times = PassTimes::new(2);
        times.record(1, 1.0);
        times.record(2, 60.0);
        assert_eq!(times.seconds(2), FIRST * (1.0 + SLOPE));
        times.record(2, 1.2);
        times.record(2, 60.0);
        assert_eq!(times.seconds(2), 1.2 * RISE);
        times.record(1, 60.0);
        assert_eq!(times.seconds(1), RISE.powi(4), "four passes later");
        (0..100).for_each(|_| times.record(1, 1.0));
        times.record(2, 60.0);
        assert_eq!(times.seconds(2), 1.2 * RISE * RISE_AT_ONCE);
    }
}
