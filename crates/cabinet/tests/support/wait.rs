//! Waits for the work of a database's own threads.

use std::time::{Duration, Instant};

/// Longest wait. Only a failing test takes that long.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Blocks until a figure is at most `most`.
#[track_caller]
pub(crate) fn wait_until_at_most(most: u64, figure: impl Fn() -> u64) {
    let deadline = Instant::now() + WAIT_MAX;
    while figure() > most {
        assert!(Instant::now() < deadline, "{} stays over {most}", figure());
        std::thread::sleep(Duration::from_millis(5));
    }
}
