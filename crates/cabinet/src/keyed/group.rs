//! Group reads: several keys at once, so that their cache misses overlap and they share the work
//! that does not depend on the key.
//!
//! First the slots of all keys are fetched. Then each key is located once and its record is
//! fetched. Then the records are read. All reads use one set of segments. This is safe if the set
//! has not changed when a key is located: it then has every segment that the index points into.
//! Unusual keys are read alone: those with a table over a run, several records with their tag, a
//! lock that is held, or a record that is damaged, compressed or expired.

use super::{Index, IndexKey, KeyedEngine, ShardIndex as _};
use crate::log::{Check, Location, Segments, peek_record};
use crate::{Compression, RecordRef, VisitMany, Wait};
use std::ops::ControlFlow;

/// Most keys that are read together: about the cache misses that a processor has in flight.
pub(crate) const GROUP_KEYS_MAX: usize = 16;

/// Location of a key's record, as far as the index knows.
#[derive(Clone, Copy)]
enum Spot {
    /// No record.
    Absent,
    /// At this location, unless the record is another key's.
    At(Location),
    /// The key must be read alone.
    Unknown,
}

impl<I: Index> KeyedEngine<I> {
    /// Fetches the records of at most [`GROUP_KEYS_MAX`] index keys into the processor's cache.
    pub(crate) fn prefetch_group(&self, index_keys: &[IndexKey<I>]) {
        let changes = self.log.segment_changes();
        self.locate(index_keys, &self.log.segments(), changes);
    }

    /// Calls `visit` with the live record of each key, or with `None`, in order, until it breaks.
    /// Takes at most [`GROUP_KEYS_MAX`] keys, and an index key for each.
    pub(crate) fn read_group(
        &self,
        index_keys: &[IndexKey<I>],
        keys: &[&[u8]],
        wait: Wait,
        visit: &mut VisitMany<'_>,
    ) -> ControlFlow<()> {
        // Loaded before the set, so a change in between is noticed.
        let changes = self.log.segment_changes();
        let segments = self.log.segments();
        let spots = self.locate(index_keys, &segments, changes);
        for ((index_key, key), spot) in index_keys.iter().zip(keys).zip(spots) {
            let visited = match spot {
                Spot::Absent => Some(visit(Ok(None))),
                Spot::At(location) => self.read_at(&segments, location, key, wait, visit),
                Spot::Unknown => None,
            };
            match visited {
                Some(flow) => flow?,
                None => self.read_alone(*index_key, key, wait, visit)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Fetches the slots of some index keys into the processor's cache. Takes no lock, because each
    /// lock would wait for its cache line before the next key is fetched.
    #[inline]
    fn prefetch_slots(&self, index_keys: &[IndexKey<I>]) {
        for index_key in index_keys {
            self.shards[index_key.shard].prefetch();
        }
        for index_key in index_keys {
            self.shards[index_key.shard].prefetch_slot(index_key.tag);
        }
    }

    /// Locates the records of some index keys, and fetches them.
    #[inline]
    fn locate(
        &self,
        index_keys: &[IndexKey<I>],
        segments: &Segments,
        changes: u64,
    ) -> [Spot; GROUP_KEYS_MAX] {
        self.prefetch_slots(index_keys);
        let mut spots = [Spot::Unknown; GROUP_KEYS_MAX];
        for (spot, index_key) in spots.iter_mut().zip(index_keys) {
            *spot = self.spot(*index_key, changes);
            if let Spot::At(location) = *spot {
                Self::prefetch_record(segments, location);
            }
        }
        spots
    }

    /// Returns the location of an index key's record, unless the set of segments has changed since
    /// its count of changes was `changes`.
    #[inline]
    fn spot(&self, index_key: IndexKey<I>, changes: u64) -> Spot {
        let Some(table) = self.table_at_once(index_key.shard) else { return Spot::Unknown };
        if table.run().is_some() {
            return Spot::Unknown;
        }
        let mut matches = table.matches(index_key.tag);
        let found = (matches.next(), matches.next());
        // Checked under the lock: a segment is in the set before the index points into it.
        if self.log.segment_changes() != changes {
            return Spot::Unknown;
        }
        match found {
            (None, _) => Spot::Absent,
            (Some(found), None) => Spot::At(found.location),
            (Some(_), Some(_)) => Spot::Unknown,
        }
    }

    /// Calls `visit` with the record at a location. Returns `None` without calling it if the record
    /// is not the live record of the key, or cannot be read here.
    #[inline]
    fn read_at(
        &self,
        segments: &Segments,
        location: Location,
        key: &[u8],
        wait: Wait,
        visit: &mut VisitMany<'_>,
    ) -> Option<ControlFlow<()>> {
        let read = peek_record(segments, location, wait, Check::Whole, |record| {
            let is_plain = record.compression == Compression::None;
            if record.key != key || !is_plain || record.meta.is_expired(self.now_ms(record.meta)) {
                return None;
            }
            self.note_access(segments, location);
            let (value, meta, version) = (record.value, record.meta, record.sequence);
            Some(visit(Ok(Some(RecordRef { key: record.key, value, meta, version }))))
        });
        read.ok()??
    }

    /// Calls `visit` with the live record of a key, or with `None`.
    #[cold]
    fn read_alone(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
        visit: &mut VisitMany<'_>,
    ) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        match self.read(index_key, key, wait, &mut |entry| flow = visit(Ok(Some(entry)))) {
            Ok(true) => flow,
            Ok(false) => visit(Ok(None)),
            Err(error) => visit(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashIndex;
    use crate::io::FaultyStorage;
    use crate::{Clock, Engine as _, Error, HashDatabase, Meta, Options, Result};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Outcome of a read.
    #[derive(Debug, PartialEq, Eq)]
    enum Found {
        Record(Vec<u8>, Meta, crate::Version),
        Nothing,
        WouldBlock,
    }

    fn open(options: &Options) -> HashDatabase {
        let storage = Arc::new(FaultyStorage::new());
        HashDatabase::open_on(storage, Path::new("casket.tch"), options, false).unwrap()
    }

    fn index_key_of(database: &HashDatabase, key: &[u8]) -> IndexKey<HashIndex> {
        let index = &database.engine().index;
        index.index_key_of_name(index.name(key).unwrap())
    }

    fn found(read: Result<Option<RecordRef<'_>>>) -> Found {
        match read {
            Ok(Some(entry)) => Found::Record(entry.value.to_vec(), entry.meta, entry.version),
            Ok(None) => Found::Nothing,
            Err(Error::WouldBlock) => Found::WouldBlock,
            Err(error) => panic!("{error}"),
        }
    }

    fn read_each(database: &HashDatabase, keys: &[&[u8]], wait: Wait) -> Vec<Found> {
        let mut all = Vec::new();
        let flow = database.read_each(keys, wait, &mut |read| {
            all.push(found(read));
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
        all
    }

    fn read_alone(database: &HashDatabase, keys: &[&[u8]], wait: Wait) -> Vec<Found> {
        let read = |key: &&[u8]| {
            let mut entry = Found::Nothing;
            match database.read(key, wait, &mut |read| entry = found(Ok(Some(read)))) {
                Ok(true) => entry,
                Ok(false) => Found::Nothing,
                Err(error) => found(Err(error)),
            }
        };
        keys.iter().map(read).collect()
    }

    #[test]
    fn keys_are_read_together_as_each_of_them_is_read_alone() {
        let (clock, time) = Clock::manual(1000);
        let compression = Compression::Lz4;
        let database = open(&Options { clock, compression, ..Options::default() });
        let meta = |number: u32| Meta {
            flags: number % 3,
            expires_at_ms: if number.is_multiple_of(5) { 2000 } else { 0 },
        };
        for number in 0..100u32 {
            // Every other value is stored compressed.
            let bytes = if number.is_multiple_of(2) { 1000 } else { 3 };
            let key = number.to_le_bytes();
            database.put(&key, &vec![7; bytes], meta(number), Wait::Block).unwrap();
        }
        time.set(3000);
        // Keys from 100 on do not exist.
        let keys: Vec<[u8; 4]> = (0..130u32).map(u32::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        for count in [0, 1, 2, GROUP_KEYS_MAX - 1, GROUP_KEYS_MAX, GROUP_KEYS_MAX + 1, 130] {
            for keys in [&keys[..count], &keys[130 - count..], &[keys[1]; 3]] {
                let expected = read_alone(&database, keys, Wait::Never);
                assert_eq!(read_each(&database, keys, Wait::Never), expected);
            }
        }
        assert_eq!(read_each(&database, &keys[4..6], Wait::Block)[1], Found::Nothing, "expired");
        let held = database.engine().hold(index_key_of(&database, keys[1]).shard);
        let all = read_each(&database, &keys, Wait::Never);
        assert_eq!(all[1], Found::WouldBlock);
        assert!(all.iter().filter(|found| **found == Found::WouldBlock).count() < 10, "{all:?}");
        drop(held);
    }

    #[test]
    fn a_visitor_ends_the_read() {
        let database = open(&Options::default());
        database.put(b"key", b"value", Meta::NONE, Wait::Block).unwrap();
        let mut visited = 0;
        let flow = database.read_each(&[b"none", b"key", b"key"], Wait::Block, &mut |found| {
            visited += 1;
            match found.unwrap() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        assert!(flow.is_break() && visited == 2, "{visited}");
    }

    #[test]
    fn a_set_of_segments_that_has_changed_is_not_used() {
        let database = open(&Options { segment_bytes: Some(64 << 10), ..Options::default() });
        let engine = database.engine();
        let index_key = index_key_of(&database, b"key");
        let before = engine.log.segment_changes();
        database.put(b"key", b"value", Meta::NONE, Wait::Block).unwrap();
        let now = engine.log.segment_changes();
        assert!(matches!(engine.spot(index_key, now), Spot::At(_)));
        for _ in 0..100 {
            database.put(b"other", &[1; 1000], Meta::NONE, Wait::Block).unwrap();
        }
        assert!(engine.log.segment_changes() > now.max(before), "another segment");
        assert!(matches!(engine.spot(index_key, now), Spot::Unknown));
    }

    #[test]
    fn records_that_compaction_moves_are_found_meanwhile() {
        const KEYS: u32 = 40;
        let options = Options { segment_bytes: Some(64 << 10), ..Options::default() };
        let database = open(&options);
        let put = |number: u32, round: u32| {
            let value = [&round.to_le_bytes()[..], &[number as u8; 500]].concat();
            database.put(&number.to_le_bytes(), &value, Meta::NONE, Wait::Block).unwrap();
        };
        (0..KEYS).for_each(|number| put(number, 0));
        let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..100 {
                    // The other records move out of segments that are otherwise dead.
                    let changed = (0..KEYS).filter(|number| !number.is_multiple_of(8));
                    changed.for_each(|number| put(number, round));
                    database.run_maintenance().unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut rounds = vec![0; KEYS as usize];
            while !done.load(Ordering::Relaxed) {
                let all = read_each(&database, &keys, Wait::Block);
                for (number, (found, last)) in all.iter().zip(&mut rounds).enumerate() {
                    let Found::Record(value, ..) = found else { panic!("{number}: {found:?}") };
                    let (round, rest) = value.split_first_chunk::<4>().unwrap();
                    assert!(rest.iter().all(|byte| *byte == number as u8));
                    let round = u32::from_le_bytes(*round);
                    assert!(round >= *last, "{number} was {last} before it was {round}");
                    *last = round;
                }
            }
        });
        assert!(database.engine().log.segment_changes() > 20);
    }
}
