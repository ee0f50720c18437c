//! Syncs: makes entries durable. Over a database with durability `always`, clients wait for that,
//! and replicas get no entry before. A thread syncs the entries of all clients at once, while the
//! database syncs their changes.

use super::files::Unsynced;
use super::{Error, Result, Tail, UpdateLog};
use cabinet::files::sync_folder;
use parking_lot::{Condvar, Mutex};
use std::fs::{File, remove_file};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Name of the file that is in the folder while each entry is synced before it is acknowledged.
const MARK: &str = "synced";

/// State of the syncs of a log.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// Whether clients and replicas wait for syncs.
    are_awaited: bool,
    /// Number of bytes appended since opening that are durable.
    synced: AtomicU64,
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
    /// Begins the syncs of the log in a folder. `are_awaited` tells whether clients wait for them.
    /// Returns also whether they did when the log was open before.
    pub(super) fn open(folder: &Path, are_awaited: bool) -> Result<(Self, bool)> {
        let path = folder.join(MARK);
        let were_awaited = path.exists();
        let changed = match (were_awaited, are_awaited) {
            (false, true) => File::create(&path).map(drop),
            (true, false) => remove_file(&path),
            _ => Ok(()),
        };
        match changed.and_then(|()| sync_folder(folder)) {
            // Without the mark a start after a loss of power warns although nothing is lost.
            Err(error) if are_awaited => {
                tracing::warn!("update log: cannot create {}: {error}", path.display());
            }
            Err(source) => {
                return Err(Error::Io { operation: "remove", path, source });
            }
            Ok(()) => {}
        }
        Ok((Self { are_awaited, ..Self::default() }, were_awaited))
    }

    pub(super) fn are_awaited(&self) -> bool {
        self.are_awaited
    }

    /// Has the thread make this number of bytes durable, if clients wait for that.
    pub(super) fn ask(&self, bytes: u64) {
        if self.are_awaited {
            self.asked.lock().bytes = bytes;
            self.changed.notify_all();
        }
    }
}

impl UpdateLog {
    /// Returns whether clients and replicas wait for syncs.
    pub(crate) fn awaits_syncs(&self) -> bool {
        self.syncs.are_awaited
    }

    /// Returns the number of bytes that must be durable before the latest change is acknowledged, 0
    /// if clients do not wait for that.
    #[inline]
    pub(crate) fn sync_point(&self) -> u64 {
        if self.syncs.are_awaited { self.appended.load(Ordering::SeqCst) } else { 0 }
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

    /// Blocks until the entries up to a [`sync_point`](Self::sync_point), which are in the file,
    /// are durable. Fails if they cannot be.
    pub(crate) fn wait_synced(&self, point: u64) -> cabinet::Result<()> {
        if self.is_synced(point) || self.sync_beyond(point) {
            return Ok(());
        }
        self.check_failure()?;
        Err(cabinet::Error::Poisoned("update log: entries may be lost".to_owned()))
    }

    /// Makes all entries durable. Returns whether they are.
    pub(crate) fn sync(&self) -> bool {
        self.write() && self.sync_beyond(self.written.load(Ordering::SeqCst))
    }

    /// Runs the thread that makes entries durable while clients wait, until
    /// [`end_syncs`](Self::end_syncs). `tell` is called after each sync.
    pub(crate) fn run_syncs(&self, tell: impl Fn()) {
        loop {
            let point = {
                let mut asked = self.syncs.asked.lock();
                while !asked.has_ended && (self.is_synced(asked.bytes) || self.has_lost_entries()) {
                    self.syncs.changed.wait(&mut asked);
                }
                if asked.has_ended {
                    return;
                }
                asked.bytes
            };
            self.sync_beyond(point);
            tell();
        }
    }

    /// Ends the thread of [`run_syncs`](Self::run_syncs).
    pub(crate) fn end_syncs(&self) {
        self.syncs.asked.lock().has_ended = true;
        self.syncs.changed.notify_all();
    }

    /// Makes the entries in the files durable, unless those up to `point` are. Returns whether they
    /// are.
    fn sync_beyond(&self, point: u64) -> bool {
        let _turn = self.syncs.turn.lock();
        if self.is_synced(point) && self.syncs.are_awaited {
            return true;
        }
        if self.has_lost_entries() {
            return false;
        }
        // Event loops wait for the lock of the files, so it is not held during the sync.
        let (unsynced, bytes, tail) = {
            let files = self.files.lock();
            (files.unsynced(), self.written.load(Ordering::SeqCst), self.tails.lock().written)
        };
        match unsynced.and_then(Unsynced::sync) {
            Ok(number) => {
                self.files.lock().note_synced(number);
                self.syncs.synced.fetch_max(bytes, Ordering::SeqCst);
                if self.syncs.are_awaited {
                    self.show(tail);
                }
                true
            }
            Err(error) => {
                if self.syncs.are_awaited {
                    // The system has dropped what it could not write: another sync would succeed.
                    self.syncs.have_failed.store(true, Ordering::SeqCst);
                    self.fail(&Error::Unsynced(Box::new(error)));
                } else {
                    tracing::error!("update log: {error}");
                }
                false
            }
        }
    }

    /// Lets readers read up to this end.
    fn show(&self, tail: Tail) {
        let mut tails = self.tails.lock();
        if tail.end >= tails.readable.end {
            tails.readable = tail;
        }
        drop(tails);
        self.grown.notify_all();
    }
}
