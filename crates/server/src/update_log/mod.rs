//! Update log: logs every change in per-key order, in files of Tokyo Tyrant's format.
//!
//! `docs/formats/update-log.md` draws the bytes, `docs/replication.md` describes the use.
//!
//! A writer makes its change and appends the entry to a buffer, both under the lock of the key
//! ([`key_locks`]). Before the client is answered, [`UpdateLog::flush`] writes the buffer to the
//! file: the first writer writes the entries of all, in one system call. So an acknowledged change
//! is in the file.
//!
//! The [`intent_log`] protects buffered entries and changes in progress against a kill of the
//! process.
//!
//! Lock order: the keys or the recovery, then the files, then the roots, then the buffer. The tail
//! and the failure are locked last, and no lock is taken under them.

mod change_guard;
mod error;
mod excerpts;
mod failure;
mod files;
pub(crate) mod identity;
mod intent_log;
mod key_locks;
mod own_changes;
mod parts;
mod reader;
mod recovery;
mod resumption;
mod retention;
mod roots;
mod scan;
#[cfg(test)]
mod tests;

pub use error::{Error, Result};
use files::Unsynced;
pub use files::{Files, LogOffset};
pub use reader::Reader;
pub use retention::Retention;

pub(crate) use change_guard::{ChangeGuard, KeyLockGuard};
pub(crate) use excerpts::{Excerpt, Excerpts};
pub(crate) use intent_log::{Subject, Unfinished};
pub(crate) use key_locks::{KeyPartitioning, Scope, is_relative};
pub(crate) use resumption::name_of;
pub(crate) use retention::now_us;
pub(crate) use roots::RootLines;

use cabinet::Database;
use cabinet::name::Kind;
use failure::Failure;
use intent_log::{IntentLog, Spare};
use key_locks::{KeyLocks, Locks};
use own_changes::OwnChanges;
use parking_lot::{Condvar, Mutex};
use recovery::{Recovery, is_of_full_disk};
use resumption::PendingRootLines;
use retention::FileRetention;
use roots::{RootState, Roots};
use scan::Scan;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wire::binary::Request;
use wire::limits::BINARY_ARGUMENT_BYTES_MAX;
use wire::replication::Root;
use wire::update_log::{ENTRY_HEADER_BYTES, Entry, Operation};

/// Default of [`Settings::file_bytes_max`], as Tokyo Tyrant.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// Size of the buffer from which a writer writes it out even if it need not wait, in bytes.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// Interval between two rounds of the log's own thread.
const TICK: Duration = Duration::from_millis(100);

/// Number of rounds between two removals of old files.
const TICKS_OF_RETENTION: u32 = 10;

/// Longest time for which new changes wait until those in progress have ended.
const BLOCK_WAIT_MAX: Duration = Duration::from_millis(100);

/// Settings of an update log.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of the files; made if it is missing.
    pub folder: PathBuf,
    /// Size of a file from which the next one begins, in bytes; 0 is no limit.
    pub file_bytes_max: u64,
    /// Whether changes are acknowledged before they are in the file, which takes at most 0.1 s.
    pub is_asynchronous: bool,
    /// Caps on the files that are kept.
    pub retention: Retention,
}

impl Settings {
    /// Returns the defaults for a log in this folder. No file is ever removed.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            file_bytes_max: FILE_BYTES_MAX,
            is_asynchronous: false,
            retention: Retention::default(),
        }
    }
}

/// Source of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Id of the server that executed it first.
    pub(crate) origin: u16,
    /// Id of the server it was received from, 0 if it was executed here first.
    pub(crate) master: u16,
    /// Log and time stamp of its first entry, if it was received and they are known.
    pub(crate) root: Option<Root>,
}

/// The update log of a running server.
pub(crate) struct UpdateLog {
    settings: Settings,
    key_locks: KeyLocks,
    files: Mutex<Files>,
    buffer: Mutex<Buffer>,
    /// Number of bytes appended to the buffer since opening, and number written to files.
    appended: AtomicU64,
    written: AtomicU64,
    has_failed: AtomicBool,
    /// Reason for `has_failed`.
    failure: Mutex<Option<Failure>>,
    tail: Mutex<Tail>,
    grown: Condvar,
    roots: Mutex<Roots>,
    /// Number of writes of lines to the roots.
    root_writes: AtomicU64,
    retention: FileRetention,
    /// Recovery that waits for space on the disk.
    start: Mutex<Option<Recovery>>,
    /// Longest value that can be logged, in bytes.
    value_bytes_max: usize,
    own_changes: Option<OwnChanges>,
    /// Identity of the log; `None` if it cannot be stored, as on a full disk.
    identity: Mutex<Option<String>>,
}

/// A moment between two entries of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Time stamp of the last entry, or the time if there is none.
    pub(crate) last_us: u64,
    /// Time stamp that all later entries exceed.
    pub(crate) now_us: u64,
}

/// End of the entries in the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Offset up to which readers may read.
    pub(crate) end: LogOffset,
    /// Number of entries written since the log was opened.
    pub(crate) entries: u64,
    /// Their length, in bytes.
    pub(crate) bytes: u64,
    /// Time stamp of the last entry, in microseconds since 1970; 0 without any.
    pub(crate) timestamp_us: u64,
}

struct Buffer {
    entries: Vec<u8>,
    /// Number of entries in the buffer.
    count: u64,
    /// Time stamp of the last entry of the log.
    last_entry_us: u64,
    /// Time stamp that the next entry must exceed.
    last_timestamp_us: u64,
    /// `None` for on-memory databases, which do not survive a kill.
    intent_log: Option<IntentLog>,
    /// Roots of the entries in the buffer.
    lines: PendingRootLines,
}

impl UpdateLog {
    /// Opens the log of a database. Returns also the changes that were pending when the process was
    /// killed. A caller that has logged the result of such a change reports it as
    /// [`resolved`](Self::resolved).
    pub(crate) fn open(settings: Settings, database: &Database) -> Result<(Self, Vec<Unfinished>)> {
        let is_on_memory = Kind::of_path(&database.path()).is_some_and(Kind::is_on_memory);
        // That of an on-memory database does not tell whether it was closed.
        let was_closed = !is_on_memory && was_closed(&settings.folder)?;
        let mut files = Files::open_after(&settings.folder, settings.file_bytes_max, was_closed)?;
        let mut last_timestamp_us = files.last_timestamp_us();
        let mut intent_log = None;
        let mut unfinished = Vec::new();
        let mut waiting = None;
        let mut is_broken = last_timestamp_us > 0;
        let (mut own_us, mut has_lost) = (0, false);
        if !is_on_memory {
            let mut start = Recovery::of(&settings.folder, last_timestamp_us)?;
            last_timestamp_us = start.last_timestamp_us();
            (is_broken, own_us, has_lost) = start.roots();
            if has_lost {
                tracing::warn!(
                    "the system has stopped while the update log in {} was open: entries that were \
                     not synced may be lost, so replicas may have changes that this server lacks, \
                     or lack some that it has; for exact copies stop them, move their databases \
                     away, and start them again",
                    settings.folder.display()
                );
            }
            match start.attempt(&mut files) {
                Ok(begun) => {
                    intent_log = Some(begun.0);
                    unfinished = begun.1;
                }
                Err(error) if is_of_full_disk(&error) => waiting = Some((start, error)),
                Err(error) => return Err(error),
            }
        }
        let (start, error) = waiting.unzip();
        let roots = (is_broken, has_lost, own_us);
        let mut roots = Roots::open(&settings.folder, last_timestamp_us, roots)?;
        let mut own_us = 0;
        if roots.state().is_none() && last_timestamp_us > 0 {
            let is_first_foreign;
            // An unreadable log counts as begun by another server.
            (is_first_foreign, own_us) = first_own(&settings.folder).unwrap_or((true, 1));
            if is_first_foreign {
                roots.assume(RootState { own_us, ..RootState::default() });
            }
        }
        let root_state = roots.state();
        let floor_us = root_state.and_then(|root_state| root_state.floor_us);
        let lines = PendingRootLines {
            is_recording: floor_us.is_some(),
            is_broken: root_state.is_some() && floor_us.is_none(),
            own_us: root_state.map_or(own_us, |root_state| root_state.own_us),
            since_us: root_state.map_or(0, |root_state| root_state.since_us),
            ..PendingRootLines::default()
        };
        let log = Self {
            key_locks: KeyLocks::new(database),
            buffer: Mutex::new(Buffer {
                entries: Vec::new(),
                count: 0,
                last_entry_us: last_timestamp_us,
                last_timestamp_us,
                intent_log,
                lines,
            }),
            appended: AtomicU64::new(0),
            written: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
            tail: Mutex::new(Tail {
                end: files.end(),
                entries: 0,
                bytes: 0,
                timestamp_us: last_timestamp_us,
            }),
            grown: Condvar::new(),
            files: Mutex::new(files),
            roots: Mutex::new(roots),
            root_writes: AtomicU64::new(0),
            retention: FileRetention::open(&settings.folder, settings.retention)?,
            start: Mutex::new(start),
            value_bytes_max: BINARY_ARGUMENT_BYTES_MAX,
            own_changes: None,
            identity: Mutex::new(
                identity::identity_of(&settings.folder)
                    .inspect_err(|error| {
                        tracing::warn!("update log: cannot read or create its identity: {error}")
                    })
                    .ok(),
            ),
            settings,
        };
        if let Some(error) = error {
            log.fail(&error);
        }
        Ok((log, unfinished))
    }

    #[cfg(test)]
    pub(crate) fn limit_values(&mut self, bytes_max: usize) {
        self.value_bytes_max = bytes_max;
    }

    /// Records own changes from now on.
    pub(crate) fn remember_own_changes(&mut self) {
        self.own_changes = Some(OwnChanges::new());
    }

    /// Returns whether a record was changed here first since `from_us`, as far as that is recorded.
    pub(crate) fn was_changed_here(&self, key: &[u8], from_us: u64) -> bool {
        self.own_changes.as_ref().is_some_and(|own| own.has_since(key, from_us))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.settings.folder
    }

    /// Returns the identity of the log.
    pub(crate) fn identity(&self) -> Option<String> {
        self.identity.lock().clone()
    }

    /// Returns the retention of the files and the progress of replicas.
    pub(crate) fn retention(&self) -> &FileRetention {
        &self.retention
    }

    /// Begins a change, which ends when the returned guard is dropped, after
    /// [`ChangeGuard::append`]. Fails while the log cannot be written. Fails with
    /// [`cabinet::Error::WouldBlock`] if it would have to wait and `may_wait` is not set.
    pub(crate) fn begin(
        &self,
        database: &Database,
        source: Source,
        scope: Scope<'_>,
        may_wait: bool,
    ) -> cabinet::Result<ChangeGuard<'_>> {
        self.check_failure()?;
        let locks =
            self.key_locks.lock(database, scope, may_wait).ok_or(cabinet::Error::WouldBlock)?;
        if let (Some(own), 0) = (&self.own_changes, source.master) {
            scope.keys().iter().for_each(|key| own.record(key, now_us()));
        }
        let change = match scope {
            Scope::Key(key) => self.intend(source, Some(key))?,
            Scope::All => self.intend(source, None)?,
            Scope::Nothing => None,
            Scope::Several(keys) => {
                let mut guard = ChangeGuard::of_several(self, source, locks);
                for key in keys {
                    guard.add(self.intend(source, Some(key))?);
                }
                return Ok(guard);
            }
        };
        Ok(ChangeGuard::new(self, change, locks))
    }

    /// Fails while the log cannot be written.
    fn check_failure(&self) -> cabinet::Result<()> {
        if self.has_failed.load(Ordering::Relaxed)
            && let Some(failed) = &*self.failure.lock()
        {
            return Err(failed.refusal());
        }
        Ok(())
    }

    /// Records in the intent log which record is about to change. Without a key it may be any.
    fn intend(&self, source: Source, key: Option<&[u8]>) -> cabinet::Result<Option<u64>> {
        let change =
            self.buffer.lock().intent_log.as_mut().map(|intent_log| intent_log.change(source, key));
        change.transpose().map_err(|source| {
            let (operation, path) = ("write the intent log in", self.settings.folder.clone());
            self.fail(&Error::Io { operation, path, source })
        })
    }

    /// Fails if a value of `bytes` bytes cannot be logged. Such a value must not be stored.
    pub(crate) fn check_value(&self, bytes: usize) -> cabinet::Result<()> {
        let max = self.value_bytes_max;
        if bytes > max { Err(cabinet::Error::ValueTooLong { bytes, max }) } else { Ok(()) }
    }

    /// Blocks all new changes until the returned guard is dropped. Returns `None` if the changes in
    /// progress do not end within [`BLOCK_WAIT_MAX`].
    pub(crate) fn block_changes(&self) -> Option<ChangeGuard<'_>> {
        let locks = self.key_locks.lock_all_within(BLOCK_WAIT_MAX)?;
        Some(ChangeGuard::new(self, None, locks))
    }

    /// Returns a mark after the last entry.
    pub(crate) fn mark(&self) -> Mark {
        let mut buffer = self.buffer.lock();
        let last_us = buffer.last_entry_us;
        let now_us = now_us().max(buffer.last_timestamp_us);
        buffer.last_timestamp_us = now_us;
        Mark { last_us: if last_us == 0 { now_us } else { last_us }, now_us }
    }

    /// Locks the keys in `scope`, however long that takes.
    pub(crate) fn lock_keys(&self, database: &Database, scope: Scope<'_>) -> KeyLockGuard<'_> {
        let locks = self.key_locks.lock(database, scope, true).unwrap_or(Locks::None);
        KeyLockGuard::new(self, locks)
    }

    /// Returns the time stamp of the last entry, which may not be in the file yet; 0 without any.
    pub(crate) fn last_entry_us(&self) -> u64 {
        self.buffer.lock().last_entry_us
    }

    /// Records that the result of a pending change is in the log, or that nothing was changed.
    pub(crate) fn resolved(&self, change: u64) {
        if let Some(intent_log) = &mut self.buffer.lock().intent_log {
            intent_log.done(change);
        }
    }

    /// Appends an entry to the buffer. Time stamps rise from entry to entry, whatever the clock
    /// does. Returns whether the entry would survive a kill of the process, as far as an intent log
    /// is kept.
    fn append(&self, source: Source, operation: &Operation<'_>) -> bool {
        let mut buffer = self.buffer.lock();
        let timestamp_us = now_us().max(buffer.last_timestamp_us.saturating_add(1));
        let start = buffer.entries.len();
        let Source { origin, master, .. } = source;
        let header = Entry { timestamp_us, origin, master, body: &[] };
        let encoded =
            header.encode(&mut buffer.entries).and_then(|()| operation.encode(&mut buffer.entries));
        let body = buffer.entries.len() - start - ENTRY_HEADER_BYTES;
        if encoded.is_err() || body > wire::limits::UPDATE_BODY_BYTES_MAX {
            // Requests and records have much lower limits, so this change cannot occur.
            buffer.entries.truncate(start);
            drop(buffer);
            self.fail(&Error::EntryTooLong { bytes: body });
            return true;
        }
        let size_at = start + ENTRY_HEADER_BYTES - 4;
        buffer.entries[size_at..size_at + 4].copy_from_slice(&(body as u32).to_be_bytes());
        buffer.last_timestamp_us = timestamp_us;
        buffer.last_entry_us = timestamp_us;
        buffer.count += 1;
        let length = (ENTRY_HEADER_BYTES + body) as u64;
        let appended = self.appended.fetch_add(length, Ordering::SeqCst) + length;
        let changes_nothing = matches!(operation.request, Request::Sync | Request::Optimize { .. });
        if source.master != 0 || !changes_nothing {
            buffer.lines.add(source, timestamp_us);
        }
        let Buffer { entries, intent_log, .. } = &mut *buffer;
        let logged =
            intent_log.as_mut().map_or(Ok(()), |own| own.entry(&entries[start..], appended));
        if let Err(error) = &logged {
            tracing::warn!("update log: cannot write an entry to the intent log: {error}");
        }
        let is_full = buffer.entries.len() > BUFFER_BYTES_MAX;
        drop(buffer);
        if is_full {
            // A failure is reported to later changes.
            let _ = self.write();
        }
        logged.is_ok()
    }

    /// Writes all changes so far to the file, unless the log is asynchronous. Returns whether their
    /// clients may be answered. If not, the server's own log gives the reason.
    pub(crate) fn flush(&self) -> bool {
        self.settings.is_asynchronous && !self.has_failed.load(Ordering::Relaxed) || self.write()
    }

    /// Makes all entries durable. Returns whether they are.
    pub(crate) fn sync(&self) -> bool {
        if !self.write() {
            return false;
        }
        // Event loops wait for the lock of the files, so it is not held during the sync.
        let unsynced = self.files.lock().unsynced();
        match unsynced.and_then(Unsynced::sync) {
            Ok(number) => {
                self.files.lock().note_synced(number);
                true
            }
            Err(error) => {
                tracing::error!("update log: {error}");
                false
            }
        }
    }

    /// Writes all entries so far to the file. Returns whether they are there.
    pub(crate) fn write(&self) -> bool {
        let wanted = self.appended.load(Ordering::SeqCst);
        if self.written.load(Ordering::SeqCst) >= wanted {
            return !self.has_failed.load(Ordering::Relaxed);
        }
        let mut files = self.files.lock();
        // Another writer may have written the entries meanwhile.
        if self.written.load(Ordering::SeqCst) >= wanted {
            return true;
        }
        let mut buffer = self.buffer.lock();
        let mut entries = std::mem::take(&mut buffer.entries);
        let mut count = std::mem::take(&mut buffer.count);
        let timestamp_us = buffer.last_entry_us;
        let lines = std::mem::take(&mut buffer.lines.bytes);
        if let Some(intent_log) = &mut buffer.intent_log {
            intent_log.forget(self.written.load(Ordering::SeqCst));
        }
        drop(buffer);
        let before = entries.len();
        let result = self.write_lines(&lines);
        if result.is_err() {
            self.buffer.lock().lines.bytes.splice(..0, lines);
        }
        let result = result.and_then(|()| files.write(&mut entries));
        let written = (before - entries.len()) as u64;
        let is_whole = entries.is_empty();
        if !is_whole {
            // Entries that could not be written precede those appended meanwhile.
            let left = count_entries(&entries);
            count -= left;
            let mut buffer = self.buffer.lock();
            entries.append(&mut buffer.entries);
            buffer.entries = entries;
            buffer.count += left;
        }
        {
            let mut tail = self.tail.lock();
            tail.end = files.end();
            tail.entries += count;
            tail.bytes += written;
            if is_whole {
                tail.timestamp_us = timestamp_us;
            }
        }
        // Updated last: other writers take `written` as the end that readers may read.
        self.written.fetch_add(written, Ordering::SeqCst);
        drop(files);
        self.grown.notify_all();
        match result {
            Ok(()) => self.clear_failure(),
            Err(error) => drop(self.fail(&error)),
        }
        !self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns the number of writes of root lines so far. The lines of entries before an
    /// [`end`](Self::end) that was read earlier are in files.
    pub(crate) fn root_writes(&self) -> u64 {
        self.root_writes.load(Ordering::SeqCst)
    }

    /// Returns the offset up to which readers may read.
    pub(crate) fn end(&self) -> LogOffset {
        self.tail().end
    }

    /// Returns the end of the entries in the files.
    pub(crate) fn tail(&self) -> Tail {
        *self.tail.lock()
    }

    /// Blocks until there are entries after `seen`, or for `wait_max`. Returns whether there are.
    pub(crate) fn wait_beyond(&self, seen: LogOffset, wait_max: Duration) -> bool {
        let mut tail = self.tail.lock();
        if tail.end == seen {
            self.grown.wait_for(&mut tail, wait_max);
        }
        tail.end != seen
    }

    /// Wakes all threads that wait for entries.
    pub(crate) fn wake(&self) {
        // A thread that is about to wait holds this lock.
        drop(self.tail.lock());
        self.grown.notify_all();
    }

    /// Runs the log's own thread: writes entries that no client waits for, repeats failed writes,
    /// and removes old files. `resolve` is called with the changes that a killed process left
    /// pending, if they could not be logged at opening. `each` is called in each round with its
    /// number.
    pub(crate) fn maintain(
        &self,
        is_stopping: impl Fn() -> bool,
        resolve: impl Fn(&[Unfinished]),
        each: impl Fn(u32),
    ) {
        let mut tick: u32 = 0;
        while !is_stopping() {
            std::thread::sleep(TICK);
            self.resume(&resolve);
            each(tick);
            self.write();
            self.prepare_intent_log();
            if tick.is_multiple_of(TICKS_OF_RETENTION)
                && let Err(error) = self
                    .retention
                    .remove_old_files(&self.settings.folder, self.end().file)
                    .and_then(|()| self.remove_old_roots())
            {
                tracing::error!("update log: {error}");
            }
            tick = tick.wrapping_add(1);
        }
    }

    /// Writes the remaining entries, after the last change. If all of them are durable, the intent
    /// log is removed: a log without it is whole.
    pub(crate) fn close(&self) {
        if !self.sync() {
            return;
        }
        let mut buffer = self.buffer.lock();
        let written = self.written.load(Ordering::SeqCst);
        let is_whole = self.appended.load(Ordering::SeqCst) == written;
        if let Some(intent_log) = &mut buffer.intent_log
            && is_whole
        {
            intent_log.forget(written);
            if !intent_log.has_unfinished()
                && let Some(intent_log) = buffer.intent_log.take()
            {
                intent_log.remove();
            }
        }
    }
}

fn count_entries(mut entries: &[u8]) -> u64 {
    let mut count = 0;
    while let wire::Parse::Complete(_, length) = Entry::parse(entries) {
        entries = &entries[length..];
        count += 1;
    }
    count
}

/// Returns whether the log in a folder begins with an entry of another server, and the time stamp
/// of the first own entry, 0 without any.
fn first_own(folder: &Path) -> Result<(bool, u64)> {
    let mut is_first_foreign = false;
    if let Some(&file) = files::numbers(folder)?.first() {
        let mut reader = Reader::open_at(folder, LogOffset { file, offset: 0 }, 0)?;
        while let Some(entry) = reader.next(None)? {
            if entry.master == 0 {
                return Ok((is_first_foreign, entry.timestamp_us));
            }
            is_first_foreign = true;
        }
    }
    Ok((is_first_foreign, 0))
}

/// Returns whether a server with a database on a disk has closed the log in a folder.
fn was_closed(folder: &Path) -> Result<bool> {
    // The identity is made by servers only.
    if identity::present_identity(folder)?.is_none() {
        return Ok(false);
    }
    let is_open = intent_log::is_present(folder).map_err(|source| Error::Io {
        operation: "read",
        path: folder.to_owned(),
        source,
    })?;
    Ok(!is_open)
}

/// Returns the end of the log in a folder, also while it is written, without an incomplete entry
/// that a crash has left. That of a damaged log is after the damage.
pub(crate) fn end_of(folder: &Path) -> Result<LogOffset> {
    let Some(file) = files::numbers(folder)?.pop() else { return Ok(LogOffset::default()) };
    let offset = Scan::of(&files::path(folder, file))?.end();
    Ok(LogOffset { file, offset })
}

impl UpdateLog {
    /// Makes the next part of the intent log in advance.
    fn prepare_intent_log(&self) {
        let number = self.buffer.lock().intent_log.as_mut().and_then(IntentLog::next_spare_number);
        let Some(number) = number else { return };
        // After an error the part is made when it is needed, and the error is reported then.
        if let Ok(spare) = Spare::create(&self.settings.folder, number)
            && let Some(intent_log) = &mut self.buffer.lock().intent_log
        {
            intent_log.add_spare(spare);
            // If an entry waits, writing it tells whether that is possible again.
            let written = self.written.load(Ordering::SeqCst);
            if written >= self.appended.load(Ordering::SeqCst) {
                self.clear_failure();
            }
        }
    }
}
