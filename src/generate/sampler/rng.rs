//! The generator of every draw.

/// SplitMix64 (Steele, Lea and Flood 2014, <https://doi.org/10.1145/2660193.2660195>): 64 bits of state, carried by the caller.
///
/// Every 64-bit number comes once in a period of `2^64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// Where it stands: a generator that starts at this seed goes on as this one would.
    pub fn state(&self) -> u64 {
        self.0
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number below `n`, 0 if `n` is 0. No number is off its share by more than `2^-63`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_outputs() {
        // First outputs for seed 1234567, as listed with the reference implementation by Vigna.
        let mut rng = SplitMix64::new(1_234_567);
        let want = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(want.map(|_| rng.next_u64()), want);
    }

    #[test]
    fn published_outputs_of_seed_zero() {
        // The state that Java's SplittableRandom and xoshiro's seeding start from; widely listed.
        let mut rng = SplitMix64::new(0);
        assert_eq!([rng.next_u64(), rng.next_u64(), rng.next_u64()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn fills_the_unit_interval() {
        let mut rng = SplitMix64::new(1);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.next_f64()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!(draws.iter().all(|d| (0.0..1.0).contains(d)) && (mean - 0.5).abs() < 0.005);
        assert!(draws.iter().any(|&d| d > 0.999) && draws.iter().any(|&d| d < 0.001));
    }

    #[test]
    fn below_reaches_both_ends() {
        let mut rng = SplitMix64::new(2);
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[rng.below(7) as usize] = true);
        assert_eq!(seen, [true; 7]);
        assert_eq!(rng.below(0), 0);
        assert!(rng.below(u64::MAX) < u64::MAX);
    }
}
