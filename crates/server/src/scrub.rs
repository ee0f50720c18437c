//! Verifying the checksums of the database while it is served: on a schedule, and when a client asks.
//!
//! One thread does it, of low priority and at a bounded rate; nobody waits for it. Damage goes to the
//! log, and to the clients that ask for it.
//!
//! The function [`FUNCTION`] of `misc` begins a verification, or joins the one that is under way, and
//! tells what one has come to; [`docs/protocols/tokyo-tyrant.md`](../../../docs/protocols/tokyo-tyrant.md)
//! has its arguments.

use crate::status::seconds_since_1970;
use cabinet::{Checked, Damage, Database, Verified};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The function of `misc`. Tokyo Tyrant has none of this name.
pub(crate) const FUNCTION: &[u8] = b"check";

/// Default of [`crate::Config::scrub_interval`]: a disk that rots is noticed within a week.
pub const SCRUB_INTERVAL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Default of [`crate::Config::scrub_bytes_per_second`]: a small part of what any disk gives.
pub const SCRUB_BYTES_PER_SECOND: u64 = 8 << 20;

/// Bytes per second of a verification that a client asks for without a rate.
pub const CHECK_BYTES_PER_SECOND: u64 = 64 << 20;

/// Most damaged places whose description is kept; the others are counted.
const DAMAGES_KEPT_MAX: usize = 1000;

/// How often the thread looks whether the server stops.
const TICK: Duration = Duration::from_millis(100);

/// Niceness of the thread.
const NICENESS: i32 = 19;

/// See the module.
pub(crate) struct Scrub {
    state: Mutex<State>,
    wake: Condvar,
    /// Bytes per second of the present run.
    rate: AtomicU64,
    /// Bytes verified since the server started.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last verification that was begun or asked for, from 1 on.
    run: u64,
    phase: Phase,
    checked: Checked,
    /// The first damaged places.
    damages: Vec<Damage>,
    /// When the last one ended that went through everything, in microseconds since 1970.
    last_us: u64,
    /// The present one is to stop.
    is_unwanted: bool,
}

/// What becomes of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There was none.
    #[default]
    Idle,
    /// A client has asked for it.
    Wanted,
    Running,
    Finished,
    /// A client has stopped it, or the server stops.
    Stopped,
    /// The files could not be read.
    Failed(String),
}

impl Phase {
    fn is_under_way(&self) -> bool {
        matches!(self, Self::Wanted | Self::Running)
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Wanted | Self::Running => "running",
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

    /// Has a verification begin, or lets one that is under way go on at this rate; returns its number.
    pub(crate) fn begin(&self, bytes_per_second: u64) -> u64 {
        let mut state = self.state.lock();
        self.rate.store(bytes_per_second, Ordering::Relaxed);
        if !state.phase.is_under_way() {
            state.run += 1;
            state.phase = Phase::Wanted;
            state.is_unwanted = false;
            self.wake.notify_all();
        }
        state.run
    }

    /// Has the present verification stop; returns whether there is one.
    pub(crate) fn stop(&self) -> bool {
        let mut state = self.state.lock();
        state.is_unwanted = true;
        state.phase.is_under_way()
    }

    /// What the last verification has come to, as names and values in turn, and then the damaged places
    /// from number `from` on, as many as are kept.
    pub(crate) fn tell(&self, from: usize, mut take: impl FnMut(&str)) {
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

    /// Names and figures worth showing in `stat`.
    pub(crate) fn figures(&self) -> Vec<(String, String)> {
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

    /// What the thread does until the server stops.
    pub(crate) fn live(
        &self,
        database: &Database,
        (interval, bytes_per_second): (Option<Duration>, u64),
        is_stopping: impl Fn() -> bool,
    ) {
        // A refusal costs others some time only.
        let thread = Some(rustix::thread::gettid());
        let _ = rustix::process::setpriority_process(thread, NICENESS);
        let mut last = Instant::now();
        while !is_stopping() {
            let mut state = self.state.lock();
            let is_due = interval.is_some_and(|interval| last.elapsed() >= interval);
            if state.phase != Phase::Wanted {
                if !is_due {
                    self.wake.wait_for(&mut state, TICK);
                    continue;
                }
                state.run += 1;
                state.is_unwanted = false;
                self.rate.store(bytes_per_second, Ordering::Relaxed);
            }
            state.phase = Phase::Running;
            state.checked = Checked::default();
            state.damages.clear();
            drop(state);
            self.run(database, &is_stopping);
            last = Instant::now();
        }
    }

    fn run(&self, database: &Database, is_stopping: &dyn Fn() -> bool) {
        tracing::info!("verifying all checksums of the database");
        let mut seen_bytes = 0;
        let mut go_on = |verified: &Verified| {
            let bytes = verified.checked.bytes;
            self.bytes.fetch_add(bytes - seen_bytes, Ordering::Relaxed);
            seen_bytes = bytes;
            let mut state = self.state.lock();
            state.checked = verified.checked;
            let is_wanted = !state.is_unwanted && !is_stopping();
            is_wanted.then(|| self.rate.load(Ordering::Relaxed))
        };
        let mut report = |damage: Damage| {
            let mut state = self.state.lock();
            if state.damages.len() < DAMAGES_KEPT_MAX {
                state.damages.push(damage);
            }
        };
        let verified = database.verify(&mut go_on, &mut report);
        let mut state = self.state.lock();
        match verified {
            Ok(Verified { checked, is_complete }) => {
                let seen_bytes = state.checked.bytes;
                self.bytes.fetch_add(checked.bytes - seen_bytes, Ordering::Relaxed);
                state.checked = checked;
                if is_complete {
                    state.last_us = (seconds_since_1970() * 1e6) as u64;
                    state.phase = Phase::Finished;
                    let Checked { records, bytes, damages, .. } = checked;
                    tracing::info!(
                        "verified {records} records, {bytes} bytes: {damages} damaged places"
                    );
                } else {
                    state.phase = Phase::Stopped;
                }
            }
            Err(error) => {
                tracing::error!("verifying the database: {error}");
                state.phase = Phase::Failed(error.to_string());
            }
        }
    }
}
