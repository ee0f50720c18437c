//! Histogram of latencies: counts durations in buckets that are at most 1/128 wide.

use std::time::Duration;

/// Buckets for each power of two, as a power of two.
const BITS: u32 = 7;
const PER_POWER: u64 = 1 << BITS;
const BUCKETS: usize = ((64 - BITS as usize) + 1) << BITS;

/// Counts of durations.
#[derive(Clone)]
pub(super) struct Latencies {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum_ns: 0 }
    }
}

impl Latencies {
    pub(super) fn add(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(one, other)| *one += other);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean in milliseconds, 0 without any.
    pub(super) fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1e6 }
    }

    /// Returns the duration that a share of all does not exceed, in milliseconds, 0 without any.
    pub(super) fn percentile_ms(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        found.map_or(0.0, |index| greatest(index) as f64 / 1e6)
    }
}

fn bucket(ns: u64) -> usize {
    if ns < PER_POWER {
        return ns as usize;
    }
    let shift = ns.ilog2() - BITS;
    ((u64::from(shift) << BITS) + (ns >> shift)) as usize
}

/// Returns the greatest duration of a bucket, in nanoseconds.
fn greatest(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * PER_POWER {
        return index;
    }
    let shift = (index >> BITS) - 1;
    let top = index - (shift << BITS);
    // The last bucket ends with the greatest number.
    (u128::from(top + 1) << shift).saturating_sub(1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_a_bucket_that_ends_at_most_a_128th_above_it() {
        for power in 0..64 {
            for ns in [1u64 << power, (1 << power) + (1 << power) / 3, u64::MAX >> (63 - power)] {
                let greatest = greatest(bucket(ns));
                assert!(greatest >= ns && greatest - ns <= ns / 128, "{ns} {greatest}");
                assert_eq!(bucket(greatest), bucket(ns), "{ns}");
            }
        }
        assert_eq!(bucket(u64::MAX) + 1, BUCKETS);
    }

    #[test]
    fn percentiles_are_those_of_all_that_were_added() {
        let mut one = Latencies::default();
        let mut other = Latencies::default();
        assert_eq!((one.mean_ms(), one.percentile_ms(0.5)), (0.0, 0.0));
        for ns in 1..=100 {
            if ns % 2 == 0 { &mut one } else { &mut other }.add(Duration::from_nanos(ns));
        }
        one.merge(&other);
        assert_eq!(one.count(), 100);
        assert_eq!(one.mean_ms(), 50.5 / 1e6);
        for (share, ns) in [(0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (1.0, 100.0)] {
            assert_eq!(one.percentile_ms(share), ns / 1e6, "{share}");
        }
    }
}
