//! Named locks of scripts: `_lock` and `_unlock`.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The names that are locked.
#[derive(Default)]
pub(crate) struct NamedLocks {
    /// Names, and by whom they are locked.
    locked: Mutex<HashMap<Vec<u8>, u64>>,
    released: Condvar,
    owners: AtomicU64,
}

impl NamedLocks {
    /// Returns a number for an owner that no other has.
    pub(crate) fn new_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks a name, as soon as it is not locked. Returns whether it did so within `timeout`.
    pub(crate) fn lock(&self, name: &[u8], owner: u64, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut locked = self.locked.lock();
        while locked.contains_key(name) {
            if self.released.wait_until(&mut locked, deadline).timed_out() {
                return false;
            }
        }
        locked.insert(name.to_vec(), owner);
        true
    }

    /// Releases a name, even if another owner has locked it. Returns whether it was locked.
    pub(crate) fn unlock(&self, name: &[u8]) -> bool {
        self.unlock_if(name, |_| true)
    }

    /// Releases a name if it is locked by `owner`: another may have released it, and a third one
    /// have locked it.
    pub(crate) fn release(&self, name: &[u8], owner: u64) {
        self.unlock_if(name, |locked_by| locked_by == owner);
    }

    fn unlock_if(&self, name: &[u8], is_meant: impl FnOnce(u64) -> bool) -> bool {
        let mut locked = self.locked.lock();
        let was_locked = locked.get(name).copied().is_some_and(is_meant);
        if was_locked {
            locked.remove(name);
            self.released.notify_all();
        }
        was_locked
    }
}
