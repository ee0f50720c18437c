//! Deadline and instructions of the present call of a state.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The limit that a call has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub(crate) enum Exceeded {
    #[error("the call takes longer than its limit")]
    Time = 1,
    #[error("the call takes more instructions than its limit")]
    Instructions = 2,
    /// Another thread, or the server, ends the call.
    #[error("the call is ended")]
    Ended = 3,
}

impl Exceeded {
    /// Returns the setting that is the limit, if one is.
    pub(crate) fn setting(self) -> Option<&'static str> {
        match self {
            Self::Time => Some("script-time-max"),
            Self::Instructions => Some("script-instructions-max"),
            Self::Ended => None,
        }
    }
}

/// The deadline of a call, and the instructions that it may still take. All functions of its state
/// look at them.
///
/// Only the thread that runs the state stores anything, but for the end of a call by another one.
pub(crate) struct CallClock {
    epoch: Instant,
    deadline_nanoseconds: AtomicU64,
    instructions_left: AtomicU64,
    /// The [`Exceeded`] limit of this call; 0 is none.
    exceeded: AtomicU8,
}

impl CallClock {
    pub(crate) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            deadline_nanoseconds: AtomicU64::new(u64::MAX),
            instructions_left: AtomicU64::new(u64::MAX),
            exceeded: AtomicU8::new(0),
        }
    }

    /// Begins a call at `now`, with a limit of time, and of instructions.
    pub(crate) fn start(&self, now: Instant, time: Duration, instructions: u64) {
        let deadline = self.nanoseconds_at(now).saturating_add(nanoseconds(time));
        self.deadline_nanoseconds.store(deadline, Ordering::Relaxed);
        self.allow_instructions(instructions);
        self.exceeded.store(0, Ordering::Relaxed);
    }

    /// Limits the call that has begun to what is left of another one.
    pub(crate) fn limit_to_rest_of(&self, now: Instant, other: &Self) {
        self.limit_time(now, other.remaining());
        self.instructions_left.fetch_min(other.instructions_left(), Ordering::Relaxed);
    }

    /// Limits the time of the call that has begun, from `now` on.
    pub(crate) fn limit_time(&self, now: Instant, time: Duration) {
        let deadline = self.nanoseconds_at(now).saturating_add(nanoseconds(time));
        self.deadline_nanoseconds.fetch_min(deadline, Ordering::Relaxed);
    }

    /// Leaves to the call what one that was limited to its rest has left.
    pub(crate) fn take_rest_of(&self, other: &Self) {
        self.allow_instructions(other.instructions_left());
        self.exceeded.store(other.exceeded.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns the instructions that are left.
    fn instructions_left(&self) -> u64 {
        self.instructions_left.load(Ordering::Relaxed)
    }

    /// Sets the instructions that are left, for a part of a call that has a limit of its own.
    pub(crate) fn allow_instructions(&self, instructions: u64) {
        self.instructions_left.store(instructions, Ordering::Relaxed);
    }

    /// Counts instructions. Fails as [`Self::check`], and if fewer are left.
    pub(crate) fn count(&self, now: Instant, instructions: u64) -> Result<(), Exceeded> {
        self.check(now)?;
        let left = self.instructions_left();
        match left.checked_sub(instructions) {
            Some(left) => {
                self.instructions_left.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => Err(self.exceed(Exceeded::Instructions)),
        }
    }

    /// Fails from the deadline on, or from the last instruction on, until the next call begins.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Exceeded> {
        match self.exceeded.load(Ordering::Relaxed) {
            0 if self.nanoseconds_at(now) < self.deadline_nanoseconds.load(Ordering::Relaxed) => {
                Ok(())
            }
            2 => Err(Exceeded::Instructions),
            3 => Err(Exceeded::Ended),
            _ => Err(self.exceed(Exceeded::Time)),
        }
    }

    /// Ends the call at its next look. Any thread may call this.
    pub(crate) fn end(&self) {
        self.exceed(Exceeded::Ended);
    }

    fn exceed(&self, limit: Exceeded) -> Exceeded {
        self.exceeded.store(limit as u8, Ordering::Relaxed);
        limit
    }

    /// Returns whether a limit was found exceeded in this call.
    pub(crate) fn is_over(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed) != 0
    }

    /// Returns the time until the deadline.
    pub(crate) fn remaining(&self) -> Duration {
        let deadline = self.deadline_nanoseconds.load(Ordering::Relaxed);
        Duration::from_nanos(deadline.saturating_sub(self.nanoseconds_at(Instant::now())))
    }

    /// Returns the deadline, if the system's clock can show it.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = self.deadline_nanoseconds.load(Ordering::Relaxed);
        self.epoch.checked_add(Duration::from_nanos(deadline))
    }

    fn nanoseconds_at(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.epoch))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_as_many_instructions_as_allowed_and_no_more() {
        let clock = CallClock::new();
        clock.start(Instant::now(), Duration::MAX, 2000);
        assert_eq!(clock.count(Instant::now(), 1000), Ok(()));
        assert_eq!(clock.count(Instant::now(), 1000), Ok(()));
        assert_eq!(clock.check(Instant::now()), Ok(()));
        assert_eq!(clock.count(Instant::now(), 1), Err(Exceeded::Instructions));
        assert!(clock.is_over());
        assert_eq!(clock.check(Instant::now()), Err(Exceeded::Instructions));
        clock.start(Instant::now(), Duration::MAX, 1);
        assert!(!clock.is_over());
        assert_eq!(clock.count(Instant::now(), 1), Ok(()));
    }

    #[test]
    fn a_call_that_is_late_stays_so_until_the_next_one() {
        let clock = CallClock::new();
        clock.start(Instant::now(), Duration::ZERO, u64::MAX);
        assert_eq!(clock.count(Instant::now(), 1), Err(Exceeded::Time));
        assert_eq!(clock.check(Instant::now()), Err(Exceeded::Time));
        assert_eq!(clock.remaining(), Duration::ZERO);
        clock.start(Instant::now(), Duration::from_secs(3600), u64::MAX);
        assert_eq!(clock.check(Instant::now()), Ok(()));
    }
}
