//! Pace: bounds the time in which a client sends a request, and takes a reply.
//!
//! The timeout counts from the first byte, so that a byte now and then does not hold a connection
//! for ever. Each byte that has moved adds the time it takes at [`BYTES_PER_SECOND_MIN`], so that
//! an honest client on a slow line can end a transfer of any length. A fast transfer gains time in
//! advance, but at most that of [`ADVANCE_BYTES_MAX`]: a client that has taken gigabytes cannot
//! hold the rest for days.

use std::time::Duration;

/// Lowest rate of a request or a reply that outlasts its timeout, in bytes per second.
pub const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// Most bytes that count in advance. A socket takes some megabytes at once, and then nothing until
/// the client has taken a good part of them.
pub const ADVANCE_BYTES_MAX: u64 = 8 << 20;

/// Progress of a request or of a reply. Times are in milliseconds since a moment that the caller
/// chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    since_ms: u64,
    bytes: u64,
}

impl Pace {
    /// Begins at `now_ms`, with `bytes` moved already.
    pub fn new(now_ms: u64, bytes: usize) -> Self {
        Self { since_ms: now_ms, bytes: bytes as u64 }
    }

    /// Adds `bytes` that have moved by `now_ms`.
    pub fn add(&mut self, bytes: usize, now_ms: u64) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let most_ms = now_ms.saturating_add(time_ms(ADVANCE_BYTES_MAX));
        if self.since_ms.saturating_add(time_ms(self.bytes)) > most_ms {
            *self = Self { since_ms: most_ms, bytes: 0 };
        }
    }

    /// Excludes `milliseconds` that the server took itself.
    pub fn extend(&mut self, milliseconds: u64) {
        self.since_ms = self.since_ms.saturating_add(milliseconds);
    }

    /// Returns the time by which the transfer must have ended, if it may take `timeout`.
    pub fn deadline_ms(&self, timeout: Duration) -> u64 {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.since_ms.saturating_add(timeout_ms).saturating_add(time_ms(self.bytes))
    }

    /// Returns whether the transfer takes longer than `timeout`; never without one.
    pub fn is_late(&self, now_ms: u64, timeout: Option<Duration>) -> bool {
        timeout.is_some_and(|timeout| now_ms > self.deadline_ms(timeout))
    }
}

/// Returns the milliseconds that `bytes` take at [`BYTES_PER_SECOND_MIN`].
fn time_ms(bytes: u64) -> u64 {
    bytes.saturating_mul(1000) / BYTES_PER_SECOND_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    #[test]
    fn a_byte_now_and_then_hardly_extends_the_timeout() {
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
    fn a_transfer_at_the_least_rate_is_never_late() {
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
    fn bytes_in_advance_count_up_to_a_limit() {
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
