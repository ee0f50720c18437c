//! The rate limit of compaction, which leaves the disk to readers and writers.

use super::Space;
use std::time::{Duration, Instant};

impl Space {
    /// Returns a limiter that holds reads to the rate of compaction, if `gently`.
    pub(in crate::log) fn pace(&self, gently: bool) -> Pace {
        Pace::new(gently.then_some(self.bytes_per_second))
    }
}

/// Limiter that holds work to a number of bytes per second.
pub(in crate::log) struct Pace {
    bytes_per_second: Option<u64>,
    started: Instant,
    bytes: u64,
    unchecked: u64,
}

impl Pace {
    /// Bytes between two checks of the clock.
    const STEP_BYTES: u64 = 256 << 10;

    fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, started: Instant::now(), bytes: 0, unchecked: 0 }
    }

    /// Counts bytes and sleeps if they came too soon, unless there is a hurry. Returns true once
    /// per step.
    pub(in crate::log) fn spent(&mut self, bytes: u64, in_hurry: impl Fn() -> bool) -> bool {
        self.unchecked += bytes;
        if self.unchecked < Self::STEP_BYTES {
            return false;
        }
        self.bytes += self.unchecked;
        self.unchecked = 0;
        if let Some(rate) = self.bytes_per_second {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate.max(1) as f64);
            let early = due.saturating_sub(self.started.elapsed());
            if !early.is_zero() && !in_hurry() {
                std::thread::sleep(early.min(Duration::from_millis(100)));
            }
        }
        true
    }
}
