//! Named locks of scripts: `_lock` and `_unlock`.

use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The names that are locked.
#[derive(Default)]
pub(crate) struct NamedLocks {
    locked: Mutex<HashSet<Vec<u8>>>,
    released: Condvar,
}

impl NamedLocks {
    /// Locks a name, as soon as it is not locked. Returns whether it did so within `timeout`.
    pub(crate) fn lock(&self, name: &[u8], timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut locked = self.locked.lock();
        while locked.contains(name) {
            if self.released.wait_until(&mut locked, deadline).timed_out() {
                return false;
            }
        }
        locked.insert(name.to_vec())
    }

    /// Releases a name. Returns whether it was locked.
    pub(crate) fn unlock(&self, name: &[u8]) -> bool {
        let was_locked = self.locked.lock().remove(name);
        if was_locked {
            self.released.notify_all();
        }
        was_locked
    }
}
