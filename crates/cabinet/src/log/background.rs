//! What a log does beside its callers.
//!
//! - *ahead*: begins the next segment shortly before the active one is full, and allocates and
//!   prepares the pages that will be appended to next.
//! - *keeper*: cuts and syncs sealed segments, looks which are in memory, compacts, and has the
//!   engine sweep and write checkpoints.
//! - *syncer*: makes writes durable, see [`super::commit`]; only if the durability asks for it.
//!
//! Threads hold the engine weakly: it closes when its last user lets it go.

use super::compact::Rescue;
use super::{Log, Segment};
use crate::{Durability, Error, Result, UsableMemory};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the keeper looks for work.
const KEEPER_PERIOD: Duration = Duration::from_millis(500);

/// Bytes that are prepared ahead of the appends.
const PREPARED_AHEAD_BYTES: usize = 8 << 20;

/// Bytes that are sent to the disk at a time where memory is limited.
const WRITTEN_BACK_BYTES: usize = 2 << 20;

/// Segments whose pages are looked at in one period.
const LOOKED_AT_ONCE: usize = 64;

/// Niceness of the keeper: it gives way to readers and writers. If it comes to nothing by that,
/// writers are slowed down, see [`super::Pressure`], and it gets the time that they leave.
const KEEPER_NICENESS: i32 = 15;

/// A checkpoint is written once so many bytes were appended since the last, or four times the
/// size of the index if that is more: a share of at most a fifth of what is written.
pub(crate) const CHECKPOINT_BYTES_MIN: u64 = 256 << 20;

/// An engine, as its background threads see it.
pub(crate) trait Engaged: Rescue + Send + Sync + 'static {
    fn log(&self) -> &Log;
    /// Removes what has expired from the index. `go_on` is asked now and then; the rest is for the
    /// next time.
    fn sweep(&self, go_on: &dyn Fn() -> bool) -> Result<()>;
    /// Writes a checkpoint.
    fn checkpoint(&self) -> Result<()>;
    /// Whether a checkpoint gives back memory that has to be given back.
    fn wants_checkpoint(&self) -> bool {
        false
    }
    /// Whether there is a cap on bytes.
    fn is_capped(&self) -> bool {
        self.log().capacity.is_capped()
    }
    /// Evicts what is over the cap, if there is one.
    fn keep_to_cap(&self) -> Result<()>
    where
        Self: Sized,
    {
        let log = self.log();
        if log.capacity.is_capped() {
            log.capacity.note_checkpoint_bytes(self.checkpoint_bytes());
            let evicted = log.capacity.evicted();
            log.evict_while(self, &Log::wants_eviction)?;
            // The checkpoint lists more records than there are now, after a cap was lowered.
            if log.capacity.evicted() > evicted
                && log.checkpoint_file_bytes() > 2 * self.checkpoint_bytes()
            {
                self.checkpoint()?;
            }
        }
        Ok(())
    }
    /// Gives dead space back.
    fn compact(&self, go_on: &dyn Fn() -> bool) -> Result<()>
    where
        Self: Sized,
    {
        let log = self.log();
        let compact_due = || {
            while go_on() {
                let Some(segment) = log.due_for_compaction() else { break };
                log.compact_next(&segment, self, go_on)?;
                log.finish_sealed()?;
                log.drop_retired();
                self.keep_to_cap()?;
            }
            Ok(())
        };
        let compacted = compact_due();
        // On a full disk the next compaction may need the space.
        log.remove_emptied()?;
        log.drop_retired();
        compacted
    }
    /// Whether so much was appended since the last checkpoint that the next is due.
    fn is_checkpoint_due(&self) -> bool {
        let due = CHECKPOINT_BYTES_MIN.max(4 * self.checkpoint_bytes());
        self.log().since_checkpoint() > due || self.wants_checkpoint()
    }
}

/// How callers reach the threads.
#[derive(Default)]
pub(crate) struct Signals {
    running: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    ahead_lock: Mutex<()>,
    ahead_wake: Condvar,
    looked_at: AtomicUsize,
    /// Number of a segment, and how many of its bytes were sent to the disk.
    written_back: Mutex<(u64, usize)>,
}

impl Signals {
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        if self.is_running() {
            // Taken so that nobody misses this between looking and sleeping.
            drop(self.lock.lock());
            self.wake.notify_all();
            drop(self.ahead_lock.lock());
            self.ahead_wake.notify_all();
        }
    }

    fn sleep(&self, period: Duration) {
        let mut lock = self.lock.lock();
        if !self.stopping() {
            self.wake.wait_for(&mut lock, period);
        }
    }

    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The threads of one log.
pub(crate) struct Background {
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts the threads an engine needs.
    pub(crate) fn start<E: Engaged>(engine: &Arc<E>) -> Result<Self> {
        Self::spawn_all(engine).map_err(|source| Error::Io {
            operation: "start threads for",
            path: engine.log().directory().to_owned(),
            source,
        })
    }

    fn spawn_all<E: Engaged>(engine: &Arc<E>) -> std::io::Result<Self> {
        let mut background = Self { threads: Vec::new() };
        engine.log().background.running.store(true, Ordering::Release);
        background.spawn("cabinet-ahead", engine, 0, ahead)?;
        // Where writers cannot go on without it, it gives way to nobody.
        let niceness = if engine.is_capped() { 0 } else { KEEPER_NICENESS };
        background.spawn("cabinet-keeper", engine, niceness, keep)?;
        if engine.log().settings.durability != Durability::None {
            background.spawn("cabinet-syncer", engine, 0, sync)?;
        }
        Ok(background)
    }

    fn spawn<E: Engaged>(
        &mut self,
        name: &str,
        engine: &Arc<E>,
        niceness: i32,
        step: fn(&E) -> Result<()>,
    ) -> std::io::Result<()> {
        let weak = Arc::downgrade(engine);
        let body = move || {
            if niceness != 0 {
                // A refusal costs others some time only.
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
        log.background.stop.store(true, Ordering::Release);
        log.background.wake();
        log.commit.nudge();
        let current = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // The last user may have been one of them, for the length of a step.
            if thread.thread().id() != current {
                let _ = thread.join();
            }
        }
        log.background.running.store(false, Ordering::Release);
    }
}

fn run<E: Engaged>(weak: &Weak<E>, step: fn(&E) -> Result<()>) {
    let mut told = String::new();
    while let Some(engine) = weak.upgrade() {
        if engine.log().background.stopping() {
            return;
        }
        let failed = step(&engine).err().map(|error| error.to_string()).unwrap_or_default();
        if !failed.is_empty() {
            // A full disk stays full for long, and is said once.
            if failed != told {
                tracing::error!("in the background: {failed}");
            }
            std::thread::sleep(KEEPER_PERIOD);
        }
        told = failed;
    }
}

fn ahead<E: Engaged>(engine: &E) -> Result<()> {
    let log = engine.log();
    {
        let mut lock = log.background.ahead_lock.lock();
        if !log.ahead_wanted.load(Ordering::Relaxed) && !log.background.stopping() {
            log.background.ahead_wake.wait_for(&mut lock, KEEPER_PERIOD);
        }
    }
    if log.ahead_wanted.swap(false, Ordering::Relaxed) {
        log.begin_next_ahead()?;
        log.prepare_ahead();
    }
    Ok(())
}

fn keep<E: Engaged>(engine: &E) -> Result<()> {
    let log = engine.log();
    let go_on = || !log.background.stopping();
    log.finish_sealed()?;
    log.look_what_is_resident();
    log.drop_retired();
    // It is as gentle as compaction, which has nothing to wait for it for.
    engine.sweep(&|| go_on() && log.due_for_compaction().is_none())?;
    engine.keep_to_cap()?;
    let compacted = engine.compact(&go_on);
    if !matches!(compacted, Ok(()) | Err(Error::NoSpace { .. })) {
        return compacted;
    }
    // On a full disk, too: there may be room for these, and there is something to be gained by
    // them.
    if go_on() && engine.is_checkpoint_due() {
        engine.checkpoint()?;
    }
    log.keep_reserve();
    compacted?;
    log.background.sleep(KEEPER_PERIOD);
    Ok(())
}

fn sync<E: Engaged>(engine: &E) -> Result<()> {
    let log = engine.log();
    if let Durability::Interval(milliseconds) = log.settings.durability {
        log.background.sleep(Duration::from_millis(milliseconds.max(1)));
    } else {
        log.commit.sleep(|| log.has_to_sync() || log.background.stopping());
    }
    if log.has_to_sync() {
        log.sync()?;
    }
    Ok(())
}

impl Log {
    /// Whether something is not durable that can become so: after a failed sync nothing can.
    pub(crate) fn has_to_sync(&self) -> bool {
        self.commit.check().is_ok() && self.appended() > self.commit.durable()
    }

    /// Whether the background threads are being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.background.stopping()
    }

    /// Has the background look for work now.
    pub(crate) fn wake_background(&self) {
        self.background.wake();
    }

    /// Allocates and populates what will be appended to next.
    pub(crate) fn prepare_ahead(&self) {
        let (segment, end) = {
            let tail = self.lock_tail();
            (Arc::clone(&tail.segment), tail.appender.end())
        };
        let until = (end + PREPARED_AHEAD_BYTES).min(segment.capacity);
        self.write_back_early(&segment, end);
        // Once it is sealed, the keeper cuts what nobody will append to.
        let kept = self.kept_free_bytes();
        loop {
            let _growing = segment.growing.lock();
            let step = self.step(end) as u64;
            let is_short = kept > 0 && self.free_bytes() < kept.saturating_add(2 * step);
            if is_short || segment.is_sealed() || segment.map.backed() >= until {
                break;
            }
            // A full disk is for the writer to report that needs the space.
            if self.allocate(&segment, until.min(segment.map.backed() + self.step(end))).is_err() {
                break;
            }
        }
    }

    /// Has what was appended on its way to the disk. Where memory is limited, the pages of files
    /// count, and those that have changed cannot be taken from a process before they were written.
    fn write_back_early(&self, active: &Segment, end: usize) {
        let always_syncs = self.settings.durability == Durability::Always;
        if always_syncs || !UsableMemory::of_process().is_limited {
            return;
        }
        let mut written_back = self.background.written_back.lock();
        let (number, before) = *written_back;
        if number != active.number {
            for sealed in self.segments().iter().filter(|segment| segment.number == number) {
                sealed.file.write_back(before as u64, sealed.bytes().saturating_sub(before as u64));
            }
            *written_back = (active.number, 0);
        }
        let before = written_back.1;
        if end.saturating_sub(before) >= WRITTEN_BACK_BYTES {
            active.file.write_back(before as u64, (end - before) as u64);
            written_back.1 = end;
        }
    }

    /// Cuts sealed segments to their length, freezes them, and makes them durable if that was
    /// asked for.
    pub(crate) fn finish_sealed(&self) -> Result<()> {
        let sealed = self.cut_sealed()?;
        self.flush_manifest()?;
        // Without a durability it is for the operating system to say when.
        if self.settings.durability == Durability::None {
            Ok(())
        } else {
            self.sync_sealed(&sealed)
        }
    }

    /// The segments that were sealed and not synced since, cut to their length.
    pub(super) fn cut_sealed(&self) -> Result<Vec<Arc<Segment>>> {
        let sealed = self.unsynced.lock().clone();
        for segment in &sealed {
            let _growing = segment.growing.lock();
            let length = segment.file.length();
            if length.is_ok_and(|length| length > segment.bytes()) {
                // The files of a snapshot have ended where they end before they were linked.
                segment
                    .file
                    .give_back(&segment.map, 0)
                    .map_err(|error| super::error_at("cut", &segment.path, error))?;
                segment.file.freeze(&segment.map);
            }
        }
        Ok(sealed)
    }

    /// Notes which segments can be read through their mapping without waiting: some at each
    /// call, all in turn.
    pub(crate) fn look_what_is_resident(&self) {
        let guard = self.segments();
        let all: Vec<_> = guard.iter().collect();
        let first = self.background.looked_at.fetch_add(LOOKED_AT_ONCE, Ordering::Relaxed);
        for index in 0..all.len().min(LOOKED_AT_ONCE) {
            let segment = all[first.wrapping_add(index) % all.len()];
            let is_resident = segment.map.is_resident();
            segment.resident.store(is_resident, Ordering::Relaxed);
            segment.renew_period(is_resident);
        }
    }
}
