//! Log limit: a storm of the same event writes a few lines per second, and how many it left out.

use parking_lot::Mutex;
use std::time::Instant;

/// Most lines logged per second.
const LINES_PER_SECOND_MAX: u32 = 5;

#[derive(Debug, Default)]
struct State {
    /// Second of the last line, the number of lines in it, and the events not logged since.
    second: u64,
    lines: u32,
    unlogged: u64,
}

/// Limit for the lines about one kind of event.
#[derive(Debug)]
pub(crate) struct LogLimit {
    state: Mutex<State>,
    started: Instant,
}

impl LogLimit {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), started: Instant::now() }
    }

    /// Returns the end of the line for an event, or `None` if the event is not to be logged.
    pub(crate) fn admit(&self, now: Instant) -> Option<String> {
        let second = now.saturating_duration_since(self.started).as_secs() + 1;
        let mut state = self.state.lock();
        if state.second != second {
            (state.second, state.lines) = (second, 0);
        }
        if state.lines >= LINES_PER_SECOND_MAX {
            state.unlogged += 1;
            return None;
        }
        state.lines += 1;
        Some(match std::mem::take(&mut state.unlogged) {
            0 => String::new(),
            1 => " (1 more was not logged)".to_owned(),
            unlogged => format!(" ({unlogged} more were not logged)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_storm_writes_a_few_lines_per_second_and_counts_the_others() {
        let limit = LogLimit::new();
        let now = limit.started;
        for _ in 0..LINES_PER_SECOND_MAX {
            assert_eq!(limit.admit(now).as_deref(), Some(""));
        }
        for _ in 0..7 {
            assert_eq!(limit.admit(now), None);
        }
        let mut later = now + Duration::from_secs(1);
        assert_eq!(limit.admit(later).as_deref(), Some(" (7 more were not logged)"));
        while limit.admit(later).is_some() {}
        later += Duration::from_secs(1);
        assert_eq!(limit.admit(later).as_deref(), Some(" (1 more was not logged)"));
        assert_eq!(limit.admit(later).as_deref(), Some(""));
    }
}
