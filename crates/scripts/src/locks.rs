//! Named locks of scripts: `_lock` and `_unlock`.

use crate::limits::LOCKED_NAMES_MAX;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The names that are locked.
#[derive(Default)]
pub(crate) struct NamedLocks {
    locked: Mutex<HashMap<Vec<u8>, Holder>>,
    released: Condvar,
    owners: AtomicU64,
}

/// By whom a name is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// A call that has not ended, of this owner.
    Call(u64),
    /// A call that has ended; until this time.
    Ended(Instant),
}

/// Outcome of an attempt to lock a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    Locked,
    /// Another holds the lock.
    Late,
    /// As many names are locked as can be.
    TooMany,
}

impl Holder {
    fn has_expired(self) -> bool {
        matches!(self, Self::Ended(until) if until <= Instant::now())
    }
}

impl NamedLocks {
    /// Returns a number for an owner that no other has.
    pub(crate) fn new_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks a name, as soon as it is not locked. Waits for `timeout` at most.
    pub(crate) fn lock(&self, name: &[u8], owner: u64, timeout: Duration) -> Locking {
        let deadline = Instant::now() + timeout;
        let mut locked = self.locked.lock();
        while let Some(holder) = locked.get(name).copied().filter(|holder| !holder.has_expired()) {
            let until = match holder {
                Holder::Ended(until) => deadline.min(until),
                Holder::Call(_) => deadline,
            };
            self.released.wait_until(&mut locked, until);
            if Instant::now() >= deadline {
                return Locking::Late;
            }
        }
        if locked.len() >= LOCKED_NAMES_MAX {
            release_oldest(&mut locked);
            self.released.notify_all();
            if locked.len() >= LOCKED_NAMES_MAX {
                return Locking::TooMany;
            }
        }
        locked.insert(name.to_vec(), Holder::Call(owner));
        Locking::Locked
    }

    /// Releases a name, whoever has locked it. Returns whether it was locked.
    pub(crate) fn unlock(&self, name: &[u8]) -> bool {
        let holder = self.locked.lock().remove(name);
        self.released.notify_all();
        holder.is_some_and(|holder| !holder.has_expired())
    }

    /// Ends a call: a name that it has locked is released, or stays locked for `time`, unless
    /// another call has released it meanwhile.
    pub(crate) fn end_call(&self, name: &[u8], owner: u64, time: Option<Duration>) {
        let mut locked = self.locked.lock();
        let Some(holder) = locked.get_mut(name).filter(|holder| **holder == Holder::Call(owner))
        else {
            return;
        };
        match time {
            Some(time) => *holder = Holder::Ended(Instant::now() + time),
            None => drop(locked.remove(name)),
        }
        self.released.notify_all();
    }
}

/// Releases the quarter of the names of ended calls whose time is over first: calls that run need
/// places.
fn release_oldest(locked: &mut HashMap<Vec<u8>, Holder>) {
    let until = |holder: &Holder| match holder {
        Holder::Ended(until) => Some(*until),
        Holder::Call(_) => None,
    };
    let mut times: Vec<Instant> = locked.values().filter_map(until).collect();
    times.sort_unstable();
    if let Some(last) = times.get(times.len() / 4) {
        locked.retain(|_, holder| until(holder).is_none_or(|until| until > *last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_locked_for_a_time_and_their_number_is_limited() {
        let locks = NamedLocks::default();
        let (first, second) = (locks.new_owner(), locks.new_owner());
        let now = Duration::ZERO;
        assert_eq!(locks.lock(b"a", first, now), Locking::Locked);
        locks.end_call(b"a", first, Some(Duration::from_secs(3600)));
        assert_eq!(locks.lock(b"a", second, now), Locking::Late);
        // Its owner has no call that could end.
        locks.end_call(b"a", first, None);
        assert!(locks.unlock(b"a") && !locks.unlock(b"a"));
        assert_eq!(locks.lock(b"a", first, now), Locking::Locked);
        locks.end_call(b"a", first, Some(Duration::from_millis(1)));
        // Waits until the time is over.
        assert_eq!(locks.lock(b"a", second, Duration::from_secs(3600)), Locking::Locked);
        for number in 1..LOCKED_NAMES_MAX {
            assert_eq!(locks.lock(&number.to_le_bytes(), first, now), Locking::Locked);
        }
        assert_eq!(locks.lock(b"b", first, now), Locking::TooMany);
        // Names of ended calls make room, those that are the nearest to their end first.
        for number in 1..9_usize {
            let time = Duration::from_secs(3600 * number as u64);
            locks.end_call(&number.to_le_bytes(), first, Some(time));
        }
        assert_eq!(locks.lock(b"b", first, now), Locking::Locked);
        let held = (1..9_usize).filter(|number| locks.unlock(&number.to_le_bytes()));
        assert_eq!(held.collect::<Vec<_>>(), [4, 5, 6, 7, 8]);
    }
}
