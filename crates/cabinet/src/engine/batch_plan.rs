//! Batch plan: the steps of writing a batch that do not depend on the engine.
//!
//! An engine locks what the keys of the batch share (shards, leaves) in [`lock_order`], so that
//! batches do not deadlock. Under the locks it compares versions by [`check_expected`], and reduces
//! the batch to [`last_changes`]. Everything that can fail comes before the first change. Engines
//! over a log keep locks short by [`read_then_write`], and append with [`longest_last`].

use crate::batch::BatchChange;
use crate::{Batch, Error, KeyOrder, Result, Version, Wait};
use std::cmp::Ordering;

/// Most attempts to write without reading from the disk under the locks. Records and pages that
/// were read may leave memory again before the locks are taken.
const TRIES_MAX: usize = 3;

/// Returns the keys that a batch changes or compares.
pub(crate) fn keys(batch: &Batch) -> impl Iterator<Item = &[u8]> {
    let changed = batch.changes().map(|(key, _)| key);
    changed.chain(batch.expected.iter().map(|(key, _)| &key[..]))
}

/// Returns items in ascending order, each once.
pub(crate) fn lock_order<T>(mut items: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    items.sort_unstable_by(&compare);
    items.dedup_by(|left, right| compare(left, right).is_eq());
    items
}

/// Returns the last change of each key, in the order of the keys.
pub(crate) fn last_changes(batch: &Batch, order: KeyOrder) -> Vec<(&[u8], BatchChange<'_>)> {
    let mut changes: Vec<_> = batch.changes().rev().collect();
    // Stable, so that the last change of a key stays the first one here.
    changes.sort_by(|(left, _), (right, _)| order.compare(left, right));
    changes.dedup_by(|(left, _), (right, _)| order.compare(left, right).is_eq());
    changes
}

/// Fails with [`Error::Conflict`] unless each key has the version that is expected.
pub(crate) fn check_expected(
    expected: &[(Vec<u8>, Option<Version>)],
    mut version_of: impl FnMut(&[u8]) -> Result<Option<Version>>,
) -> Result<()> {
    for (key, version) in expected {
        if version_of(key)? != *version {
            return Err(Error::Conflict);
        }
    }
    Ok(())
}

/// Calls `write`, which takes the locks. If it would wait for the disk and `wait` allows it, calls
/// `read` without the locks, and tries again. The last attempt waits for the disk under the locks.
pub(crate) fn read_then_write(
    wait: Wait,
    mut read: impl FnMut() -> Result<()>,
    mut write: impl FnMut(Wait) -> Result<()>,
) -> Result<()> {
    if wait == Wait::Never {
        return write(Wait::Never);
    }
    for _ in 0..TRIES_MAX {
        match write(Wait::Never) {
            Err(Error::WouldBlock) => read()?,
            result => return result,
        }
    }
    write(Wait::Block)
}

/// Moves the longest record of a batch to the end, where the log needs it.
pub(crate) fn longest_last<T>(records: &mut [T], bytes: impl Fn(&T) -> usize) {
    if let Some(longest) = (0..records.len()).max_by_key(|index| bytes(&records[*index])) {
        records.swap(longest, records.len() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;

    #[test]
    fn locks_are_taken_in_one_order_and_once() {
        let mut batch = Batch::new();
        batch.put(b"c", b"", Meta::NONE);
        batch.remove(b"a");
        batch.expect(b"b", None);
        batch.expect(b"c", Some(1));
        let keys = lock_order(keys(&batch).collect(), |left: &&[u8], right| left.cmp(right));
        assert_eq!(keys, [b"a", b"b", b"c"]);
    }

    #[test]
    fn the_last_change_of_a_key_wins_in_every_order_of_keys() {
        let mut batch = Batch::new();
        batch.put(b"10", b"old", Meta::NONE);
        batch.put(b"9", b"put", Meta::NONE);
        batch.put(b"10", b"new", Meta::NONE);
        batch.put(b"8", b"put", Meta::NONE);
        batch.remove(b"8");
        let put = |value| BatchChange::Put(value, Meta::NONE);
        let (ten, nine) = ((&b"10"[..], put(b"new")), (&b"9"[..], put(b"put")));
        let eight = (&b"8"[..], BatchChange::Remove);
        assert_eq!(last_changes(&batch, KeyOrder::Lexical), [ten, eight, nine]);
        assert_eq!(last_changes(&batch, KeyOrder::Decimal), [eight, nine, ten]);
    }

    #[test]
    fn another_version_than_the_expected_one_is_a_conflict() {
        let expected = [(b"a".to_vec(), Some(3)), (b"b".to_vec(), None)];
        let check = |a, b| check_expected(&expected, |key| Ok(if key == b"a" { a } else { b }));
        check(Some(3), None).unwrap();
        for (a, b) in [(Some(4), None), (None, None), (Some(3), Some(1))] {
            assert!(matches!(check(a, b), Err(Error::Conflict)));
        }
    }

    #[test]
    fn records_that_leave_memory_again_and_again_are_read_under_the_locks() {
        let (mut reads, mut waits) = (0, Vec::new());
        let read = || {
            reads += 1;
            Ok(())
        };
        let write = |wait| {
            waits.push(wait);
            if wait == Wait::Never { Err(Error::WouldBlock) } else { Ok(()) }
        };
        read_then_write(Wait::Block, read, write).unwrap();
        assert_eq!(reads, TRIES_MAX);
        assert_eq!(waits, [Wait::Never, Wait::Never, Wait::Never, Wait::Block]);
    }

    #[test]
    fn a_failure_to_read_or_write_is_not_tried_again() {
        let failure = || Err(Error::Conflict);
        read_then_write(Wait::Block, failure, |_| Err(Error::WouldBlock)).unwrap_err();
        let mut writes = 0;
        let write = |_| {
            writes += 1;
            failure()
        };
        let no_read = || panic!("nothing is to be read");
        read_then_write(Wait::Block, no_read, write).unwrap_err();
        assert_eq!(writes, 1);
    }

    #[test]
    fn a_thread_that_must_not_wait_reads_nothing() {
        let no_read = || panic!("nothing is to be read");
        let result = read_then_write(Wait::Never, no_read, |_| Err(Error::WouldBlock));
        assert!(matches!(result, Err(Error::WouldBlock)));
    }

    #[test]
    fn the_longest_record_comes_last() {
        let mut records = vec![3, 9, 1];
        longest_last(&mut records, |bytes| *bytes);
        assert_eq!(records, [3, 1, 9]);
        longest_last(&mut Vec::<usize>::new(), |bytes| *bytes);
    }
}
