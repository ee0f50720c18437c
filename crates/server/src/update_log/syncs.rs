//! Syncs: makes entries durable. Over a database with durability `always`, clients wait for that,
//! and replicas get no entry before. A thread syncs the entries of all clients at once, while the
//! database syncs their changes.

use super::files::Unsynced;
use super::{Error, Result, UpdateLog};
use cabinet::files::sync_folder;
use parking_lot::{Condvar, Mutex};
use std::fs::{File, remove_file};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Name of the file that is in the folder while each entry is synced before it is acknowledged.
const MARK: &str = "synced-before-reply";

/// Pause after a sync that could not begin, as without a free descriptor.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// State of the syncs of a log.
#[derive(Debug)]
pub(super) struct Syncs {
    /// Whether clients and replicas wait for syncs.
    are_awaited: bool,
    /// Number of bytes written since opening that are durable.
    synced: AtomicU64,
    /// Whether everything else in the files is durable, such as what a recovery has written.
    is_begun: AtomicBool,
    /// Whether a sync has failed, so that entries may be lost.
    have_failed: AtomicBool,
    /// Held during a sync, for which the others wait.
    turn: Mutex<()>,
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// Number of bytes that are to be durable.
    bytes: u64,
    has_ended: bool,
}

impl Syncs {
    /// Returns the syncs of a log. `are_awaited` tells whether clients wait for them, and `is_begun`
    /// whether the files are durable as they are.
    pub(super) fn new(are_awaited: bool, is_begun: bool) -> Self {
        Self {
            are_awaited,
            synced: AtomicU64::new(0),
            is_begun: AtomicBool::new(is_begun),
            have_failed: AtomicBool::new(false),
            turn: Mutex::default(),
            asked: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn are_awaited(&self) -> bool {
        self.are_awaited
    }

    /// Notes that the files have got bytes that were not appended.
    pub(super) fn begin_again(&self) {
        self.is_begun.store(false, Ordering::SeqCst);
    }

    /// Has the thread make this number of bytes durable, if clients wait for that.
    pub(super) fn ask(&self, bytes: u64) {
        if self.are_awaited {
            let mut asked = self.asked.lock();
            // Other writers may have asked for more meanwhile.
            asked.bytes = asked.bytes.max(bytes);
            drop(asked);
            self.changed.notify_all();
        }
    }

    /// Wakes the thread.
    fn tell(&self) {
        // It may be about to wait, which it does under this lock.
        drop(self.asked.lock());
        self.changed.notify_all();
    }

    /// Returns the number of bytes that are durable, and whether entries may be lost.
    fn state(&self) -> (u64, bool) {
        (self.synced.load(Ordering::SeqCst), self.have_failed.load(Ordering::SeqCst))
    }
}

fn mark_in(folder: &Path) -> PathBuf {
    folder.join(MARK)
}

/// Returns whether each entry of the log in a folder was synced before it was acknowledged.
pub(super) fn are_marked(folder: &Path) -> bool {
    mark_in(folder).exists()
}

/// Notes that entries are synced before they are acknowledged from now on. Those so far are. Without
/// the mark the next start after a loss of power warns although nothing is lost.
pub(super) fn mark(folder: &Path) {
    let path = mark_in(folder);
    let marked = File::create(&path).and_then(|_| sync_folder(folder));
    if let Err(error) = marked {
        tracing::warn!("update log: cannot create {}: {error}", path.display());
    }
}

/// Notes that entries are not synced any more before they are acknowledged.
pub(super) fn unmark(folder: &Path) -> Result<()> {
    let path = mark_in(folder);
    let unmarked = remove_file(&path).and_then(|()| sync_folder(folder));
    unmarked.map_err(|source| Error::Io { operation: "remove", path, source })
}

impl UpdateLog {
    /// Returns whether clients and replicas wait for syncs.
    pub(crate) fn awaits_syncs(&self) -> bool {
        self.syncs.are_awaited
    }

    /// Returns the number of bytes that must be durable before a change is acknowledged that was
    /// written, 0 if clients do not wait for that.
    #[inline]
    pub(crate) fn sync_point(&self) -> u64 {
        if self.syncs.are_awaited { self.written.load(Ordering::SeqCst) } else { 0 }
    }

    /// Returns whether the entries up to a [`sync_point`](Self::sync_point) are durable.
    #[inline]
    pub(crate) fn is_synced(&self, point: u64) -> bool {
        self.syncs.synced.load(Ordering::SeqCst) >= point
    }

    /// Returns whether entries that clients wait for can no longer become durable.
    pub(crate) fn has_lost_entries(&self) -> bool {
        self.syncs.have_failed.load(Ordering::SeqCst)
    }

    /// Blocks until the entries up to a [`sync_point`](Self::sync_point) are durable. Fails if they
    /// cannot be.
    pub(crate) fn wait_synced(&self, point: u64) -> cabinet::Result<()> {
        if self.is_synced(point) || self.sync_beyond(point) {
            return Ok(());
        }
        self.check_failure()?;
        Err(cabinet::Error::Poisoned("update log: cannot be synced".to_owned()))
    }

    /// Makes all entries durable. Returns whether they are.
    pub(crate) fn sync(&self) -> bool {
        self.write() && self.sync_beyond(self.written.load(Ordering::SeqCst))
    }

    /// Lets readers read all entries so far: writes them, and makes them durable if replicas get
    /// none before. Returns whether they are there.
    pub(crate) fn write_for_readers(&self) -> bool {
        if self.syncs.are_awaited { self.sync() } else { self.write() }
    }

    /// Runs the thread that makes entries durable while clients wait, until
    /// [`end_syncs`](Self::end_syncs). `tell` is called after each sync, also of other threads.
    pub(crate) fn run_syncs(&self, tell: impl Fn()) {
        let mut told = self.syncs.state();
        loop {
            let wanted = {
                let mut asked = self.syncs.asked.lock();
                loop {
                    let (synced, has_failed) = self.syncs.state();
                    if asked.has_ended {
                        return;
                    }
                    let is_wanted = asked.bytes > synced && !has_failed;
                    if is_wanted || told != (synced, has_failed) {
                        break is_wanted.then_some(asked.bytes);
                    }
                    self.syncs.changed.wait(&mut asked);
                }
            };
            if let Some(point) = wanted
                && !self.sync_beyond(point)
                && !self.has_lost_entries()
            {
                std::thread::sleep(RETRY_PAUSE);
            }
            told = self.syncs.state();
            tell();
        }
    }

    /// Ends the thread of [`run_syncs`](Self::run_syncs).
    pub(crate) fn end_syncs(&self) {
        self.syncs.asked.lock().has_ended = true;
        self.syncs.changed.notify_all();
    }

    /// Makes the entries in the files durable, unless those up to `point` are. Returns whether they
    /// are. Readers may read them then.
    pub(super) fn sync_beyond(&self, point: u64) -> bool {
        let _turn = self.syncs.turn.lock();
        if self.has_lost_entries() {
            return false;
        }
        if self.is_synced(point) && self.syncs.is_begun.load(Ordering::SeqCst) {
            return true;
        }
        // Event loops wait for the lock of the files, so it is not held during the sync.
        let (unsynced, bytes, tail) = {
            let files = self.files.lock();
            self.syncs.is_begun.store(true, Ordering::SeqCst);
            (files.unsynced(), self.written.load(Ordering::SeqCst), self.tails.lock().written)
        };
        match Unsynced::sync(unsynced) {
            Ok(number) => {
                self.files.lock().note_synced(number);
                if self.syncs.are_awaited {
                    self.tails.lock().readable = tail;
                    self.grown.notify_all();
                }
                self.syncs.synced.fetch_max(bytes, Ordering::SeqCst);
                self.syncs.tell();
                true
            }
            Err(error) => {
                self.syncs.is_begun.store(false, Ordering::SeqCst);
                if self.syncs.are_awaited && !is_passing(&error) {
                    self.lose_entries(error);
                } else {
                    tracing::error!("update log: {error}");
                }
                false
            }
        }
    }

    /// Refuses all changes from now on, after a sync has failed.
    pub(super) fn lose_entries(&self, error: Error) {
        // The system has dropped what it could not write: another sync would succeed.
        self.fail(&Error::Unsynced(Box::new(error)));
        self.syncs.have_failed.store(true, Ordering::SeqCst);
        self.syncs.tell();
    }
}

/// Returns whether an error means that a sync could not begin, and the next one may.
fn is_passing(error: &Error) -> bool {
    use rustix::io::Errno;
    let Error::Io { source, .. } = error else { return false };
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    source.kind() == io::ErrorKind::Interrupted
        || lacks.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
}
