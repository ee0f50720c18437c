//! Progress bar: shows the progress of a long command on a terminal, or prints a line now and then
//! elsewhere, and prints how far the command came if a signal ends it.

use crate::plural;
use crate::say::say;
use crate::signals::Cleanup;
use indicatif::{
    HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};
use std::fmt::{self, Display};
use std::io::{IsTerminal, Read, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Interval of updates.
const TICK: Duration = Duration::from_millis(200);

/// Time between two lines if the standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Whether bars are hidden.
static IS_HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides all bars from now on.
pub(crate) fn hide() {
    IS_HIDDEN.store(true, Ordering::Relaxed);
}

/// Calls `work`, which shows no bars.
pub(crate) fn without_bars<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_HIDDEN.swap(true, Ordering::Relaxed);
    let result = work();
    IS_HIDDEN.store(before, Ordering::Relaxed);
    result
}

/// A progress bar.
pub(crate) struct Progress {
    bar: ProgressBar,
    unit: Unit,
    /// Prints what is done before a signal ends the program.
    interruption: Option<Cleanup>,
    /// Ends the lines when it is dropped.
    _lines: Option<Sender<()>>,
}

/// Unit that a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Records,
    Bytes,
    Share,
    /// Nothing: only the time is shown.
    Time,
}

impl Progress {
    /// Creates a bar that counts up to `records` records. It is shown if the standard error is a
    /// terminal, and a line each minute elsewhere.
    pub(crate) fn of_records(what: &str, records: u64) -> Self {
        let template = "{msg} {wide_bar} {human_pos} of {human_len} {records}, {eta} left";
        Self::new(what, Unit::Records, Some(records), template)
    }

    /// Counts records whose number is unknown.
    pub(crate) fn of_some_records(what: &str) -> Self {
        Self::new(what, Unit::Records, None, "{msg} {spinner} {human_pos} {records}, {elapsed}")
    }

    /// Creates a bar that counts up to `bytes` bytes, or without an end.
    pub(crate) fn of_bytes(what: &str, bytes: Option<u64>) -> Self {
        let template = match bytes {
            Some(_) => "{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left",
            None => "{msg} {spinner} {bytes}",
        };
        Self::new(what, Unit::Bytes, bytes, template)
    }

    /// Creates a bar for a share of `length` that has no unit.
    pub(crate) fn of_share(what: &str, length: u64) -> Self {
        let template = "{msg} {wide_bar} {percent} %, {eta} left";
        Self::new(what, Unit::Share, Some(length), template)
    }

    /// Shows how long work takes whose end is unknown.
    pub(crate) fn of_time(what: &str) -> Self {
        Self::new(what, Unit::Time, None, "{msg} {spinner} {elapsed}")
    }

    fn new(what: &str, unit: Unit, length: Option<u64>, template: &str) -> Self {
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("records", write_unit));
        }
        let is_hidden = IS_HIDDEN.load(Ordering::Relaxed);
        if is_hidden {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        let has_lines = !is_hidden && !stderr().is_terminal();
        let lines = has_lines.then(|| {
            let (lines, ended) = channel();
            let bar = bar.clone();
            thread::spawn(move || {
                print_lines(&bar, unit, &ended, LINE_INTERVAL, |line| eprintln!("{line}"));
            });
            lines
        });
        Self { bar, unit, interruption: None, _lines: lines }
    }

    /// Makes a signal that ends the program print how much is done, and `remaining`: what the user
    /// can do now.
    pub(crate) fn explain(mut self, remaining: impl Into<String>) -> Self {
        let (bar, unit, remaining) = (self.bar.clone(), self.unit, remaining.into());
        let describe = move || {
            // Clearing the bar moves it to its end.
            let done = done(&bar, unit);
            bar.finish_and_clear();
            eprintln!("tyrant: interrupted after {done}; {remaining}");
        };
        // Without it the signal ends the program silently.
        self.interruption = Cleanup::on_signals(describe).ok();
        self
    }

    /// Advances the bar.
    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// Moves the bar to a place.
    pub(crate) fn reach(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Begins to measure the speed, after a move to where the work begins.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only copies continue"))]
    pub(crate) fn measure_from_here(&self) {
        self.bar.reset_eta();
    }

    /// Wraps a reader whose bytes advance the bar.
    pub(crate) fn watch<R: Read>(&self, input: R) -> impl Read + use<R> {
        self.bar.wrap_read(input)
    }

    /// Prints a line above the bar.
    pub(crate) fn print(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Prints a line of the result above the bar.
    pub(crate) fn print_result(&self, line: &impl Display) {
        self.bar.suspend(|| say!("{line}"));
    }

    /// Returns the bar, which another thread may clear.
    pub(crate) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }
}

/// Prints what is done at intervals, until the other end of the channel is dropped.
fn print_lines(
    bar: &ProgressBar,
    unit: Unit,
    ended: &Receiver<()>,
    interval: Duration,
    mut print: impl FnMut(String),
) {
    while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        print(format!("{}: {}", bar.message(), done(bar, unit)));
    }
}

fn unit_of(records: u64) -> &'static str {
    plural::unit(records, "record", "records")
}

/// Writes the unit of a bar that counts records.
fn write_unit(state: &ProgressState, bar: &mut dyn fmt::Write) {
    // A bar that cannot be drawn has no place to report it.
    let _ = bar.write_str(unit_of(state.len().unwrap_or(state.pos())));
}

/// Describes what is done.
fn done(bar: &ProgressBar, unit: Unit) -> String {
    let (position, length) = (bar.position(), bar.length());
    match (unit, length) {
        (Unit::Records, Some(length)) => {
            let records = unit_of(length);
            format!("{position} of {length} {records}")
        }
        (Unit::Records, None) => format!("{position} {}", unit_of(position)),
        (Unit::Bytes, Some(length)) => {
            format!("{} of {}", HumanBytes(position), HumanBytes(length))
        }
        (Unit::Bytes, None) => HumanBytes(position).to_string(),
        (Unit::Share, Some(length)) => {
            format!("{} %", position.saturating_mul(100) / length.max(1))
        }
        (Unit::Share | Unit::Time, _) => HumanDuration(bar.elapsed()).to_string(),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // A signal from now on has nothing to say.
        self.interruption = None;
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_said_in_the_unit_of_the_bar() {
        let records = Progress::of_records("", 1_500_000);
        records.advance(812_000);
        assert_eq!(done(&records.bar, records.unit), "812000 of 1500000 records");
        let record = Progress::of_records("", 1);
        assert_eq!(done(&record.bar, record.unit), "0 of 1 record");
        let bytes = Progress::of_bytes("", Some(4 << 20));
        bytes.reach(1 << 20);
        assert_eq!(done(&bytes.bar, bytes.unit), "1.00 MiB of 4.00 MiB");
        let share = Progress::of_share("", 0);
        assert_eq!(done(&share.bar, share.unit), "0 %");
        let time = Progress::of_time("");
        assert_eq!(done(&time.bar, time.unit), "0 seconds");
    }

    #[test]
    fn lines_are_printed_until_the_end() {
        let records = Progress::of_records("copying", 1000);
        let (mut lines, (sender, ended)) = (Vec::new(), channel());
        let mut sender = Some(sender);
        print_lines(&records.bar, records.unit, &ended, Duration::from_millis(1), |line| {
            lines.push(line);
            records.advance(10);
            if lines.len() == 2 {
                sender = None;
            }
        });
        assert_eq!(lines, ["copying: 0 of 1000 records", "copying: 10 of 1000 records"]);
    }
}
