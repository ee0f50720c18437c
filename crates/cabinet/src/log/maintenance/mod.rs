//! Maintenance: the work that a log does in the background, and occasionally for its users.
//!
//! [`background`] holds the threads. They finish sealed segments, have the engine [`sweep`] and
//! write [checkpoints](checkpoint), and reclaim space, see [`super::space`].

mod background;
mod checkpoint;
mod sealed;
mod signals;
mod snapshot;
mod sweep;
mod verify;

pub(crate) use background::{Background, Maintained};
pub(super) use signals::Signals;

use super::segments::Faults;
use crate::LogPosition;
use crate::base::sync::{Mutex, MutexGuard};
use checkpoint::LastCheckpoint;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The maintenance of a log. See the module.
pub(crate) struct Maintenance {
    /// Held while segments are removed, or must not be.
    lock: Mutex<()>,
    checkpoints: LastCheckpoint,
    /// Damage of the index, if the index is stored in runs on the disk.
    index_faults: Arc<Faults>,
    signals: Arc<Signals>,
}

impl Maintenance {
    /// Creates the maintenance of a log whose last checkpoint was begun at position `checkpointed`,
    /// in segment `number`.
    pub(super) fn new(
        checkpointed: LogPosition,
        number: u64,
        index_faults: Arc<Faults>,
        signals: Arc<Signals>,
    ) -> Self {
        let checkpoints = LastCheckpoint::new(checkpointed, number);
        Self { lock: Mutex::default(), checkpoints, index_faults, signals }
    }

    /// Prevents maintenance from running until the guard is dropped. Locked before the locks of an
    /// index.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    /// Like `pause`, but returns `None` while maintenance is running.
    #[cfg(test)]
    pub(crate) fn try_pause(&self) -> Option<MutexGuard<'_, ()>> {
        self.lock.try_lock()
    }

    /// Returns the damage that reads of the index on the disk have met.
    pub(crate) fn index_faults(&self) -> &Arc<Faults> {
        &self.index_faults
    }

    /// Returns whether a verification has found the checkpoint to be damaged.
    pub(crate) fn suspects_checkpoint(&self) -> bool {
        self.checkpoints.is_suspected.load(Ordering::Relaxed)
    }

    /// Records whether users of the checkpoint must check it.
    pub(crate) fn suspect_checkpoint(&self, is_suspected: bool) {
        self.checkpoints.is_suspected.store(is_suspected, Ordering::Relaxed);
    }

    /// Returns whether the background threads are being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.signals.stopping()
    }

    /// Wakes the background to look for work.
    pub(crate) fn wake(&self) {
        self.signals.wake();
    }

    pub(super) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Returns the stats as names and values.
    pub(super) fn report(&self) -> [(&'static str, String); 2] {
        let written = &self.checkpoints.written;
        [
            ("checkpoints", written.count().to_string()),
            ("checkpoint_us", written.total_us().to_string()),
        ]
    }
}
