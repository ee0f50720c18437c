//! Which operations a replica has executed beyond its position.
//!
//! Operations are spread over lanes by their keys. Those of a lane are executed in their order, those of
//! different lanes are not; so each lane notes which operation it begins and which one it has
//! executed. The notes are in a mapped file beside that of the position, which outlives a process
//! that is killed. Of what comes again after that, each lane knows what it has executed, but for one
//! operation that it had begun. Where executing that one twice would show, the state of its records
//! before it is noted too, and compared.
//!
//! The notes are of one master, of one life of the system, and of the position that they were made
//! with; otherwise they say nothing.

use cabinet::io::Words;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use xxhash_rust::xxh3::xxh3_64;

/// Number of lanes of operations on one key.
pub(super) const LANES: usize = 64;

/// The lane of operations that are executed alone.
pub(super) const ALONE: usize = LANES;

/// Numbers in a line: each lane has a cache line of its own, and so has what is about all of them.
const LINE: usize = 8;

/// Changes with the meaning of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"lanes 01");

// What is in the first line.
const HEAD: usize = 0;
const LIFE: usize = 1;
const MASTER: usize = 2;
const POSITION_NEXT: usize = 3;
const POSITION: usize = 4;

// What is in the line of a lane.
const BEGUN: usize = 0;
const STATE: usize = 1;
const EXECUTED: usize = 2;

/// The mapped file.
pub(super) struct Lanes(Words);

/// What is noted of a lane: time stamps in microseconds since 1970, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// The operation that was begun last.
    pub(super) begun_us: u64,
    /// Of its records before it, if executing it twice would show.
    pub(super) state: u64,
    /// The last operation that was executed.
    pub(super) executed_us: u64,
}

impl Lanes {
    /// Opens the file of a replica that has come to `position_us`. Answers also whether it was there
    /// with that position.
    pub(super) fn open(path: &Path, position_us: u64) -> io::Result<(Self, bool)> {
        let lanes = Self(Words::open(path, (1 + LANES + 1) * LINE)?);
        let life = xxh3_64(&std::fs::read("/proc/sys/kernel/random/boot_id")?);
        let head = lanes.line(0);
        let is_ours = head[HEAD].load(Acquire) == MAGIC && head[LIFE].load(Acquire) == life;
        let noted = [&head[POSITION_NEXT], &head[POSITION]].map(|word| word.load(Acquire));
        let is_noted = is_ours && noted.contains(&position_us);
        if !is_noted {
            lanes.clear();
            head[LIFE].store(life, Release);
            head[HEAD].store(MAGIC, Release);
        }
        Ok((lanes, is_noted))
    }

    /// Highest time stamp of an operation that was begun or executed beyond the position.
    pub(super) fn highest_us(&self) -> u64 {
        let notes = (0..=LANES).map(|lane| self.notes(lane));
        notes.map(|notes| notes.begun_us.max(notes.executed_us)).max().unwrap_or(0)
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        for word in self.0.as_slice().iter().skip(MASTER) {
            word.store(0, Release);
        }
    }

    /// From now on it is about this master.
    pub(super) fn adopt(&self, master: u16) {
        let noted = &self.line(0)[MASTER];
        if noted.load(Acquire) != u64::from(master) {
            for lane in 0..=LANES {
                for word in self.lane(lane) {
                    word.store(0, Release);
                }
            }
            noted.store(master.into(), Release);
        }
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
    pub(super) fn begin(&self, lane: usize, timestamp_us: u64, state: Option<u64>) {
        let words = self.lane(lane);
        // In this order: a time stamp never comes with the state before another operation.
        words[STATE].store(state.unwrap_or(0), Release);
        words[BEGUN].store(timestamp_us, Release);
    }

    /// An operation was executed.
    pub(super) fn executed(&self, lane: usize, timestamp_us: u64) {
        self.lane(lane)[EXECUTED].store(timestamp_us, Release);
    }

    /// What is noted of a lane.
    pub(super) fn notes(&self, lane: usize) -> Notes {
        let words = self.lane(lane);
        Notes {
            begun_us: words[BEGUN].load(Acquire),
            state: words[STATE].load(Acquire),
            executed_us: words[EXECUTED].load(Acquire),
        }
    }

    fn lane(&self, lane: usize) -> &[AtomicU64] {
        self.line(1 + lane)
    }

    fn line(&self, line: usize) -> &[AtomicU64] {
        &self.0.as_slice()[line * LINE..(line + 1) * LINE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a replica that has come to 10, and beyond that on lane 3.
    fn lanes(folder: &Path) -> Lanes {
        let lanes = reopened(folder, 0);
        lanes.adopt(7);
        lanes.position_next(10);
        lanes.position_written(10);
        lanes.begin(3, 11, None);
        lanes.executed(3, 11);
        lanes.begin(3, 12, Some(5));
        lanes
    }

    fn reopened(folder: &Path, position_us: u64) -> Lanes {
        Lanes::open(&folder.join("lanes"), position_us).expect("room").0
    }

    const NOTES: Notes = Notes { begun_us: 12, state: 5, executed_us: 11 };

    #[test]
    fn what_was_begun_and_executed_is_known_to_the_next_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let _killed = lanes(folder.path());
        let again = reopened(folder.path(), 10);
        again.adopt(7);
        assert_eq!(again.notes(3), NOTES);
        assert_eq!(again.notes(ALONE), Notes::default());
    }

    #[test]
    fn a_process_killed_while_it_writes_its_position_loses_no_notes() {
        for position_us in [10, 12] {
            let folder = tempfile::tempdir().expect("a folder");
            lanes(folder.path()).position_next(12);
            assert_eq!(reopened(folder.path(), position_us).notes(3), NOTES);
        }
    }

    #[test]
    fn notes_with_another_position_or_of_another_master_say_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        lanes(folder.path());
        // Somebody has written the file of the position.
        assert_eq!(reopened(folder.path(), 9).notes(3), Notes::default());
        lanes(folder.path()).adopt(8);
        assert_eq!(reopened(folder.path(), 10).notes(3), Notes::default());
    }

    #[test]
    fn notes_of_an_earlier_life_of_the_system_say_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        lanes(folder.path()).line(0)[LIFE].fetch_xor(1, Release);
        assert_eq!(reopened(folder.path(), 10).notes(3), Notes::default());
    }
}
