//! Changes of large values, which hold locks while the values are copied.
//!
//! A thread that may wait waits for the lock. One that must not (an event loop of the server)
//! checks [`Pressure::LARGE_CHANGE`] before it takes a lock, and passes its operation to a thread
//! that may wait. So a change announces itself, and then pauses for threads that were about to take
//! a lock.

use super::{Pressure, Space};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Minimum size of a large record, in bytes.
pub(crate) const LARGE_CHANGE_BYTES: usize = 8 << 20;

/// Pause for threads that were about to take a lock: short compared with the change.
const ANNOUNCEMENT: Duration = Duration::from_millis(2);

/// A large change that is under way.
pub(crate) struct LargeChange<'s>(&'s Space);

impl Drop for LargeChange<'_> {
    fn drop(&mut self) {
        let mut count = self.0.large_changes.lock();
        *count -= 1;
        if *count == 0 {
            self.0.lower(Pressure::LARGE_CHANGE);
        }
    }
}

impl Space {
    /// Begins a change of `bytes` bytes. Returns `None` if it is not a large one.
    #[inline]
    pub(crate) fn begin_large_change(&self, bytes: usize) -> Option<LargeChange<'_>> {
        (bytes >= LARGE_CHANGE_BYTES).then(|| self.announce_large_change())
    }

    #[cold]
    fn announce_large_change(&self) -> LargeChange<'_> {
        let mut count = self.large_changes.lock();
        *count += 1;
        let is_first = *count == 1;
        self.pressure.fetch_or(Pressure::LARGE_CHANGE, Ordering::SeqCst);
        drop(count);
        if is_first {
            std::thread::sleep(ANNOUNCEMENT);
        }
        LargeChange(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::FaultyStorage;
    use crate::{Engine, HashDatabase, Meta, Options, Wait};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn large_records_come_back_byte_for_byte() {
        let storage = Arc::new(FaultyStorage::new());
        let options = Options::default();
        let open = || {
            let storage = Arc::clone(&storage);
            HashDatabase::open_on(storage, Path::new("casket.tch"), &options, false).unwrap()
        };
        let value: Vec<u8> = (0..LARGE_CHANGE_BYTES + 12345).map(|at| (at / 7) as u8).collect();
        let database = open();
        database.put(b"key", &value, Meta::NONE, Wait::Block).unwrap();
        database.put(b"next", b"one", Meta::NONE, Wait::Never).unwrap();
        drop(database);
        let database = open();
        for (key, value) in [(&b"key"[..], &value[..]), (b"next", b"one")] {
            let mut is_same = false;
            database.read(key, Wait::Block, &mut |entry| is_same = entry.value == value).unwrap();
            assert!(is_same);
        }
    }
}
