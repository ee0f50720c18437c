//! Progress bar: shows the progress of a long command on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::Read;
use std::time::Duration;

/// Interval of updates.
const TICK: Duration = Duration::from_millis(200);

/// A progress bar.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar that counts up to `records` records. It is only shown if the standard error is
    /// a terminal.
    pub(crate) fn of_records(what: &str, records: u64) -> Self {
        Self::new(what, records, "{msg} {wide_bar} {human_pos} of {human_len} records, {eta} left")
    }

    /// Creates a bar that counts up to `bytes` bytes, or without an end.
    pub(crate) fn of_bytes(what: &str, bytes: Option<u64>) -> Self {
        match bytes {
            Some(bytes) => {
                Self::new(what, bytes, "{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left")
            }
            None => Self::new(what, 0, "{msg} {spinner} {bytes}"),
        }
    }

    /// Creates a bar for a share of `length` that has no unit.
    pub(crate) fn of_share(what: &str, length: u64) -> Self {
        Self::new(what, length, "{msg} {wide_bar} {percent} %, {eta} left")
    }

    fn new(what: &str, length: u64, template: &str) -> Self {
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Advances the bar.
    pub(crate) fn advance(&self, by: u64) {
        self.0.inc(by);
    }

    /// Moves the bar to a place.
    pub(crate) fn reach(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Begins to measure the speed, after a move to where the work begins.
    pub(crate) fn measure_from_here(&self) {
        self.0.reset_eta();
    }

    /// Wraps a reader whose bytes advance the bar.
    pub(crate) fn watch(&self, input: impl Read) -> impl Read {
        self.0.wrap_read(input)
    }

    /// Prints a line above the bar.
    pub(crate) fn print(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
