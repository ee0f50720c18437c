//! Fast, repeatable pseudorandom numbers.

/// Maps 64-bit numbers one to one to random-looking ones: the finalizer of SplitMix64. So it turns
/// a counter into distinct scattered keys.
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Sequence of random numbers (SplitMix64). The same seed gives the same sequence.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Returns the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    /// Returns the next number, over the whole range.
    pub fn next_u64(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        number
    }

    /// Returns a number below `bound`, uniformly. `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product scales without a division. Its bias is below 2^-32 for the
        // bounds of any benchmark.
        let product = u128::from(self.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// Returns a fraction in 0..1.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Zipfian distribution over 0..n, after Gray et al., "Quickly Generating Billion-Record
/// Synthetic Databases" (SIGMOD 1994). Popular ranks are scattered over the range.
#[derive(Clone, Debug)]
pub struct Zipfian {
    count: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// The skew that YCSB uses: with a million keys, half the requests go to about 1 key in 800.
    pub const USUAL_THETA: f64 = 0.99;

    /// Returns the distribution over 0..`count` with skew `theta` in 0..1. Takes time proportional
    /// to `count`.
    #[must_use]
    pub fn new(count: u64, theta: f64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|rank| 1.0 / (rank as f64).powf(theta)).sum::<f64>();
        let zeta = zeta_of(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Self { count, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// Returns the next number of the distribution.
    pub fn next(&self, random: &mut Random) -> u64 {
        let fraction = random.fraction();
        let scaled = fraction * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            let spread = (self.eta * fraction - self.eta + 1.0).powf(self.alpha);
            (self.count as f64 * spread) as u64
        };
        mix(rank) % self.count
    }
}

/// Random order of 0..n with each number once, without a table of n entries.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// Returns the order of a seed.
    #[must_use]
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Returns the number at `place`; both are below n.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        // A Feistel network permutes the next even power of two. Numbers over the end are permuted
        // again until they are in range, at most four times on average.
        let mut number = place;
        loop {
            number = self.feistel(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn feistel(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..3 {
            let scrambled = mix(right ^ self.seed.rotate_left(16 * round)) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_has_every_number_once() {
        for count in [1, 2, 3, 4, 5, 1000, 1024, 1025] {
            let order = Permutation::new(count, 7);
            let mut seen: Vec<u64> = (0..count).map(|place| order.at(place)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn permutations_of_different_seeds_differ() {
        let order = |seed| {
            let order = Permutation::new(100, seed);
            (0..100).map(|place| order.at(place)).collect::<Vec<_>>()
        };
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipfian_stays_in_range_and_is_skewed() {
        let zipfian = Zipfian::new(1000, Zipfian::USUAL_THETA);
        let mut random = Random::new(1);
        let mut counts = vec![0u32; 1000];
        for _ in 0..100_000 {
            counts[zipfian.next(&mut random) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The first rank has 1/zeta of all, the sum of 1/rank^0.99 over 1..=1000 being 7.73.
        assert!((12_000..14_500).contains(&counts[0]), "{}", counts[0]);
    }
}
