//! How long a client may take to send a request, and to take a reply.
//!
//! The time counts from the first byte, so a byte now and then does not hold a connection for ever.
//! What is long may take longer: each byte that has moved gives the time that it takes at
//! [`BYTES_PER_SECOND_MIN`]. An honest client on a slow line ends its upload or its download,
//! however long that is. What moved faster gives time in advance, but no more than
//! [`ADVANCE_BYTES_MAX`] do: a client that has taken gigabytes does not keep the rest for days.

use std::time::Duration;

/// Bytes per second at which a request or a reply may go on beyond its time.
pub const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// Most bytes that count in advance. A socket takes some megabytes at once, and then nothing until
/// the client has taken a good part of them.
pub const ADVANCE_BYTES_MAX: u64 = 8 << 20;

/// A request that is coming, or a reply that is going. Times are in milliseconds since some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    since_ms: u64,
    bytes: u64,
}

impl Pace {
    /// Begins now, with `bytes` moved already.
    pub fn new(now_ms: u64, bytes: usize) -> Self {
        Self { since_ms: now_ms, bytes: bytes as u64 }
    }

    /// So many bytes more have moved by now.
    pub fn add(&mut self, bytes: usize, now_ms: u64) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let most_ms = now_ms.saturating_add(time_ms(ADVANCE_BYTES_MAX));
        if self.since_ms.saturating_add(time_ms(self.bytes)) > most_ms {
            *self = Self { since_ms: most_ms, bytes: 0 };
        }
    }

    /// So many milliseconds the server took itself.
    pub fn extend(&mut self, milliseconds: u64) {
        self.since_ms = self.since_ms.saturating_add(milliseconds);
    }

    /// When it has to have ended, if it may take `timeout`.
    pub fn deadline_ms(&self, timeout: Duration) -> u64 {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.since_ms.saturating_add(timeout_ms).saturating_add(time_ms(self.bytes))
    }

    /// Whether it takes longer than that.
    pub fn is_late(&self, now_ms: u64, timeout: Option<Duration>) -> bool {
        timeout.is_some_and(|timeout| now_ms > self.deadline_ms(timeout))
    }
}

/// Milliseconds that so many bytes take at the least rate.
fn time_ms(bytes: u64) -> u64 {
    bytes.saturating_mul(1000) / BYTES_PER_SECOND_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    #[test]
    fn a_byte_now_and_then_gains_next_to_no_time() {
        let mut pace = Pace::new(1000, 1);
        assert!(!pace.is_late(3000, Some(TIMEOUT)));
        assert!(pace.is_late(3001, Some(TIMEOUT)));
        for _ in 0..16 {
            pace.add(1, 2000);
        }
        assert!(pace.is_late(3002, Some(TIMEOUT)));
        assert!(!pace.is_late(u64::MAX, None));
    }

    #[test]
    fn what_moves_fast_enough_has_the_time_that_it_takes() {
        let rate = BYTES_PER_SECOND_MIN as usize;
        let (mut enough, mut less) = (Pace::new(0, 0), Pace::new(0, 0));
        for second in 1..100 {
            enough.add(rate, second * 1000);
            less.add(rate - rate / 10, second * 1000);
            assert!(!enough.is_late(second * 1000, Some(TIMEOUT)));
        }
        assert!(less.is_late(99_000, Some(TIMEOUT)));
    }

    #[test]
    fn what_moved_in_advance_counts_up_to_a_limit() {
        let advance_ms = ADVANCE_BYTES_MAX * 1000 / BYTES_PER_SECOND_MIN;
        let mut pace = Pace::new(0, 0);
        pace.add(ADVANCE_BYTES_MAX as usize, 0);
        assert!(!pace.is_late(advance_ms + 2000, Some(TIMEOUT)));
        assert!(pace.is_late(advance_ms + 2001, Some(TIMEOUT)));
        pace.add(1 << 40, 5000);
        assert!(!pace.is_late(5000 + advance_ms + 2000, Some(TIMEOUT)));
        assert!(pace.is_late(5000 + advance_ms + 2001, Some(TIMEOUT)));
    }

    #[test]
    fn the_servers_own_time_does_not_count() {
        let mut pace = Pace::new(0, 0);
        pace.extend(5000);
        assert!(!pace.is_late(7000, Some(TIMEOUT)));
        assert!(pace.is_late(7001, Some(TIMEOUT)));
    }
}
