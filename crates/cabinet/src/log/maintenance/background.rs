//! The background threads of a log.
//!
//! - *preallocation*: begins the next segment shortly before the active one is full, and prepares
//!   the pages for the next appends.
//! - *maintenance*: cuts and syncs sealed segments, checks which are in memory, compacts, and has
//!   the engine sweep and write checkpoints.
//! - *syncer*: makes writes durable, see [`crate::log::commit`]; only with a durability.
//!
//! Threads hold the engine weakly: it closes when its last user drops it.

use crate::log::Log;
use crate::log::space::{Relocate, Unsealed};
use crate::{Durability, Error, Result};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often maintenance looks for work.
const MAINTENANCE_PERIOD: Duration = Duration::from_millis(500);

/// Niceness of the maintenance thread: it yields to readers and writers. If it falls behind,
/// writers are slowed down, see [`crate::log::Pressure`], and it gets the time that they leave.
const MAINTENANCE_NICENESS: i32 = 15;

/// Bytes appended since the last checkpoint after which the next is written, or four times the size
/// of the index if that is more. So checkpoints are at most a fifth of the bytes written.
pub(crate) const CHECKPOINT_BYTES_MIN: u64 = 256 << 20;

/// An engine, as its background threads see it.
pub(crate) trait Maintained: Relocate + Send + Sync + 'static {
    fn log(&self) -> &Log;
    /// Removes expired records from the index. Stops when `go_on` returns false; the rest is left
    /// for the next sweep.
    fn sweep(&self, go_on: &dyn Fn() -> bool) -> Result<()>;
    /// Writes a checkpoint.
    fn checkpoint(&self) -> Result<()>;
    /// Rebuilds parts of the index on the disk that were found to be damaged.
    fn mend(&self, _go_on: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }
    /// Returns whether a checkpoint is needed to free memory.
    fn wants_checkpoint(&self) -> bool {
        false
    }
    /// Returns whether there is a cap on bytes.
    fn is_capped(&self) -> bool {
        self.log().space.quota().is_capped()
    }
    /// Evicts until the log is within the cap, if there is one.
    fn enforce_cap(&self) -> Result<()>
    where
        Self: Sized,
    {
        let log = self.log();
        if log.space.quota().is_capped() {
            log.space.quota().note_checkpoint_bytes(self.checkpoint_bytes());
            let evicted = log.space.quota().evicted();
            log.evict_while(self, &|| log.space.wants_eviction(&log.segments))?;
            // After a cap was lowered, the checkpoint lists more records than there are now.
            if log.space.quota().evicted() > evicted
                && log.checkpoint_file_bytes() > 2 * self.checkpoint_bytes()
            {
                self.checkpoint()?;
            }
        }
        Ok(())
    }
    /// Reclaims dead space.
    fn compact(&self, go_on: &dyn Fn() -> bool) -> Result<()>
    where
        Self: Sized,
    {
        let log = self.log();
        // Writers often have filled the active segment since the last round.
        log.try_to_remove_emptied(Unsealed::Wait);
        let mut has_emptied = false;
        let mut compact_due = || {
            while go_on() {
                let Some(segment) = log.due_for_compaction() else { break };
                has_emptied = true;
                log.compact_next(&segment, self, go_on)?;
                log.finish_sealed()?;
                log.segments.drop_retired();
                self.enforce_cap()?;
            }
            Ok(())
        };
        let compacted = compact_due();
        // On a full disk the next compaction may need the space.
        let may_wait = has_emptied && compacted.is_ok() && go_on() && log.may_keep_emptied();
        log.remove_emptied(if may_wait { Unsealed::Wait } else { Unsealed::Sync })?;
        log.segments.drop_retired();
        compacted
    }
    /// Returns whether enough was appended since the last checkpoint that the next is due.
    fn is_checkpoint_due(&self) -> bool {
        let due = CHECKPOINT_BYTES_MIN.max(4 * self.checkpoint_bytes());
        self.log().since_checkpoint() > due || self.wants_checkpoint()
    }
}

/// The threads of one log.
pub(crate) struct Background {
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts the threads an engine needs.
    pub(crate) fn start<E: Maintained>(engine: &Arc<E>) -> Result<Self> {
        Self::spawn_all(engine).map_err(|source| Error::Io {
            operation: "start threads for",
            path: engine.log().directory().to_owned(),
            source,
        })
    }

    fn spawn_all<E: Maintained>(engine: &Arc<E>) -> std::io::Result<Self> {
        let mut background = Self { threads: Vec::new() };
        engine.log().maintenance.signals.start();
        background.spawn("cabinet-ahead", engine, 0, preallocate)?;
        // Writers at the cap wait for this thread, so it does not yield to others.
        let niceness = if engine.is_capped() { 0 } else { MAINTENANCE_NICENESS };
        background.spawn("cabinet-keeper", engine, niceness, maintain)?;
        if engine.log().settings.durability != Durability::None {
            background.spawn("cabinet-syncer", engine, 0, sync)?;
        }
        Ok(background)
    }

    fn spawn<E: Maintained>(
        &mut self,
        name: &str,
        engine: &Arc<E>,
        niceness: i32,
        step: fn(&E) -> Result<()>,
    ) -> std::io::Result<()> {
        let weak = Arc::downgrade(engine);
        let body = move || {
            if niceness != 0 {
                // A failure only costs other threads some time.
                let thread = Some(rustix::thread::gettid());
                let _ = rustix::process::setpriority_process(thread, niceness);
            }
            run(&weak, step);
        };
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(body)?);
        Ok(())
    }

    /// Stops the threads and waits for them.
    pub(crate) fn stop(&mut self, log: &Log) {
        let signals = &log.maintenance.signals;
        signals.stop();
        log.commit.nudge();
        let current = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // This thread may be one of them: it held the last reference for the length of a step.
            if thread.thread().id() != current {
                let _ = thread.join();
            }
        }
        signals.note_stopped();
    }
}

fn run<E: Maintained>(weak: &Weak<E>, step: fn(&E) -> Result<()>) {
    let mut logged = String::new();
    while let Some(engine) = weak.upgrade() {
        if engine.log().maintenance.signals.stopping() {
            return;
        }
        let failed = step(&engine).err().map(|error| error.to_string()).unwrap_or_default();
        if !failed.is_empty() {
            // A full disk stays full for long, and is logged once.
            if failed != logged {
                tracing::error!("background work failed: {failed}");
            }
            std::thread::sleep(MAINTENANCE_PERIOD);
        }
        logged = failed;
    }
}

fn preallocate<E: Maintained>(engine: &E) -> Result<()> {
    let log = engine.log();
    log.maintenance
        .signals
        .sleep_until_preallocation(MAINTENANCE_PERIOD, || log.writer.is_preallocation_wanted());
    log.preallocate()
}

fn maintain<E: Maintained>(engine: &E) -> Result<()> {
    let log = engine.log();
    let go_on = || !log.maintenance.signals.stopping();
    log.maintain_segments()?;
    // Work that needs the index fails until it is repaired.
    engine.mend(&go_on)?;
    // Sweeping is as slow as compaction, which need not wait for it.
    engine.sweep(&|| go_on() && log.due_for_compaction().is_none())?;
    engine.enforce_cap()?;
    let compacted = engine.compact(&go_on);
    if !matches!(compacted, Ok(()) | Err(Error::NoSpace { .. })) {
        return compacted;
    }
    // This runs on a full disk too: there may be space for a checkpoint, and a checkpoint may free
    // some.
    if go_on() && engine.is_checkpoint_due() {
        engine.checkpoint()?;
    }
    log.space.keep_reserve(&log.segments);
    compacted?;
    log.maintenance.signals.sleep(MAINTENANCE_PERIOD);
    Ok(())
}

fn sync<E: Maintained>(engine: &E) -> Result<()> {
    let log = engine.log();
    if let Durability::Interval(milliseconds) = log.settings.durability {
        log.maintenance.signals.sleep(Duration::from_millis(milliseconds.max(1)));
    } else {
        log.commit.sleep(|| log.has_to_sync() || log.maintenance.signals.stopping());
    }
    if log.has_to_sync() {
        log.sync()?;
    }
    Ok(())
}
