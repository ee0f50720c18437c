//! Histogram of times, in buckets whose bounds are fixed and double.

use super::add_owned;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of bounds: 1 us, 2 us, 4 us, ... 8.4 s.
const BOUNDS: usize = 24;

/// Times of one thread, which is the only one to write.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// Number of times in each bucket; the last has no bound.
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { buckets, sum_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds the same time `count` times. Only the thread that owns the set may call this.
    #[inline]
    pub(crate) fn add(&self, time: Duration, count: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        add_owned(&self.buckets[bucket(ns)], count);
        add_owned(&self.sum_ns, ns.wrapping_mul(count));
    }

    /// Adds the counts to those of other threads.
    pub(super) fn add_to(&self, total: &mut HistogramTotal) {
        for (bucket, sum) in self.buckets.iter().zip(&mut total.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        total.seconds += self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
    }
}

/// Returns the bucket of a time: the first whose bound is not below it.
#[inline]
fn bucket(ns: u64) -> usize {
    let us = ns.div_ceil(1000);
    let doublings = u64::BITS - us.saturating_sub(1).leading_zeros();
    (doublings as usize).min(BOUNDS)
}

/// Times of all threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HistogramTotal {
    buckets: [u64; BOUNDS + 1],
    pub(crate) seconds: f64,
}

impl HistogramTotal {
    /// Returns the bounds in seconds, and how many times are above the bound before and not above
    /// this one.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = (0..BOUNDS).map(|doublings| (1_u64 << doublings) as f64 / 1e6);
        bounds.zip(self.buckets)
    }

    /// Returns the number of times.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        for (ns, expected) in [
            (0, 0),
            (1, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
            (1000 << (BOUNDS - 1), BOUNDS - 1),
            ((1000 << (BOUNDS - 1)) + 1, BOUNDS),
            (u64::MAX, BOUNDS),
        ] {
            assert_eq!(bucket(ns), expected, "{ns}");
        }
        let bounds: Vec<f64> =
            HistogramTotal::default().buckets().map(|(bound, _)| bound).collect();
        assert_eq!((bounds[0], bounds[1], bounds[BOUNDS - 1]), (1e-6, 2e-6, 8.388_608));
    }

    #[test]
    fn a_total_has_the_times_of_all_threads() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.add(Duration::from_micros(1), 3);
        one.add(Duration::from_secs(100), 1);
        other.add(Duration::from_micros(2), 2);
        let mut total = HistogramTotal::default();
        one.add_to(&mut total);
        other.add_to(&mut total);
        let buckets: Vec<u64> = total.buckets().map(|(_, count)| count).collect();
        assert_eq!((buckets[0], buckets[1], total.count()), (3, 2, 6));
        assert!((total.seconds - 100.000_007).abs() < 1e-9);
    }
}
