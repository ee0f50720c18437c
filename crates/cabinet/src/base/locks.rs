//! Record locks, for threads that may wait and for those that must not.
//!
//! Some threads hold such a lock while they wait for the disk, copy a large value, or visit many
//! records. A thread that must not wait, such as an event loop of the server, tries for a moment
//! ([`Wait::Never`]), then passes its operation to one that may. So long lock holders do not block
//! event loops.
//!
//! # Locks that an operation on one record takes
//!
//! | lock | other holders that take long | with `Wait::Never` |
//! |---|---|---|
//! | shard of a hash or fixed-length database | batches (reads), a large value, compaction (reads),
//! clearing, a record that damage may hide | tried |
//! | leaf of a tree | the same, eviction (writes), checkpoints (read and write), the cap on records
//! | tried |
//! | shard of `*`, tree of `+` | batches, a copy to a file, clearing, `retune`, a large value |
//! tried |
//! | directory of a tree | none: changed in memory alone | waited for |
//! | queue of the pages in memory | none | waited for |
//! | pages of a fixed-length database | none: changed in memory alone | waited for |
//! | end of the log, and an append block | a large value, which announces itself; a thread that begins
//! a segment (creates and allocates a file) | refused while a large value is written, else waited
//! for |
//! | `structure` of the log | a thread that begins or removes a segment | taken by an append that
//! begins a segment, and waited for |
//!
//! The last two rows are the exceptions: an append of an event loop may itself have to begin a
//! segment, and waits for another thread that does. The background allocates ahead, so that is
//! rare. The key locks of the server are tried in the same way (`update_log/key_locks.rs` there).

use crate::{Error, Result, Wait};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Time for which a thread that must not wait tries: longer than a short change holds a lock.
const MOMENT: Duration = Duration::from_micros(50);

/// Locks for reading. With [`Wait::Never`], fails with [`Error::WouldBlock`] instead of waiting
/// long.
#[inline]
pub(crate) fn read<T>(lock: &RwLock<T>, wait: Wait) -> Result<RwLockReadGuard<'_, T>> {
    match lock.try_read() {
        Some(locked) => Ok(locked),
        None if wait == Wait::Block => Ok(lock.read()),
        None => lock.try_read_for(MOMENT).ok_or(Error::WouldBlock),
    }
}

/// Like [`read`], for writing.
#[inline]
pub(crate) fn write<T>(lock: &RwLock<T>, wait: Wait) -> Result<RwLockWriteGuard<'_, T>> {
    match lock.try_write() {
        Some(locked) => Ok(locked),
        None if wait == Wait::Block => Ok(lock.write()),
        None => lock.try_write_for(MOMENT).ok_or(Error::WouldBlock),
    }
}

/// Returns the result of `act`, which must not wait.
#[cfg(test)]
pub(crate) fn at_once<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(act()));
    result.recv_timeout(Duration::from_secs(120)).expect("it does not wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_must_not_wait_is_refused_and_others_wait() {
        let lock = RwLock::new(());
        let reader = read(&lock, Wait::Never).unwrap();
        assert!(read(&lock, Wait::Never).is_ok());
        assert!(matches!(write(&lock, Wait::Never), Err(Error::WouldBlock)));
        drop(reader);
        std::thread::scope(|scope| {
            let writer = write(&lock, Wait::Never).unwrap();
            assert!(matches!(read(&lock, Wait::Never), Err(Error::WouldBlock)));
            let waiting = [
                scope.spawn(|| read(&lock, Wait::Block).is_ok()),
                scope.spawn(|| write(&lock, Wait::Block).is_ok()),
            ];
            drop(writer);
            assert!(waiting.into_iter().all(|waiting| waiting.join().expect("a thread")));
        });
    }
}
