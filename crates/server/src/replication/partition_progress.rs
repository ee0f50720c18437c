//! Partition progress: the operations that a replica has executed, by the log in which they were
//! made first.
//!
//! Operations are divided into partitions by their keys. Operations of one partition are executed
//! in order, those of different partitions are not. For each log, the file has a time stamp up to
//! which all operations are executed, and a time stamp per partition that is at least as high. Each
//! partition also notes which operation it begins. The file is mapped, so the notes survive a
//! killed process. After a restart, each partition knows which operations it has executed, except
//! for one that it had begun. If a second execution of that operation would be harmful, a digest of
//! its records is noted before it, and compared.
//!
//! A master that does not know roots sends entries that all count as made first in its log.
//!
//! The notes are valid for one boot of the system and for the position that they were written with.

use cabinet::files::{Words, folder_of, page_cache_id, sync_folder};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use wire::replication::{LogProgress, PARTITIONS as ALL_PARTITIONS, ROOT_LOGS_MAX, Root};
use xxhash_rust::xxh3::xxh3_64;

/// Number of partitions of operations on one key.
pub(super) const PARTITIONS: usize = ALL_PARTITIONS - 1;

/// Partition of the operations that are executed alone.
pub(super) const ALONE: usize = PARTITIONS;

/// Words in a line. Each partition has a cache line of its own, and so has the state of all
/// partitions.
const LINE: usize = 8;

/// Words of a log: a line, and one word per partition.
const LOG_WORDS: usize = LINE + ALL_PARTITIONS.next_multiple_of(LINE);

const WORDS: usize = (1 + ALL_PARTITIONS) * LINE + ROOT_LOGS_MAX * LOG_WORDS;

/// Changes with the format of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"lanes 02");

// Words of the first line.
const HEAD: usize = 0;
const LIFE: usize = 1;
const COMPLETE: usize = 2;
const POSITION_NEXT: usize = 3;
const POSITION: usize = 4;
const CLOSED: usize = 5;

// Words of the line of a partition.
const BEGUN_LOG: usize = 0;
const BEGUN: usize = 1;
const STATE: usize = 2;

// Words of the line of a log.
const LOG: usize = 0;
const BASE: usize = 1;

/// Mapped file.
pub(super) struct PartitionProgress(Words);

/// Validity of the notes at the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notes {
    /// They are of this boot of the system and of the position.
    Valid,
    /// There are none, or they are of another position, or of an earlier boot in which the replica
    /// was stopped.
    Invalid,
    /// They are of an earlier boot, which ended while the replica ran, or after it was killed.
    Crashed,
}

/// Operation that a partition has begun last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Root of the operation.
    pub(super) root: Root,
    /// Digest of its records before it, if a second execution would be harmful.
    pub(super) state: u64,
}

impl PartitionProgress {
    /// Opens the file of a replica at one of these positions. Returns also whether the file was
    /// valid for one of them. From here on the replica counts as running.
    pub(super) fn open(path: &Path, positions_us: &[u64]) -> io::Result<(Self, Notes)> {
        let partitions = Self(Words::open(path, WORDS)?);
        let life = life(path)?;
        let head = partitions.line(0);
        let has_format = head[HEAD].load(Acquire) == MAGIC;
        let is_ours = has_format && head[LIFE].load(Acquire) == life;
        let noted = [&head[POSITION_NEXT], &head[POSITION]].map(|word| word.load(Acquire));
        let is_noted = is_ours && noted.iter().any(|noted| positions_us.contains(noted));
        let has_crashed = has_format && !is_ours && head[CLOSED].load(Acquire) == 0;
        if !is_noted {
            partitions.clear();
            head[LIFE].store(life, Release);
            head[HEAD].store(MAGIC, Release);
        }
        head[CLOSED].store(0, Release);
        // Otherwise a loss of power may bring back that the replica was stopped.
        sync(path)?;
        let notes = match is_noted {
            true => Notes::Valid,
            false if has_crashed => Notes::Crashed,
            false => Notes::Invalid,
        };
        Ok((partitions, notes))
    }

    /// Notes that the replica has stopped, once database and position are durable.
    pub(super) fn close(&self, path: &Path) -> io::Result<()> {
        self.line(0)[CLOSED].store(1, Release);
        sync(path)
    }

    /// Reads the file of a replica at `position_us`. Returns `None` if the file is invalid or
    /// incomplete.
    pub(super) fn read(path: &Path, position_us: u64) -> Option<Vec<LogProgress>> {
        let bytes = std::fs::read(path).ok()?;
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let is_ours =
            words.len() >= WORDS && words[HEAD] == MAGIC && words[LIFE] == life(path).ok()?;
        let is_noted = is_ours && [words[POSITION_NEXT], words[POSITION]].contains(&position_us);
        (is_noted && words[COMPLETE] == 1).then(|| {
            let logs = words[(1 + ALL_PARTITIONS) * LINE..].chunks_exact(LOG_WORDS);
            logs.filter_map(|log| log_progress(|at| log[at])).collect()
        })
    }

    /// Removes all notes.
    pub(super) fn clear(&self) {
        self.line(0)[COMPLETE].store(0, Release);
        for word in self.0.as_slice().iter().skip(LINE) {
            word.store(0, Release);
        }
    }

    /// Removes the notes of all logs but this one, as roots of further operations are unknown.
    pub(super) fn keep_only(&self, log: u64) {
        self.line(0)[COMPLETE].store(0, Release);
        (0..ROOT_LOGS_MAX).filter(|slot| self.log(*slot)[LOG].load(Acquire) != log).for_each(
            |slot| {
                self.drop_slot(slot);
            },
        );
    }

    /// Returns whether the notes cover all executed operations.
    pub(super) fn is_complete(&self) -> bool {
        self.line(0)[COMPLETE].load(Acquire) == 1
    }

    /// Returns the progress in each known log.
    pub(super) fn logs(&self) -> Vec<LogProgress> {
        (0..ROOT_LOGS_MAX)
            .filter_map(|slot| log_progress(|at| self.log(slot)[at].load(Acquire)))
            .collect()
    }

    /// Notes that all operations of each of these logs were executed up to a time stamp, and none
    /// of other logs. No operation may be pending.
    pub(super) fn learn(&self, bases: &[(u64, u64)]) {
        for slot in 0..ROOT_LOGS_MAX {
            let log = self.log(slot)[LOG].load(Acquire);
            if bases.iter().all(|(listed, _)| *listed != log) {
                self.drop_slot(slot);
            }
        }
        let mut is_complete = true;
        for (log, base_us) in bases {
            match self.slot(*log) {
                Some(slot) => {
                    self.log(slot)[BASE].fetch_max(*base_us, Release);
                }
                None => is_complete = false,
            }
        }
        self.line(0)[COMPLETE].store(is_complete.into(), Release);
    }

    /// Returns the slot of a log, which is allocated if it has none. Returns `None` if there are
    /// too many logs.
    pub(super) fn slot(&self, log: u64) -> Option<usize> {
        let is_of = |wanted: u64| {
            (0..ROOT_LOGS_MAX).find(|slot| self.log(*slot)[LOG].load(Acquire) == wanted)
        };
        is_of(log).or_else(|| {
            let slot = is_of(0)?;
            self.log(slot)[LOG].store(log, Release);
            Some(slot)
        })
    }

    fn drop_slot(&self, slot: usize) {
        // The name is removed first.
        self.log(slot).iter().for_each(|word| word.store(0, Release));
    }

    /// Notes the position that is about to be written.
    pub(super) fn position_next(&self, position_us: u64) {
        self.line(0)[POSITION_NEXT].store(position_us, Release);
    }

    /// Notes that the position is written.
    pub(super) fn position_written(&self, position_us: u64) {
        self.line(0)[POSITION].store(position_us, Release);
    }

    /// Notes that an operation is about to be executed.
    pub(super) fn begin(&self, partition: usize, root: Root, state: Option<u64>) {
        let words = self.line(1 + partition);
        // The order matters: a time stamp is never stored with the digest of another operation.
        words[BEGUN].store(0, Release);
        words[STATE].store(state.unwrap_or(0), Release);
        words[BEGUN_LOG].store(root.log, Release);
        words[BEGUN].store(root.timestamp_us, Release);
    }

    /// Returns the operation that was begun last in a partition.
    pub(super) fn begun(&self, partition: usize) -> Begun {
        let words = self.line(1 + partition);
        let (log, timestamp_us) = (words[BEGUN_LOG].load(Acquire), words[BEGUN].load(Acquire));
        Begun { root: Root { log, timestamp_us }, state: words[STATE].load(Acquire) }
    }

    /// Notes that an operation was executed.
    pub(super) fn executed(&self, slot: usize, partition: usize, timestamp_us: u64) {
        self.log(slot)[LINE + partition].store(timestamp_us, Release);
    }

    /// Returns the time stamp of the last operation of a log that was executed in a partition.
    pub(super) fn executed_us(&self, slot: usize, partition: usize) -> u64 {
        self.log(slot)[LINE + partition].load(Acquire)
    }

    fn line(&self, line: usize) -> &[AtomicU64] {
        &self.0.as_slice()[line * LINE..(line + 1) * LINE]
    }

    fn log(&self, slot: usize) -> &[AtomicU64] {
        let start = (1 + ALL_PARTITIONS) * LINE + slot * LOG_WORDS;
        &self.0.as_slice()[start..start + LOG_WORDS]
    }
}

/// Returns the progress in a log whose words are returned by `word`.
fn log_progress(word: impl Fn(usize) -> u64) -> Option<LogProgress> {
    let (log, base_us) = (word(LOG), word(BASE));
    let partitions_us = std::array::from_fn(|partition| word(LINE + partition).max(base_us));
    (log != 0).then_some(LogProgress { log, base_us, partitions_us })
}

/// Makes the file and its name durable.
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    sync_folder(folder_of(path))
}

/// Returns a digest of the identity of the page cache that a file has.
fn life(path: &Path) -> io::Result<u64> {
    Ok(xxh3_64(&page_cache_id(folder_of(path))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Root = Root { log: 7, timestamp_us: 12 };

    /// Returns the notes of a replica at position 10, with partition 3 beyond it.
    fn partitions(folder: &Path) -> PartitionProgress {
        let partitions = reopened(folder, 0);
        partitions.position_next(10);
        partitions.position_written(10);
        let slot = partitions.slot(7).expect("a slot");
        partitions.begin(3, Root { timestamp_us: 11, ..ROOT }, None);
        partitions.executed(slot, 3, 11);
        partitions.begin(3, ROOT, Some(5));
        partitions
    }

    fn reopened(folder: &Path, position_us: u64) -> PartitionProgress {
        PartitionProgress::open(&folder.join("partitions"), &[position_us]).expect("room").0
    }

    fn notes(partitions: &PartitionProgress) -> (Begun, u64) {
        (partitions.begun(3), partitions.slot(7).map_or(0, |slot| partitions.executed_us(slot, 3)))
    }

    const BEGUN_12: Begun = Begun { root: ROOT, state: 5 };

    fn is_cleared(partitions: &PartitionProgress) -> bool {
        notes(partitions) == (Begun { root: Root { log: 0, timestamp_us: 0 }, state: 0 }, 0)
    }

    #[test]
    fn the_next_process_knows_which_operations_were_begun_and_executed() {
        let folder = tempfile::tempdir().expect("a folder");
        let _killed = partitions(folder.path());
        assert_eq!(notes(&reopened(folder.path(), 10)), (BEGUN_12, 11));
    }

    #[test]
    fn a_process_killed_while_it_writes_its_position_loses_no_notes() {
        for position_us in [10, 12] {
            let folder = tempfile::tempdir().expect("a folder");
            partitions(folder.path()).position_next(12);
            assert_eq!(notes(&reopened(folder.path(), position_us)), (BEGUN_12, 11));
        }
    }

    #[test]
    fn notes_with_another_position_or_of_another_log_say_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        partitions(folder.path());
        // The position file was changed by hand.
        assert!(is_cleared(&reopened(folder.path(), 9)));
        partitions(folder.path()).keep_only(8);
        assert_eq!(notes(&reopened(folder.path(), 10)).1, 0);
    }

    #[test]
    fn notes_of_an_earlier_life_of_the_system_say_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        partitions(folder.path()).line(0)[LIFE].fetch_xor(1, Release);
        assert!(is_cleared(&reopened(folder.path(), 10)));
    }

    #[test]
    fn progress_in_each_log_is_returned_once_it_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let partitions = partitions(folder.path());
        partitions.slot(9).expect("a slot");
        let read = || PartitionProgress::read(&folder.path().join("partitions"), 10);
        assert_eq!((partitions.is_complete(), read()), (false, None));
        partitions.learn(&[(7, 10), (8, 4)]);
        let mut partitions_us = [10; ALL_PARTITIONS];
        partitions_us[3] = 11;
        let expected = vec![
            LogProgress { log: 7, base_us: 10, partitions_us },
            LogProgress { log: 8, base_us: 4, partitions_us: [4; ALL_PARTITIONS] },
        ];
        assert_eq!((partitions.logs(), read()), (expected.clone(), Some(expected)));
        // Progress in more logs than there are slots is unknown.
        let many: Vec<_> = (1..=ROOT_LOGS_MAX as u64 + 1).map(|log| (log, 1)).collect();
        partitions.learn(&many);
        assert_eq!((partitions.is_complete(), read()), (false, None));
    }
}
