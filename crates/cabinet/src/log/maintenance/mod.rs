//! Maintenance: what a log does beside its callers, and for its users now and then.
//!
//! [`background`] has the threads. They finish sealed segments, have the engine [`sweep`] and write
//! [checkpoints](checkpoint), and give space back, see [`super::space`].

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
use crate::sync::{Mutex, MutexGuard};
use checkpoint::LastCheckpoint;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module.
pub(crate) struct Maintenance {
    /// Held by whatever takes segments out, or relies on none being taken out.
    lock: Mutex<()>,
    checkpoints: LastCheckpoint,
    /// Damage of the index, where that is in runs.
    index_faults: Arc<Faults>,
    signals: Arc<Signals>,
}

impl Maintenance {
    /// The last checkpoint of the log was begun at this position, in this segment.
    pub(super) fn new(
        checkpointed: LogPosition,
        number: u64,
        index_faults: Arc<Faults>,
        signals: Arc<Signals>,
    ) -> Self {
        let checkpoints = LastCheckpoint::new(checkpointed, number);
        Self { lock: Mutex::default(), checkpoints, index_faults, signals }
    }

    /// Keeps maintenance from running until the guard is dropped. It is taken before the locks of
    /// an index.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    /// As `pause`, unless it is under way.
    #[cfg(test)]
    pub(crate) fn try_pause(&self) -> Option<MutexGuard<'_, ()>> {
        self.lock.try_lock()
    }

    /// Reads of the index on the disk that have met damage.
    pub(crate) fn index_faults(&self) -> &Arc<Faults> {
        &self.index_faults
    }

    /// Whether a verification has found the checkpoint to be damaged.
    pub(crate) fn suspects_checkpoint(&self) -> bool {
        self.checkpoints.is_suspected.load(Ordering::Relaxed)
    }

    /// Notes whether the checkpoint is to be looked at by those who use it.
    pub(crate) fn suspect_checkpoint(&self, is_suspected: bool) {
        self.checkpoints.is_suspected.store(is_suspected, Ordering::Relaxed);
    }

    /// Whether the background threads are being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.signals.stopping()
    }

    /// Has the background look for work now.
    pub(crate) fn wake(&self) {
        self.signals.wake();
    }

    pub(super) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The stats: names and values.
    pub(super) fn report(&self) -> [(&'static str, String); 2] {
        let written = &self.checkpoints.written;
        [
            ("checkpoints", written.count().to_string()),
            ("checkpoint_us", written.total_us().to_string()),
        ]
    }
}
