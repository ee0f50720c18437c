//! Iterations: scans of all keys in the order of the log that pause after each step, until the
//! caller continues.
//!
//! A paused iteration keeps its position and holds no segment, so an emptied segment is removed.
//! The records that were live in it have moved, so they were named, see [`super::scans`].
//!
//! An iteration may be abandoned. It is given up if it would then cost too much, or if the log is
//! damaged. It continues through the index, in the order of the index, and visits the records that
//! are not before its frontier. All others were visited before the frontier passed them. So each
//! record that exists throughout is visited, and only one that has moved meanwhile may be visited
//! twice. The pass through the index ends no matter what writers do, and costs them nothing.

use super::full_scan::{Paused, Visitor};
use super::scans::{Registered, Scans};
use super::{Index, IndexKey, KeyedEngine, Stretch};
use crate::log::Lsn;
use crate::{IterationState, Result, ScanCursor, VisitKey, Wait};
use std::sync::Arc;

/// Iteration over the keys of a database in the order of its log, see the module.
pub(crate) struct LogIteration {
    /// Identifies the database.
    scans: Arc<Scans>,
    stage: Stage,
}

enum Stage {
    /// Before the first step. Begins at the first record from this LSN on.
    New(Lsn),
    InLog(Registered, Paused),
    /// In the index, at a cursor.
    InIndex(Unseen, ScanCursor),
    Finished,
}

/// Records that a given-up iteration has still to visit.
#[derive(Clone, Copy)]
struct Unseen {
    /// LSN at which the iteration began. Lost records from it on are errors.
    from: Lsn,
    /// LSN from which on records are visited.
    frontier: Lsn,
}

/// Returns entries of the index from a cursor on, and the cursor after them.
type Entries<'i, I> = dyn Fn(&ScanCursor) -> Result<Option<(Stretch<I>, ScanCursor)>> + 'i;

impl<I: Index> KeyedEngine<I> {
    /// Returns an iteration, from the record of a key on if one is given. Without such a record the
    /// iteration visits nothing.
    pub(crate) fn iteration(&self, from: Option<(IndexKey<I>, &[u8])>) -> Result<LogIteration> {
        let stage = match from {
            None => Stage::New(Lsn::default()),
            Some((index_key, key)) => match self.lsn_of(index_key, key)? {
                Some(lsn) => Stage::New(lsn),
                None => Stage::Finished,
            },
        };
        Ok(LogIteration { scans: Arc::clone(&self.scans), stage })
    }

    /// Returns the LSN of the record of a key.
    fn lsn_of(&self, index_key: IndexKey<I>, key: &[u8]) -> Result<Option<Lsn>> {
        let (segments, locations) = self.locations(index_key, Wait::Block)?;
        let mut not_found = Ok(None);
        for location in locations {
            match self.total_of(&segments, location, key, Wait::Block) {
                Ok(Some(_)) => return Ok(Some(segments.lsn(location))),
                Ok(None) => {}
                // It may be another key's record.
                Err(error) => not_found = Err(error),
            }
        }
        not_found
    }

    /// Makes a step of an iteration. Returns whether there may be more. After a failure the
    /// iteration continues through the index, and fails again at unreadable records.
    pub(crate) fn step_iteration(
        &self,
        iteration: &mut LogIteration,
        visit: &mut VisitKey<'_>,
        entries: &Entries<'_, I>,
    ) -> Result<bool> {
        if !Arc::ptr_eq(&iteration.scans, &self.scans) {
            return Err(IterationState::foreign());
        }
        let stage = std::mem::replace(&mut iteration.stage, Stage::Finished);
        let (stage, result) = match stage {
            Stage::New(from) => {
                let set_end = |set_end: &dyn Fn(Lsn)| self.log.at_end(set_end);
                let registered = self.scans.begin_iteration(from, set_end);
                self.step_in_log(registered, Paused::Before(from.number()), visit)
            }
            Stage::InLog(registered, paused) => {
                self.scans.note_use(&registered);
                self.step_in_log(registered, paused, visit)
            }
            Stage::InIndex(unseen, position) => {
                match self.step_in_index(unseen, &position, visit, entries) {
                    Ok(None) => (Stage::Finished, Ok(())),
                    Ok(Some(next)) => (Stage::InIndex(unseen, next), Ok(())),
                    Err(error) => (Stage::InIndex(unseen, position), Err(error)),
                }
            }
            Stage::Finished => (Stage::Finished, Ok(())),
        };
        iteration.stage = stage;
        result.map(|()| !matches!(iteration.stage, Stage::Finished))
    }

    fn step_in_log(
        &self,
        registered: Registered,
        paused: Paused,
        visit: &mut VisitKey<'_>,
    ) -> (Stage, Result<()>) {
        let stepped = match registered.is_given_up() {
            true => Ok(None),
            false => self.step_paused(&registered, paused, &mut Visitor::Keys(visit)),
        };
        let (paused, result) = match stepped {
            Ok(paused) => (paused, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let stage = match paused {
            // An iteration given up while it ended may have lost names.
            Some(paused) if !registered.is_given_up() => match paused {
                Paused::Finished => Stage::Finished,
                paused => Stage::InLog(registered, paused),
            },
            _ => {
                let unseen = Unseen { from: registered.from(), frontier: registered.frontier() };
                Stage::InIndex(unseen, ScanCursor::Start)
            }
        };
        (stage, result)
    }

    /// Visits the unseen records from a cursor on in the index. Returns the next cursor.
    fn step_in_index(
        &self,
        unseen: Unseen,
        position: &ScanCursor,
        visit: &mut VisitKey<'_>,
        entries: &Entries<'_, I>,
    ) -> Result<Option<ScanCursor>> {
        let Some((mut stretch, next)) = entries(position)? else { return Ok(None) };
        let Stretch { segments, entries, .. } = &mut stretch;
        entries.retain(|(_, location)| {
            segments.lsn(*location) >= unseen.frontier || segments.is_lost(*location, unseen.from)
        });
        self.visit_keys(&stretch, visit)?;
        Ok(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::super::full_scan::tests::{
        change_between_steps, number, open, put, scan_beside_writers_and_the_compactor,
    };
    use super::super::full_scan::{ITERATION_RECORDS_MAX, STEP_RECORDS};
    use super::super::scans::{ITERATION_NAMES_MAX, ITERATIONS_MAX};
    use super::*;
    use crate::engine::Logged;
    use crate::hash::HashDatabase;
    use crate::io::FaultyStorage;
    use crate::{Change, Engine, Error, Maintenance, Meta, Options};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    fn filled(storage: &FaultyStorage, count: u32) -> HashDatabase {
        let database = open(storage);
        (0..count).for_each(|number| put(&database, number, &[0; 100]));
        database
    }

    fn begin(database: &HashDatabase) -> LogIteration {
        database.engine().iteration(None).unwrap()
    }

    fn step(
        database: &HashDatabase,
        iteration: &mut LogIteration,
        visit: &mut VisitKey<'_>,
    ) -> Result<bool> {
        database.engine().step_iteration(iteration, visit, &|from| database.step(from))
    }

    fn some(database: &HashDatabase, iteration: &mut LogIteration, met: &mut Vec<u32>) -> bool {
        let note = &mut |key: &[u8]| met.push(number(key));
        step(database, iteration, note).unwrap()
    }

    fn rest(database: &HashDatabase, iteration: &mut LogIteration) -> Vec<u32> {
        let mut met = Vec::new();
        while some(database, iteration, &mut met) {}
        met
    }

    /// Begins an iteration. Returns it with the keys that it has visited.
    fn begun(database: &HashDatabase) -> (LogIteration, Vec<u32>) {
        let (mut iteration, mut met) = (begin(database), Vec::new());
        while met.is_empty() {
            assert!(some(database, &mut iteration, &mut met));
        }
        (iteration, met)
    }

    fn is_in_index(iteration: &LogIteration) -> bool {
        matches!(iteration.stage, Stage::InIndex(..))
    }

    fn counts(met: &[u32]) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        met.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
        counts
    }

    #[test]
    fn keys_are_met_in_the_order_in_which_they_were_stored_from_any_of_them_on() {
        let database = open(&FaultyStorage::new());
        let numbers: Vec<u32> = (0..3000).map(|number: u32| number.wrapping_mul(0x9e37)).collect();
        for (index, number) in numbers.iter().enumerate() {
            // Some are larger than one read of the reader.
            put(&database, *number, &vec![1; if index % 500 == 0 { 30_000 } else { 50 }]);
        }
        let iteration = &mut begin(&database);
        assert!(rest(&database, iteration) == numbers);
        assert!(!some(&database, iteration, &mut Vec::new()));
        let from = |key: &[u8]| {
            let index_key = database.engine().index.index_key(key).unwrap();
            database.engine().iteration(Some((index_key, key))).unwrap()
        };
        for index in [0, 1, 777, 2999] {
            let key = numbers[index].to_be_bytes();
            let mut iteration = from(&key);
            assert!(rest(&database, &mut iteration) == numbers[index..]);
        }
        let mut not_found = from(b"none");
        assert!(rest(&database, &mut not_found).is_empty());
        let other = open(&FaultyStorage::new());
        step(&other, &mut begin(&database), &mut |_| ()).unwrap_err();
        other.step_iteration(&mut IterationState::new(0), &mut |_| ()).unwrap_err();
    }

    #[test]
    fn each_key_is_met_once_wherever_its_record_goes_between_the_steps() {
        let storage = FaultyStorage::new();
        for turn in 0..12 {
            let database = filled(&storage, 3000);
            let (mut iteration, mut met) = begun(&database);
            let mut step = 0_u32;
            while some(&database, &mut iteration, &mut met) {
                step += 1;
                change_between_steps(&database, step, turn);
                assert!(!is_in_index(&iteration) && step < 1000);
            }
            met.sort_unstable();
            assert!(met.into_iter().eq(0..3000), "{turn}");
            database.replace_all(&crate::Batch::new()).unwrap();
        }
    }

    #[test]
    fn each_key_is_met_once_beside_writers_and_the_compactor() {
        const RECORDS: u32 = 3000;
        let database = filled(&FaultyStorage::new(), RECORDS);
        scan_beside_writers_and_the_compactor(&database, RECORDS, || {
            let mut met = rest(&database, &mut begin(&database));
            met.sort_unstable();
            assert!(met.into_iter().eq(0..RECORDS));
        });
    }

    #[test]
    fn an_idle_iteration_holds_no_segment() {
        let database = filled(&FaultyStorage::new(), 3000);
        let (mut iteration, mut met) = begun(&database);
        let segments = database.engine().log.segments().in_order();
        let within = Arc::downgrade(&segments[0]);
        drop(segments);
        // The records left in the first segment move.
        (0..3000).step_by(2).for_each(|number| put(&database, number, b""));
        database.optimize(None).unwrap();
        // Removed segments are released in the background.
        database.run_maintenance().unwrap();
        assert!(within.upgrade().is_none());
        met.extend(rest(&database, &mut iteration));
        met.sort_unstable();
        assert!(met.into_iter().eq(0..3000));
    }

    #[test]
    fn writers_look_at_no_iteration_that_is_dropped_or_over() {
        let database = filled(&FaultyStorage::new(), 3000);
        let is_any = || database.engine().scans.is_any();
        let mut iteration = begin(&database);
        assert!(!is_any(), "it has not begun");
        assert!(some(&database, &mut iteration, &mut Vec::new()));
        assert!(is_any());
        drop(iteration);
        assert!(!is_any());
        let mut over = begin(&database);
        rest(&database, &mut over);
        assert!(!is_any());
    }

    #[test]
    fn one_iteration_too_many_sends_the_longest_idle_one_through_the_index() {
        let database = filled(&FaultyStorage::new(), 3000);
        let mut iterations: Vec<_> = (0..ITERATIONS_MAX).map(|_| begun(&database)).collect();
        // The first one is used again, so the second one is idle longest.
        let (first, met) = &mut iterations[0];
        assert!(some(&database, first, met));
        iterations.push(begun(&database));
        for (index, (mut iteration, mut met)) in iterations.into_iter().enumerate() {
            // Visited records, others, and a new one.
            for number in (0..3000).step_by(3) {
                put(&database, number, b"moved");
            }
            put(&database, 5000, b"new");
            assert!(some(&database, &mut iteration, &mut met));
            assert_eq!(is_in_index(&iteration), index == 1);
            let shown = counts(&met);
            // The iteration ends although a writer continues.
            while some(&database, &mut iteration, &mut met) {
                put(&database, 2999, b"again and again");
            }
            let counts = counts(&met);
            assert!((0..3000).all(|number| counts.contains_key(&number)), "{index}");
            for (number, count) in counts {
                let may_be_twice = index == 1 && number.is_multiple_of(3);
                let is_twice = may_be_twice && shown.contains_key(&number);
                assert!(count == 1 || is_twice && count == 2, "{index}: {number}, {count} times");
            }
        }
        assert!(!database.engine().scans.is_any());
    }

    #[test]
    fn an_idle_iteration_is_given_up_at_the_limit_of_names() {
        const COUNT: u32 = ITERATION_NAMES_MAX as u32 + 2000;
        let options = Options::default();
        let storage = Arc::new(FaultyStorage::new());
        let path = Path::new("casket.tch");
        let database = HashDatabase::open_on(storage, path, &options, false).unwrap();
        (0..COUNT).for_each(|number| put(&database, number, b""));
        for is_over in [false, true] {
            let (mut iteration, mut met) = begun(&database);
            let others: Vec<u32> = (0..COUNT).filter(|number| !met.contains(number)).collect();
            let moves = ITERATION_NAMES_MAX + usize::from(is_over);
            others[..moves].iter().for_each(|number| put(&database, *number, b""));
            assert_eq!(database.engine().scans.is_any(), !is_over);
            // A writer changes and removes records meanwhile.
            put(&database, others[moves], b"");
            let removed = others[moves + 1];
            let remove = &mut |_: Option<crate::RecordRef<'_>>| Change::Remove;
            database.update(&removed.to_be_bytes(), Wait::Block, remove).unwrap();
            met.extend(rest(&database, &mut iteration));
            met.sort_unstable();
            put(&database, removed, b"");
            let there = (0..COUNT).filter(|number| *number != removed);
            // No visited record has moved, so the pass through the index also visits each once.
            assert!(met.into_iter().eq(there), "{is_over}");
        }
    }

    #[test]
    fn a_lost_record_is_an_error_and_damage_to_others_is_none() {
        let storage = FaultyStorage::new();
        let database = filled(&storage, 2000);
        let first = database.engine().log.segments().in_order()[0].path.clone();
        drop(database);
        storage.lose_sectors(&first, 512..1024).unwrap();
        let database = open(&storage);
        let (mut iteration, mut met) = (begin(&database), Vec::new());
        for _ in 0..2 {
            let failed = loop {
                let note = &mut |key: &[u8]| met.push(number(key));
                match step(&database, &mut iteration, note) {
                    Ok(true) => {}
                    Ok(false) => panic!("a record is lost"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(failed, Error::Corrupted { .. }), "{failed}");
        }
        (0..20).for_each(|number| put(&database, number, b"again"));
        met.extend(rest(&database, &mut iteration));
        assert!(counts(&met).into_keys().eq(0..2000), "it goes on once the record is replaced");
        let mut met = rest(&database, &mut begin(&database));
        met.sort_unstable();
        assert!(met.into_iter().eq(0..2000));
    }

    #[test]
    fn a_step_shows_a_part_of_a_long_batch_and_the_next_one_continues_there() {
        const COUNT: u32 = 2 * ITERATION_RECORDS_MAX as u32 + 1000;
        let storage = Arc::new(FaultyStorage::new());
        let path = Path::new("casket.tch");
        let options = Options::default();
        for is_all_live in [true, false] {
            let database = HashDatabase::open_on(storage.clone(), path, &options, false).unwrap();
            put(&database, COUNT, b"before");
            let mut batch = crate::Batch::new();
            (0..COUNT).for_each(|number| batch.put(&number.to_be_bytes(), b"", Meta::NONE));
            (COUNT..2 * COUNT).for_each(|number| batch.remove(&number.to_be_bytes()));
            database.write(&batch, Wait::Block).unwrap();
            put(&database, 2 * COUNT, b"after");
            if !is_all_live {
                put(&database, 0, b"moved");
            }
            let (mut iteration, mut met) = (begin(&database), Vec::new());
            loop {
                let before = met.len();
                let goes_on = some(&database, &mut iteration, &mut met);
                assert!(met.len() - before <= ITERATION_RECORDS_MAX + STEP_RECORDS);
                if !goes_on {
                    break;
                }
                // Writers change both the visited part and the rest.
                let met_last = *met.last().unwrap_or(&0);
                put(&database, met_last.saturating_sub(7), b"again");
            }
            assert!(!is_in_index(&iteration));
            met.sort_unstable();
            assert!(met.into_iter().eq((0..COUNT).chain([2 * COUNT])), "{is_all_live}");
            database.replace_all(&crate::Batch::new()).unwrap();
        }
    }

    #[test]
    fn records_beyond_the_end_of_a_shortened_file_are_errors_until_they_are_replaced() {
        let storage = FaultyStorage::new();
        let database = filled(&storage, 3000);
        let segments = database.engine().log.segments().in_order();
        let second = segments[1].path.clone();
        let length = segments[1].bytes();
        drop((segments, database));
        let file = crate::io::Storage::open(&storage, &second, crate::io::Open::Existing).unwrap();
        file.truncate(length / 2 / 4096 * 4096).unwrap();
        drop(file);
        let database = open(&storage);
        // From the beginning, from a key before the loss, and in the index from the first step on.
        for kind in 0..3 {
            let key = 3_u32.to_be_bytes();
            let index_key = database.engine().index.index_key(&key).unwrap();
            let from = (kind == 1).then_some((index_key, &key[..]));
            let mut iteration = database.engine().iteration(from).unwrap();
            assert!(some(&database, &mut iteration, &mut Vec::new()));
            if kind == 2 {
                (0..ITERATIONS_MAX).for_each(|_| drop(begun(&database)));
                let others: Vec<_> = (0..ITERATIONS_MAX).map(|_| begun(&database)).collect();
                drop(others);
            }
            for _ in 0..2 {
                let failed = loop {
                    match step(&database, &mut iteration, &mut |_| ()) {
                        Ok(true) => {}
                        Ok(false) => panic!("records are lost: {kind}"),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(failed, Error::Corrupted { .. }), "{failed}");
            }
        }
    }

    /// Scanning in the order of the index reads a page of the file per key.
    #[test]
    fn the_log_is_read_once_and_in_its_order_if_it_is_not_in_memory() {
        const RECORDS: u32 = 3000;
        let storage = FaultyStorage::new();
        let database = filled(&storage, RECORDS);
        let segments = database.engine().log.segments().in_order();
        segments.iter().for_each(|segment| segment.resident.store(false, Ordering::Relaxed));
        let read = || -> u64 {
            segments.iter().map(|segment| storage.read_bytes(&segment.path).unwrap()).sum()
        };
        let log_bytes: u64 = segments.iter().map(|segment| segment.bytes()).sum();
        let before = read();
        assert_eq!(rest(&database, &mut begin(&database)).len(), RECORDS as usize);
        let in_log_order = read() - before;
        let before = read();
        let mut position = Some(ScanCursor::Start);
        while let Some(from) = position {
            position = (&database as &dyn Engine).scan_keys(&from, &mut |_| ()).unwrap();
        }
        let in_index_order = read() - before;
        // A step reads again at most one piece, which stays in the page cache until then.
        let steps = u64::from(RECORDS) / 256 + segments.len() as u64;
        assert!(in_log_order <= log_bytes + steps * (64 << 10), "{in_log_order} of {log_bytes}");
        assert!(in_index_order > 5 * in_log_order, "{in_index_order}, {in_log_order}");
    }
}
