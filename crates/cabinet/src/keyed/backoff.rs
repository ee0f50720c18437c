//! Backoff: delays between attempts that fail.

use std::time::{Duration, Instant};

/// Delay after the first failure. It doubles with each further failure.
const DELAY_MIN: Duration = Duration::from_millis(500);

/// Longest delay.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(60);

/// Delays an attempt longer the more attempts before it failed.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Time of the next attempt, and its delay since the last failure.
    delayed: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Returns whether it is too early for the next attempt.
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.delayed.is_some_and(|(until, _)| now < until)
    }

    /// Notes the result of an attempt.
    pub(super) fn note(&mut self, has_failed: bool, now: Instant) {
        let last = self.delayed.map(|(_, delay)| delay);
        let delay = last.map_or(DELAY_MIN, |last| (last * 2).min(DELAY_MAX));
        self.delayed = if has_failed { Some((now + delay, delay)) } else { None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_and_end_with_a_success() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        assert!(!backoff.is_waiting(now));
        let mut delay = DELAY_MIN;
        for _ in 0..20 {
            backoff.note(true, now);
            let almost = delay - Duration::from_nanos(1);
            assert!(backoff.is_waiting(now + almost) && !backoff.is_waiting(now + delay));
            now += delay;
            delay = (delay * 2).min(DELAY_MAX);
        }
        assert_eq!(delay, DELAY_MAX);
        backoff.note(false, now);
        assert!(!backoff.is_waiting(now));
        backoff.note(true, now);
        assert!(!backoff.is_waiting(now + DELAY_MIN));
    }
}
