//! Which operations a replica has executed, by the logs in which they were made first.
//!
//! Operations are spread over lanes by their keys. Those of a lane are executed in their order,
//! those of different lanes are not. So for each log the file has a time stamp up to which
//! everything is executed, and one for each lane that is at least that. Each lane also notes which
//! operation it begins. The file is mapped and outlives a process that is killed. When it
//! comes again after that, each lane knows what it has executed, but for one operation that it had
//! begun. Where executing that one twice would show, the state of its records before it is noted
//! too, and compared.
//!
//! From a master that does not know roots, all entries count as made first in its log.
//!
//! The notes are of one life of the system, and of the position that they were made with; otherwise
//! they say nothing.

use cabinet::io::Words;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use wire::replication::{LogProgress, PARTITIONS as ALL_LANES, ROOT_LOGS_MAX, Root};
use xxhash_rust::xxh3::xxh3_64;

/// Number of lanes of operations on one key.
pub(super) const LANES: usize = ALL_LANES - 1;

/// The lane of operations that are executed alone.
pub(super) const ALONE: usize = LANES;

/// Numbers in a line: each lane has a cache line of its own, and so has what is about all of them.
const LINE: usize = 8;

/// Numbers about a log: a line, and one of each lane.
const LOG_WORDS: usize = LINE + ALL_LANES.next_multiple_of(LINE);

const WORDS: usize = (1 + ALL_LANES) * LINE + ROOT_LOGS_MAX * LOG_WORDS;

/// Changes with the meaning of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"lanes 02");

// What is in the first line.
const HEAD: usize = 0;
const LIFE: usize = 1;
const COMPLETE: usize = 2;
const POSITION_NEXT: usize = 3;
const POSITION: usize = 4;

// What is in the line of a lane.
const BEGUN_LOG: usize = 0;
const BEGUN: usize = 1;
const STATE: usize = 2;

// What is in the line of a log.
const LOG: usize = 0;
const BASE: usize = 1;

/// The mapped file.
pub(super) struct Lanes(Words);

/// The operation that a lane has begun last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Where it was made first.
    pub(super) root: Root,
    /// State of its records before it, if executing it twice would show.
    pub(super) state: u64,
}

impl Lanes {
    /// Opens the file of a replica that has come to one of these positions. Answers also whether it
    /// was there with one.
    pub(super) fn open(path: &Path, positions_us: &[u64]) -> io::Result<(Self, bool)> {
        let lanes = Self(Words::open(path, WORDS)?);
        let life = life()?;
        let head = lanes.line(0);
        let is_ours = head[HEAD].load(Acquire) == MAGIC && head[LIFE].load(Acquire) == life;
        let noted = [&head[POSITION_NEXT], &head[POSITION]].map(|word| word.load(Acquire));
        let is_noted = is_ours && noted.iter().any(|noted| positions_us.contains(noted));
        if !is_noted {
            lanes.clear();
            head[LIFE].store(life, Release);
            head[HEAD].store(MAGIC, Release);
        }
        Ok((lanes, is_noted))
    }

    /// Reads what the file of a replica says that has come to `position_us`; `None` if that is
    /// nothing, or not everything that was executed.
    pub(super) fn read(path: &Path, position_us: u64) -> Option<Vec<LogProgress>> {
        let bytes = std::fs::read(path).ok()?;
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let is_ours = words.len() >= WORDS && words[HEAD] == MAGIC && words[LIFE] == life().ok()?;
        let is_noted = is_ours && [words[POSITION_NEXT], words[POSITION]].contains(&position_us);
        (is_noted && words[COMPLETE] == 1).then(|| {
            let logs = words[(1 + ALL_LANES) * LINE..].chunks_exact(LOG_WORDS);
            logs.filter_map(|log| had(|at| log[at])).collect()
        })
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.line(0)[COMPLETE].store(0, Release);
        for word in self.0.as_slice().iter().skip(LINE) {
            word.store(0, Release);
        }
    }

    /// What comes is not of roots that are known: only what this log is about counts.
    pub(super) fn keep_only(&self, log: u64) {
        self.line(0)[COMPLETE].store(0, Release);
        (0..ROOT_LOGS_MAX).filter(|slot| self.log(*slot)[LOG].load(Acquire) != log).for_each(
            |slot| {
                self.drop_slot(slot);
            },
        );
    }

    /// Whether all is known that was executed.
    pub(super) fn is_complete(&self) -> bool {
        self.line(0)[COMPLETE].load(Acquire) == 1
    }

    /// What was executed of each log that is known.
    pub(super) fn logs(&self) -> Vec<LogProgress> {
        (0..ROOT_LOGS_MAX).filter_map(|slot| had(|at| self.log(slot)[at].load(Acquire))).collect()
    }

    /// Everything up to a time stamp was executed of each of these logs, and nothing of any other.
    /// Nothing may be under way.
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

    /// Where the notes of a log are, which begin now if there were none. `None` if there are too
    /// many.
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
        // The name goes first.
        self.log(slot).iter().for_each(|word| word.store(0, Release));
    }

    /// The position is about to be written.
    pub(super) fn position_next(&self, position_us: u64) {
        self.line(0)[POSITION_NEXT].store(position_us, Release);
    }

    /// The position is written.
    pub(super) fn position_written(&self, position_us: u64) {
        self.line(0)[POSITION].store(position_us, Release);
    }

    /// An operation is about to be executed.
    pub(super) fn begin(&self, lane: usize, root: Root, state: Option<u64>) {
        let words = self.line(1 + lane);
        // In this order: a time stamp never comes with the state before another operation.
        words[BEGUN].store(0, Release);
        words[STATE].store(state.unwrap_or(0), Release);
        words[BEGUN_LOG].store(root.log, Release);
        words[BEGUN].store(root.timestamp_us, Release);
    }

    /// The operation that was begun last on a lane.
    pub(super) fn begun(&self, lane: usize) -> Begun {
        let words = self.line(1 + lane);
        let (log, timestamp_us) = (words[BEGUN_LOG].load(Acquire), words[BEGUN].load(Acquire));
        Begun { root: Root { log, timestamp_us }, state: words[STATE].load(Acquire) }
    }

    /// An operation was executed.
    pub(super) fn executed(&self, slot: usize, lane: usize, timestamp_us: u64) {
        self.log(slot)[LINE + lane].store(timestamp_us, Release);
    }

    /// Time stamp of the last operation of a log that was executed on a lane.
    pub(super) fn executed_us(&self, slot: usize, lane: usize) -> u64 {
        self.log(slot)[LINE + lane].load(Acquire)
    }

    fn line(&self, line: usize) -> &[AtomicU64] {
        &self.0.as_slice()[line * LINE..(line + 1) * LINE]
    }

    fn log(&self, slot: usize) -> &[AtomicU64] {
        let start = (1 + ALL_LANES) * LINE + slot * LOG_WORDS;
        &self.0.as_slice()[start..start + LOG_WORDS]
    }
}

/// What is executed of a log, of whose numbers `word` returns one.
fn had(word: impl Fn(usize) -> u64) -> Option<LogProgress> {
    let (log, base_us) = (word(LOG), word(BASE));
    let partitions_us = std::array::from_fn(|lane| word(LINE + lane).max(base_us));
    (log != 0).then_some(LogProgress { log, base_us, partitions_us })
}

fn life() -> io::Result<u64> {
    Ok(xxh3_64(&std::fs::read("/proc/sys/kernel/random/boot_id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Root = Root { log: 7, timestamp_us: 12 };

    /// Lanes of a replica that has come to 10, and beyond that on lane 3.
    fn lanes(folder: &Path) -> Lanes {
        let lanes = reopened(folder, 0);
        lanes.position_next(10);
        lanes.position_written(10);
        let slot = lanes.slot(7).expect("a slot");
        lanes.begin(3, Root { timestamp_us: 11, ..ROOT }, None);
        lanes.executed(slot, 3, 11);
        lanes.begin(3, ROOT, Some(5));
        lanes
    }

    fn reopened(folder: &Path, position_us: u64) -> Lanes {
        Lanes::open(&folder.join("lanes"), &[position_us]).expect("room").0
    }

    fn notes(lanes: &Lanes) -> (Begun, u64) {
        (lanes.begun(3), lanes.slot(7).map_or(0, |slot| lanes.executed_us(slot, 3)))
    }

    const BEGUN_12: Begun = Begun { root: ROOT, state: 5 };

    fn is_cleared(lanes: &Lanes) -> bool {
        notes(lanes) == (Begun { root: Root { log: 0, timestamp_us: 0 }, state: 0 }, 0)
    }

    #[test]
    fn what_was_begun_and_executed_is_known_to_the_next_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let _killed = lanes(folder.path());
        assert_eq!(notes(&reopened(folder.path(), 10)), (BEGUN_12, 11));
    }

    #[test]
    fn a_process_killed_while_it_writes_its_position_loses_no_notes() {
        for position_us in [10, 12] {
            let folder = tempfile::tempdir().expect("a folder");
            lanes(folder.path()).position_next(12);
            assert_eq!(notes(&reopened(folder.path(), position_us)), (BEGUN_12, 11));
        }
    }

    #[test]
    fn notes_with_another_position_or_of_another_log_say_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        lanes(folder.path());
        // Somebody has written the file of the position.
        assert!(is_cleared(&reopened(folder.path(), 9)));
        lanes(folder.path()).keep_only(8);
        assert_eq!(notes(&reopened(folder.path(), 10)).1, 0);
    }

    #[test]
    fn notes_of_an_earlier_life_of_the_system_say_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        lanes(folder.path()).line(0)[LIFE].fetch_xor(1, Release);
        assert!(is_cleared(&reopened(folder.path(), 10)));
    }

    #[test]
    fn what_was_executed_of_each_log_is_told_once_it_is_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let lanes = lanes(folder.path());
        lanes.slot(9).expect("a slot");
        let read = || Lanes::read(&folder.path().join("lanes"), 10);
        assert_eq!((lanes.is_complete(), read()), (false, None));
        lanes.learn(&[(7, 10), (8, 4)]);
        let mut partitions_us = [10; ALL_LANES];
        partitions_us[3] = 11;
        let expected = vec![
            LogProgress { log: 7, base_us: 10, partitions_us },
            LogProgress { log: 8, base_us: 4, partitions_us: [4; ALL_LANES] },
        ];
        assert_eq!((lanes.logs(), read()), (expected.clone(), Some(expected)));
        // More than there is room for cannot be told.
        let many: Vec<_> = (1..=ROOT_LOGS_MAX as u64 + 1).map(|log| (log, 1)).collect();
        lanes.learn(&many);
        assert_eq!((lanes.is_complete(), read()), (false, None));
    }
}
