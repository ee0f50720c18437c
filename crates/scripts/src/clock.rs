//! Deadline of the present call of a state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The call has taken longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call takes longer than its limit")]
pub(crate) struct Late;

/// The deadline of a call, which all functions of its state look at.
///
/// Only the thread that runs the state stores anything, except for [`CallClock::copy_from`] before
/// that thread begins.
pub(crate) struct CallClock {
    epoch: Instant,
    deadline_nanoseconds: AtomicU64,
    is_late: AtomicBool,
}

impl CallClock {
    pub(crate) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            deadline_nanoseconds: AtomicU64::new(u64::MAX),
            is_late: AtomicBool::new(false),
        }
    }

    /// Begins a call.
    pub(crate) fn start(&self, limit: Duration) {
        let deadline = self.now().saturating_add(nanoseconds(limit));
        self.deadline_nanoseconds.store(deadline, Ordering::Relaxed);
        self.is_late.store(false, Ordering::Relaxed);
    }

    /// Fails from the deadline on, until the next call begins.
    pub(crate) fn check(&self) -> Result<(), Late> {
        if self.is_late() {
            return Err(Late);
        }
        if self.now() < self.deadline_nanoseconds.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_late.store(true, Ordering::Relaxed);
        Err(Late)
    }

    /// Returns whether [`Self::check`] has failed in this call.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Returns the time until the deadline.
    pub(crate) fn remaining(&self) -> Duration {
        let deadline = self.deadline_nanoseconds.load(Ordering::Relaxed);
        Duration::from_nanos(deadline.saturating_sub(self.now()))
    }

    fn now(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
