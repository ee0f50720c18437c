//! Key locks: changes of a record are logged in the order in which they are made.
//!
//! A writer holds the lock of its key from before the change until its entry is in the buffer of
//! the log. Writers of different keys wait for each other only if the keys share one of the
//! [`LOCKS`], and at the buffer.

use cabinet::{Database, KeyOrder};
use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Number of locks that share all keys.
const LOCKS: usize = 256;

/// Longest time for which a thread waits for a lock if it must not wait for the disk.
const LOCK_WAIT_MAX: Duration = Duration::from_micros(50);

/// Records that an operation changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope<'k> {
    /// The record under a key.
    Key(&'k [u8]),
    /// The records under several keys, whose changes are made and logged together.
    Several(&'k [&'k [u8]]),
    /// Any record.
    All,
    /// No record.
    Nothing,
}

impl<'k> Scope<'k> {
    /// Returns the key of the only record that the operation changes, if it is one.
    pub(crate) fn key(self) -> Option<&'k [u8]> {
        match self {
            Self::Key(key) => Some(key),
            Self::Several(_) | Self::All | Self::Nothing => None,
        }
    }

    /// Returns the keys that the operation names.
    pub(super) fn keys(&self) -> &[&'k [u8]] {
        match self {
            Self::Key(key) => std::slice::from_ref(key),
            Self::Several(keys) => keys,
            Self::All | Self::Nothing => &[],
        }
    }
}

/// Locks that an operation holds.
pub(super) enum Locks<'l> {
    None,
    One { _lock: MutexGuard<'l, ()> },
    Several { _locks: Vec<MutexGuard<'l, ()>> },
}

/// Partitioning of the keys: keys that may mean the same record have the same partition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyPartitioning {
    ByBytes,
    /// Several keys mean the same record: the digits of a key are its id.
    ById,
    /// Any two keys may mean the same record.
    Together,
}

#[derive(Debug)]
pub(super) struct KeyLocks {
    locks: Box<[Mutex<()>]>,
    partitioning: KeyPartitioning,
}

impl KeyPartitioning {
    pub(crate) fn of(database: &Database) -> Self {
        if database.as_numbered().is_some() {
            Self::ById
        } else if matches!(database.order(), None | Some(KeyOrder::Lexical)) {
            Self::ByBytes
        } else {
            Self::Together
        }
    }

    /// Returns the name in the replication protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ByBytes => "bytes",
            Self::ById => "id",
            Self::Together => "together",
        }
    }

    /// Returns which of `count` partitions a key has, the same one in every process. Returns `None`
    /// if the key may mean any record.
    pub(crate) fn partition(self, database: &Database, key: &[u8], count: usize) -> Option<usize> {
        let hash = match self {
            Self::ByBytes => xxh3_64(key),
            Self::Together => 0,
            Self::ById => {
                // `next` means another record at each use.
                if is_relative(key) {
                    return None;
                }
                let id = database.as_numbered().and_then(|numbered| numbered.id(key));
                xxh3_64(&id.unwrap_or(0).to_le_bytes())
            }
        };
        Some((hash % count as u64) as usize)
    }
}

impl KeyLocks {
    pub(super) fn new(database: &Database) -> Self {
        let locks = (0..LOCKS).map(|_| Mutex::default()).collect();
        Self { locks, partitioning: KeyPartitioning::of(database) }
    }

    /// Locks the keys that an operation changes. Returns `None` if another thread holds a lock for
    /// long and `may_wait` is not set.
    pub(super) fn lock(
        &self,
        database: &Database,
        scope: Scope<'_>,
        may_wait: bool,
    ) -> Option<Locks<'_>> {
        let partition = |key: &[u8]| self.partitioning.partition(database, key, LOCKS);
        let indices = match scope {
            Scope::Nothing => return Some(Locks::None),
            Scope::All => None,
            Scope::Several(keys) => keys.iter().map(|key| partition(key)).collect(),
            Scope::Key(key) => match partition(key) {
                Some(index) => {
                    return Some(Locks::One { _lock: self.lock_index(index, may_wait)? });
                }
                None => None,
            },
        };
        let mut indices: Vec<usize> = indices.unwrap_or_else(|| (0..LOCKS).collect());
        // In ascending order, so that two threads that take several cannot deadlock.
        indices.sort_unstable();
        indices.dedup();
        let locks = indices.into_iter().map(|index| self.lock_index(index, may_wait));
        Some(Locks::Several { _locks: locks.collect::<Option<_>>()? })
    }

    fn lock_index(&self, index: usize, may_wait: bool) -> Option<MutexGuard<'_, ()>> {
        let lock = &self.locks[index];
        if may_wait { Some(lock.lock()) } else { lock.try_lock_for(LOCK_WAIT_MAX) }
    }

    /// Locks all keys. Returns `None` if that takes longer than `wait_max`.
    pub(super) fn lock_all_within(&self, wait_max: Duration) -> Option<Locks<'_>> {
        let deadline = Instant::now() + wait_max;
        let locks = self.locks.iter().map(|lock| lock.try_lock_until(deadline));
        locks.collect::<Option<_>>().map(|locks| Locks::Several { _locks: locks })
    }
}

/// Returns whether a key of a fixed-length database is relative to the present ids: `next`, `prev`,
/// `min`, `max`.
pub(crate) fn is_relative(key: &[u8]) -> bool {
    !key.iter().any(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(name: &str) -> (Database, KeyLocks) {
        let database = Database::open(name).expect("a database");
        let order = KeyLocks::new(&database);
        (database, order)
    }

    #[test]
    fn writers_of_one_key_wait_for_each_other_and_writers_of_others_do_not() {
        let (database, order) = order("*");
        let held = order.lock(&database, Scope::Key(b"a"), false);
        assert!(held.is_some());
        assert!(order.lock(&database, Scope::Key(b"a"), false).is_none());
        assert!(order.lock(&database, Scope::All, false).is_none());
        assert!(order.lock(&database, Scope::Several(&[b"b", b"a"]), false).is_none());
        assert!(order.lock(&database, Scope::Nothing, false).is_some());
        let free = (0..=255_u8)
            .filter(|key| order.lock(&database, Scope::Key(&[*key, 0]), false).is_some());
        assert!(free.count() > 200);
        drop(held);
        assert!(order.lock(&database, Scope::All, false).is_some());
    }

    #[test]
    fn keys_that_mean_the_same_record_have_the_same_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("casket.tcf").display().to_string();
        let (database, order) = order(&name);
        let _held = order.lock(&database, Scope::Key(b"7"), false);
        assert!(order.lock(&database, Scope::Key(b"007"), false).is_none());
        assert!(order.lock(&database, Scope::Key(b"next"), false).is_none());
        assert!(order.lock(&database, Scope::Key(b"8"), false).is_some());
    }
}
