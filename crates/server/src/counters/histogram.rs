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

    /// Adds the times of another one.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += count;
        }
        self.seconds += other.seconds;
    }

    /// Returns the times that are not in an earlier one.
    pub(crate) fn without(mut self, earlier: &Self) -> Self {
        for (sum, count) in self.buckets.iter_mut().zip(earlier.buckets) {
            *sum = sum.saturating_sub(count);
        }
        self.seconds -= earlier.seconds;
        self
    }

    /// Returns the time below which a share of the times is, interpolated within its bucket. Times
    /// above all bounds count as the last bound.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.count() as f64;
        let (mut from, mut below) = (0.0, 0);
        for (bound, count) in self.buckets() {
            let next = below + count;
            if count > 0 && next as f64 >= wanted {
                return Some(from + (bound - from) * (wanted - below as f64) / count as f64);
            }
            (from, below) = (bound, next);
        }
        (self.count() > 0).then_some(from)
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
    fn a_quantile_is_between_the_bounds_of_its_bucket() {
        let histogram = Histogram::default();
        let total = || {
            let mut total = HistogramTotal::default();
            histogram.add_to(&mut total);
            total
        };
        assert_eq!(total().quantile(0.5), None);
        histogram.add(Duration::from_micros(3), 4);
        let before = total();
        assert!(before.quantile(0.5).is_some_and(|middle| (middle - 3e-6).abs() < 1e-9));
        histogram.add(Duration::from_micros(1), 10);
        assert_eq!(total().without(&before).quantile(1.0), Some(1e-6));
        let mut both = total();
        both.add(&before);
        assert_eq!(both.count(), 18);
        histogram.add(Duration::from_secs(100), 1000);
        assert_eq!(total().quantile(0.5), Some(8.388_608));
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
