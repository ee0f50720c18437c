//! Script locks: the records that locked script calls hold, for writes of memcached clients that
//! change the present value.
//!
//! As in Tokyo Tyrant, `replace`, `append`, `prepend`, `incr` and `decr` do not come between the
//! operations of a locked call on their key. A write enters its lock for the moment of its
//! execution. If a call holds the lock, the write waits in the queue of the script threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Number of locks that share all records.
pub(crate) const LOCKS: usize = 256;

/// Bit of a lock that a call holds. The other bits are the number of writes in progress.
const HELD: u32 = 1 << 31;

/// Number of looks at the writes in progress before the thread pauses between them: most writes
/// take a few microseconds, those that wait for the disk far longer.
const YIELDS: u32 = 100;
const PAUSE: Duration = Duration::from_micros(100);

/// Returns the lock of a record.
pub(crate) fn lock_of(key: &[u8]) -> usize {
    (xxh3_64(key) % LOCKS as u64) as usize
}

#[derive(Debug)]
pub(crate) struct ScriptLocks(Box<[AtomicU32]>);

impl Default for ScriptLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| AtomicU32::new(0)).collect())
    }
}

/// Guard of a write in progress.
#[derive(Debug)]
pub(crate) struct Entered<'l>(&'l AtomicU32);

/// Guard of the locks that a call holds.
#[derive(Debug)]
pub(crate) struct Held<'l>(&'l [AtomicU32]);

impl ScriptLocks {
    /// Begins a write under a lock. Returns `None` while a call holds it.
    pub(crate) fn enter(&self, lock: usize) -> Option<Entered<'_>> {
        let lock = &self.0[lock];
        if lock.fetch_add(1, Ordering::SeqCst) & HELD == 0 {
            return Some(Entered(lock));
        }
        lock.fetch_sub(1, Ordering::SeqCst);
        None
    }

    /// Holds a lock, or all. Blocks until the writes in progress have ended. No other call may hold
    /// any of these locks.
    pub(crate) fn hold(&self, lock: Option<usize>) -> Held<'_> {
        let locks = lock.map_or(&self.0[..], |lock| &self.0[lock..=lock]);
        for lock in locks {
            lock.fetch_or(HELD, Ordering::SeqCst);
        }
        for lock in locks {
            let mut looks = 0;
            while lock.load(Ordering::SeqCst) != HELD {
                looks += 1;
                if looks < YIELDS { thread::yield_now() } else { thread::sleep(PAUSE) }
            }
        }
        Held(locks)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for lock in self.0 {
            lock.fetch_and(!HELD, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_enters_unless_a_call_holds_its_lock() {
        let locks = ScriptLocks::default();
        drop((locks.enter(7).expect("no call"), locks.enter(7).expect("no call")));
        let held = locks.hold(Some(7));
        assert!(locks.enter(7).is_none());
        assert!(locks.enter(8).is_some());
        drop(held);
        assert!(locks.enter(7).is_some());
        let held = locks.hold(None);
        assert!((0..LOCKS).all(|lock| locks.enter(lock).is_none()));
        drop(held);
        assert!((0..LOCKS).all(|lock| locks.enter(lock).is_some()));
    }

    #[test]
    fn a_call_gets_its_lock_after_the_writes_in_progress() {
        let locks = ScriptLocks::default();
        let entered = locks.enter(7).expect("no call");
        let has_ended = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = locks.hold(Some(7));
                has_ended.load(Ordering::SeqCst)
            });
            while locks.enter(7).is_some() {
                thread::yield_now();
            }
            has_ended.store(true, Ordering::SeqCst);
            drop(entered);
            assert!(holder.join().expect("a thread"));
        });
    }

    #[test]
    fn a_record_has_the_same_lock_each_time() {
        assert_eq!(lock_of(b"key"), lock_of(b"key"));
        assert_ne!(lock_of(b"key"), lock_of(b"other"));
    }
}
