//! Scrub: verifies the checksums of the database while it is served, on a schedule and on request.
//!
//! Thread model: one thread of low priority verifies at a bounded rate, and no request waits for
//! it. Damage is logged, and reported to clients that ask for it.
//!
//! The function `check` of `misc` begins a verification or joins the one that runs, and returns the
//! results. Its arguments are in
//! [`docs/protocols/tokyo-tyrant.md`](../../../docs/protocols/tokyo-tyrant.md).

use crate::store::view::View;
use crate::update_log::now_us;
use cabinet::{Checked, Damage, Verified};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Default of [`crate::Config::scrub_interval`]: bit rot is noticed within a week.
pub const SCRUB_INTERVAL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Default of [`crate::Config::scrub_bytes_per_second`]: a small part of the bandwidth of any disk.
pub const SCRUB_BYTES_PER_SECOND: u64 = 8 << 20;

/// Rate of a verification that a client requests without a rate, in bytes per second.
pub const CHECK_BYTES_PER_SECOND: u64 = 64 << 20;

/// Most damages that are kept to be reported. Further ones are only counted.
const REPORTED_DAMAGES_MAX: usize = 1000;

/// Interval at which the thread checks whether the server stops.
const TICK: Duration = Duration::from_millis(100);

/// Niceness of the thread.
const NICENESS: i32 = 19;

/// State of the verification, shared with its thread.
pub(crate) struct Scrub {
    state: Mutex<State>,
    wake: Condvar,
    /// Rate of the present run, in bytes per second.
    rate: AtomicU64,
    /// Bytes verified since the server started.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last run that was begun or requested, from 1.
    run: u64,
    phase: Phase,
    checked: Checked,
    /// The first [`REPORTED_DAMAGES_MAX`] damages.
    damages: Vec<Damage>,
    /// End of the last run that verified everything, in microseconds since 1970.
    last_us: u64,
    /// The present run is to stop.
    is_cancelled: bool,
}

/// Phase of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There was no run yet.
    #[default]
    Idle,
    /// A client has requested a run.
    Requested,
    Running,
    Finished,
    /// A client has stopped the run, or the server stops.
    Stopped,
    /// The files could not be read.
    Failed(String),
}

impl State {
    /// Begins another run. A run in progress ends once it sees the new number.
    fn begin(&mut self, phase: Phase) {
        self.run += 1;
        self.phase = phase;
        self.is_cancelled = false;
        self.checked = Checked::default();
        self.damages.clear();
    }
}

impl Phase {
    fn is_under_way(&self) -> bool {
        matches!(self, Self::Requested | Self::Running)
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Requested | Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

impl Scrub {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            rate: AtomicU64::new(SCRUB_BYTES_PER_SECOND),
            bytes: AtomicU64::new(0),
        }
    }

    /// Requests a run, or changes the rate of the present one. Returns its number. A run that is
    /// being stopped does not count.
    pub(crate) fn begin(&self, bytes_per_second: u64) -> u64 {
        let mut state = self.state.lock();
        self.rate.store(bytes_per_second, Ordering::Relaxed);
        if !state.phase.is_under_way() || state.is_cancelled {
            state.begin(Phase::Requested);
            self.wake.notify_all();
        }
        state.run
    }

    /// Stops the present run. Returns whether there is one.
    pub(crate) fn stop(&self) -> bool {
        let mut state = self.state.lock();
        state.is_cancelled = true;
        state.phase.is_under_way()
    }

    /// Calls `take` with the results of the last run, names and values in turn, then with the kept
    /// damages from number `from`.
    pub(crate) fn report(&self, from: usize, mut take: impl FnMut(&str)) {
        let state = self.state.lock();
        let Checked { segments, records, bytes, damages, .. } = state.checked;
        let run = state.run;
        for (name, number) in [
            ("run", run),
            ("segments", segments),
            ("records", records),
            ("bytes", bytes),
            ("damages", damages),
        ] {
            take(name);
            take(&number.to_string());
        }
        take("state");
        take(state.phase.word());
        if let Phase::Failed(what) = &state.phase {
            take("error");
            take(what);
        }
        for damage in state.damages.iter().skip(from) {
            take("damage");
            take(&damage.to_string());
        }
    }

    /// Returns names and values for `stat`.
    pub(crate) fn stats(&self) -> Vec<(String, String)> {
        let state = self.state.lock();
        let bytes = self.bytes.load(Ordering::Relaxed);
        vec![
            ("scrub_state".to_owned(), state.phase.word().to_owned()),
            ("scrubs".to_owned(), state.run.to_string()),
            ("scrubbed_bytes".to_owned(), bytes.to_string()),
            ("scrub_damages".to_owned(), state.checked.damages.to_string()),
            ("scrub_last_us".to_owned(), state.last_us.to_string()),
        ]
    }

    /// Returns the number of runs that were begun, and of the damaged places in the last.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.run, state.checked.damages)
    }

    /// Runs the thread until the server stops.
    pub(crate) fn run_thread(
        &self,
        database: &View,
        schedule: impl Fn() -> (Option<Duration>, u64),
        is_stopping: impl Fn() -> bool,
    ) {
        // Without the priority other threads lose some time, no more.
        let thread = Some(rustix::thread::gettid());
        let _ = rustix::process::setpriority_process(thread, NICENESS);
        let mut last = Instant::now();
        while !is_stopping() {
            let (interval, bytes_per_second) = schedule();
            let mut state = self.state.lock();
            let is_due = interval.is_some_and(|interval| last.elapsed() >= interval);
            if state.phase == Phase::Requested {
                state.phase = Phase::Running;
            } else if is_due {
                state.begin(Phase::Running);
                self.rate.store(bytes_per_second, Ordering::Relaxed);
            } else {
                self.wake.wait_for(&mut state, TICK);
                continue;
            }
            let run = state.run;
            drop(state);
            self.run(run, database, &is_stopping);
            last = Instant::now();
        }
    }

    fn run(&self, run: u64, database: &View, is_stopping: &dyn Fn() -> bool) {
        tracing::info!("scrub: verifying all checksums of the database");
        let mut seen_bytes = 0;
        let mut next_rate = |verified: &Verified| {
            let bytes = verified.checked.bytes;
            self.bytes.fetch_add(bytes - seen_bytes, Ordering::Relaxed);
            seen_bytes = bytes;
            let mut state = self.state.lock();
            if state.run != run {
                return None;
            }
            state.checked = verified.checked;
            let continues = !state.is_cancelled && !is_stopping();
            continues.then(|| self.rate.load(Ordering::Relaxed))
        };
        let mut report = |damage: Damage| {
            let mut state = self.state.lock();
            if state.run == run && state.damages.len() < REPORTED_DAMAGES_MAX {
                state.damages.push(damage);
            }
        };
        let verified = database.verify(&mut next_rate, &mut report);
        let mut state = self.state.lock();
        let phase = match verified {
            Ok(Verified { checked, is_complete }) => {
                self.bytes.fetch_add(checked.bytes - seen_bytes, Ordering::Relaxed);
                if state.run == run {
                    state.checked = checked;
                }
                if is_complete {
                    state.last_us = now_us();
                    let Checked { records, bytes, damages, .. } = checked;
                    tracing::info!(
                        "scrub: verified {records} records, {bytes} bytes, {damages} damages"
                    );
                    Phase::Finished
                } else {
                    Phase::Stopped
                }
            }
            Err(error) => {
                tracing::error!("scrub: cannot verify the database: {error}");
                Phase::Failed(error.to_string())
            }
        };
        if state.run == run {
            state.phase = phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::Database;
    use std::sync::atomic::AtomicBool;

    /// Longest time of an undisturbed run.
    const RUN_TIME_MAX: Duration = Duration::from_secs(120);

    fn reported(scrub: &Scrub, name: &str) -> String {
        let mut words = Vec::new();
        scrub.report(0, |word| words.push(word.to_owned()));
        let at = words.iter().step_by(2).position(|other| other == name).expect("a name");
        words.swap_remove(2 * at + 1)
    }

    #[test]
    fn a_request_during_the_end_of_a_stopped_run_begins_a_new_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("casket.tch").display().to_string();
        let database = Database::open(&name).expect("a database");
        let value = vec![b'v'; 64 << 10];
        for key in 0..200u32 {
            database.put(&key.to_le_bytes(), &value).expect("a put");
        }
        let database = View::from(database);
        let (scrub, is_stopping) = (Scrub::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                scrub.run_thread(&database, || (None, 0), || is_stopping.load(Ordering::Relaxed));
            });
            // At this rate the run lasts until it is stopped.
            assert_eq!(scrub.begin(1), 1);
            while scrub.bytes.load(Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(scrub.begin(1), 1);
            assert!(scrub.stop());
            let run = scrub.begin(u64::MAX);
            let (state, began) = (reported(&scrub, "state"), Instant::now());
            while reported(&scrub, "state") == "running" && began.elapsed() < RUN_TIME_MAX {
                std::thread::sleep(Duration::from_millis(1));
            }
            let ended = reported(&scrub, "state");
            is_stopping.store(true, Ordering::Relaxed);
            assert_eq!((run, &*state, &*ended), (2, "running", "finished"));
            assert_eq!(reported(&scrub, "records"), "200");
        });
    }
}
