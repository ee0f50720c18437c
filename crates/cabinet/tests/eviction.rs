//! Promises of databases on a disk that are held to a cap on their bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/disk.rs"]
mod disk;
#[path = "model/in_runs.rs"]
mod in_runs;
#[path = "support/observed_storage.rs"]
mod observed_storage;
#[path = "support/wait.rs"]
mod wait;

use cabinet::limits::CAPACITY_BYTES_MIN;
use cabinet::testing::{FaultyStorage, Open, RealStorage, Storage};
use cabinet::{
    Batch, Clock, Database, Durability, Error, FixedDatabase, HashDatabase, KeyOrder, Meta,
    Options, TreeDatabase,
};
use disk::{DiskEngine, TableDatabase};
use observed_storage::{ObservedStorage, StorageOperation};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

type Hash = Arc<HashDatabase>;
type Runs = in_runs::HashInRuns;
type Fixed = Arc<FixedDatabase>;
type Tree = Arc<TreeDatabase>;

/// Bytes of the values that fill a database.
const VALUE_BYTES: usize = 1000;

/// So many records of those values are more than the cap.
const RECORDS: u64 = 3 * CAPACITY_BYTES_MIN / VALUE_BYTES as u64;

fn options() -> Options {
    let mut options = Options::default();
    options.capacity_bytes = CAPACITY_BYTES_MIN;
    options
}

/// A capped database without threads of its own.
fn open<E: DiskEngine>(storage: &FaultyStorage, options: &Options) -> (E, Database) {
    let engine = E::open(Arc::new(storage.clone()), options).unwrap();
    let database = engine.database();
    (engine, database)
}

/// A capped hash database with its threads, in a folder.
fn open_real(path: &Path) -> Database {
    options().open(path).unwrap()
}

/// Ids, which are keys of every kind.
fn key(number: u64) -> Vec<u8> {
    (number + 1).to_string().into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(VALUE_BYTES / 8)
}

fn evicted(database: &Database) -> u64 {
    let stat = database.stats().into_iter().find(|(name, _)| *name == "evicted");
    stat.unwrap().1.parse().unwrap()
}

/// Bytes of the blocks of all files in a folder.
fn disk_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).unwrap();
    // One that goes meanwhile takes nothing.
    files.filter_map(|file| file.unwrap().metadata().ok()).map(|file| file.blocks() * 512).sum()
}

/// Bytes of all files of a database on a storage of the test's own, with what is set aside in them,
/// but without those that keep what damage a loss of power has left.
fn stored_bytes<E: DiskEngine>(storage: &FaultyStorage) -> u64 {
    let folder = Path::new(E::PATH);
    let names = storage.list(folder).unwrap();
    let bytes_of =
        |name: &String| storage.open(&folder.join(name), Open::Existing).unwrap().length().unwrap();
    names.iter().filter(|name| !name.ends_with(".damaged")).map(bytes_of).sum()
}

fn present(database: &Database, numbers: impl IntoIterator<Item = u64>) -> usize {
    let is_there = |number: &u64| {
        let found = database.get(&key(*number)).unwrap();
        found.is_some_and(|found| {
            assert_eq!(found, value(*number));
            true
        })
    };
    numbers.into_iter().filter(is_there).count()
}

fn what_was_not_used_lately_goes_first<E: DiskEngine>(options: &Options) {
    let storage = FaultyStorage::new();
    let (_engine, database) = open::<E>(&storage, options);
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
        // One is read all the time, one written, one of which somebody asks to keep it.
        assert!(database.get(&key(0)).unwrap().is_some());
        if number % 100 == 0 {
            database.put(&key(1), &value(1)).unwrap();
            database.put_keep(&key(2), b"", Meta::NONE).unwrap();
        }
    }
    assert_eq!(present(&database, 0..3), 3);
    let left = database.len();
    assert!(left > RECORDS / 4, "{left} records fill less than three quarters of the cap");
    assert_eq!(evicted(&database), RECORDS - left);
    // The newest of the others are there, and they alone.
    assert_eq!(present(&database, RECORDS - left + 3..RECORDS) as u64, left - 3);
}

#[test]
fn what_was_not_used_lately_goes_first_of_a_hash() {
    what_was_not_used_lately_goes_first::<Hash>(&options());
}

#[test]
fn what_was_not_used_lately_goes_first_of_a_hash_with_its_index_in_runs() {
    what_was_not_used_lately_goes_first::<Runs>(&options());
}

#[test]
fn eviction_goes_on_beside_damage_of_the_index() {
    let storage = FaultyStorage::new();
    let (engine, database) = open::<Runs>(&storage, &options());
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
        if number % 1000 == 0 {
            engine.run_maintenance().unwrap();
        }
    }
    // Used ones are moved, if it is known that they are alive.
    for number in (0..RECORDS).step_by(4) {
        database.get(&key(number)).unwrap();
    }
    let path = Path::new("casket.tch/checkpoint");
    let file = storage.open(path, Open::Existing).unwrap();
    let end = file.length().unwrap() / 2;
    for offset in (100..end).step_by(500) {
        file.write_at(&[0xff; 32], offset).unwrap();
    }
    let hit = (0..RECORDS).filter(|number| database.get(&key(*number)).is_err()).count();
    assert!(hit > 100, "{hit}");
    // No writer waits for the index to be made again.
    let mut refused = 0;
    for number in RECORDS..2 * RECORDS {
        match database.put(&key(number), &value(number)) {
            Ok(_) => {}
            Err(Error::Corrupted { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused < RECORDS / 2, "{refused}");
    assert!(stored_bytes::<Runs>(&storage) <= CAPACITY_BYTES_MIN);
    engine.run_maintenance().unwrap();
    let left = database.len();
    assert_eq!(present(&database, 0..2 * RECORDS) as u64, left);
    assert!(left > RECORDS / 4, "{left}");
    // Evicted records do not count as lost.
    let stats = database.stats();
    let lost = stats.iter().find(|(name, _)| *name == "index_lost_records").unwrap();
    assert_eq!(lost.1, "0");
    database.put(&key(0), &value(0)).unwrap();
}

#[test]
fn what_was_not_used_lately_goes_first_of_a_fixed_length_database() {
    what_was_not_used_lately_goes_first::<Fixed>(&options());
}

#[test]
fn what_was_not_used_lately_goes_first_of_a_tree() {
    let mut options = options();
    // So that the newest keys are the last.
    options.order = Some(KeyOrder::Decimal);
    what_was_not_used_lately_goes_first::<Tree>(&options);
}

#[test]
fn the_files_stay_within_the_cap_whatever_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch");
    let database = open_real(&path);
    let longest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let database = database.clone();
                scope.spawn(move || {
                    for number in 0..4_000u64 {
                        // Values of all lengths, some of them over again, some removed.
                        let length = (number * 7919 % 8000) as usize;
                        let key = key(number % 2000 * 3 + thread);
                        database.put(&key, &vec![7; length]).unwrap();
                        if number % 5 == 0 {
                            database.remove(&key).unwrap();
                        }
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            longest.fetch_max(disk_bytes(&path), Ordering::Relaxed);
        }
    });
    // However seldom this thread had its turn.
    longest.fetch_max(disk_bytes(&path), Ordering::Relaxed);
    let longest = longest.into_inner();
    assert!(longest <= CAPACITY_BYTES_MIN, "{longest} bytes");
    assert!(longest >= CAPACITY_BYTES_MIN * 3 / 4, "only {longest} bytes");
    database.sync().unwrap();
    drop(database);
    assert!(disk_bytes(&path) <= CAPACITY_BYTES_MIN);
    // Over a cap, what is there is brought down to it.
    let database = Database::open(&format!("{}#capsiz=64m", path.display())).unwrap();
    for number in 0..3 * RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    assert!(disk_bytes(&path) > 2 * CAPACITY_BYTES_MIN);
    assert_eq!(present(&database, 0..3 * RECORDS) as u64, 3 * RECORDS);
    drop(database);
    let database = open_real(&path);
    database.put(b"more", b"").unwrap();
    // Maintenance may still be writing the checkpoint that takes the place of the long one.
    wait::wait_until_at_most(CAPACITY_BYTES_MIN, || disk_bytes(&path));
    assert!(database.get(b"more").unwrap().is_some());
}

#[test]
fn a_cap_may_be_set_while_the_database_is_open() {
    let storage = FaultyStorage::new();
    let mut options = options();
    options.capacity_bytes = 0;
    options.segment_bytes = Some(64 << 10);
    let (engine, database) = open::<Hash>(&storage, &options);
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    assert_eq!((evicted(&database), database.len()), (0, RECORDS));
    assert_eq!(present(&database, [0]), 1);
    database.retune(&format!("capsiz={CAPACITY_BYTES_MIN}")).unwrap();
    // Reads were not noted before.
    assert_eq!(present(&database, [1]), 1);
    engine.run_maintenance().unwrap();
    assert!(stored_bytes::<Hash>(&storage) <= CAPACITY_BYTES_MIN);
    assert_eq!(present(&database, [1]), 1);
    assert!(evicted(&database) > RECORDS / 2);
}

#[test]
fn lowering_a_cap_keeps_as_many_small_records_as_there_is_room_for() {
    // So many that a checkpoint of all would take the cap alone.
    const SMALL_RECORDS: u64 = CAPACITY_BYTES_MIN / 16 + 10_000;
    let mut options = options();
    options.capacity_bytes = 0;
    options.segment_bytes = Some(64 << 10);
    let storage = FaultyStorage::new();
    let (engine, database) = open::<Hash>(&storage, &options);
    for number in 0..SMALL_RECORDS {
        database.put(&number.to_le_bytes(), b"").unwrap();
    }
    engine.checkpoint().unwrap();
    let record_bytes = database.size_bytes() / SMALL_RECORDS;
    database.retune(&format!("capsiz={CAPACITY_BYTES_MIN}")).unwrap();
    engine.run_maintenance().unwrap();
    let room = CAPACITY_BYTES_MIN / (record_bytes + 16);
    let left = database.len();
    assert!(left <= room && left > room * 4 / 5, "{left} records, and room for {room}");
    assert!(stored_bytes::<Hash>(&storage) <= CAPACITY_BYTES_MIN);
}

/// Lowers the cap of a database of few long segments, which are longer than those of a capped one.
fn lowering_a_cap_keeps_the_newest_records_of_long_segments<E: DiskEngine>(segment_bytes: u32) {
    let mut options = options();
    options.capacity_bytes = 0;
    options.segment_bytes = Some(segment_bytes);
    let storage = FaultyStorage::new();
    let (engine, database) = open::<E>(&storage, &options);
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    database.retune(&format!("capsiz={CAPACITY_BYTES_MIN}")).unwrap();
    engine.run_maintenance().unwrap();
    let stored = stored_bytes::<E>(&storage);
    assert!(stored <= CAPACITY_BYTES_MIN, "{stored} bytes of {segment_bytes}");
    let left = database.len();
    let room = CAPACITY_BYTES_MIN / VALUE_BYTES as u64;
    assert!(left > room * 3 / 4, "{left} records of {segment_bytes}, and room for {room}");
    assert_eq!(evicted(&database), RECORDS - left);
    assert_eq!(present(&database, RECORDS - left..RECORDS) as u64, left);
    // And it goes on from there.
    for number in RECORDS..2 * RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    engine.run_maintenance().unwrap();
    assert!(stored_bytes::<E>(&storage) <= CAPACITY_BYTES_MIN);
    assert_eq!(present(&database, 2 * RECORDS - room / 2..2 * RECORDS) as u64, room / 2);
}

#[test]
fn lowering_a_cap_keeps_the_newest_records_of_long_segments_of_a_hash() {
    for segment_bytes in [1 << 20, 3 << 20, 8 << 20, 64 << 20] {
        lowering_a_cap_keeps_the_newest_records_of_long_segments::<Hash>(segment_bytes);
    }
}

#[test]
fn lowering_a_cap_keeps_the_newest_records_of_long_segments_of_a_fixed_length_database() {
    lowering_a_cap_keeps_the_newest_records_of_long_segments::<Fixed>(64 << 20);
}

#[test]
fn a_database_that_is_opened_for_reading_evicts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["casket.tch", "casket.tcf", "casket.tcb", "casket.tct"] {
        let path = folder.path().join(name);
        let limit = |options: &Options| {
            let database = options.open(&path).unwrap();
            let stat = database.stats().into_iter().find(|(name, _)| *name == "limit_bytes");
            stat.unwrap().1
        };
        assert_eq!(limit(&options()), CAPACITY_BYTES_MIN.to_string());
        let mut options = options();
        options.read_only = true;
        assert_eq!(limit(&options), "0");
    }
}

#[test]
fn on_a_disk_that_others_have_filled_no_writer_is_refused_while_something_can_be_evicted() {
    let storage = FaultyStorage::new();
    storage.faults().space_bytes.store(CAPACITY_BYTES_MIN / 2, Ordering::Relaxed);
    let (engine, database) = open::<Hash>(&storage, &options());
    let (mut puts, mut updates) = (0, 0);
    for number in 0..RECORDS {
        match number % 3 {
            0 => database.put(&key(number), &value(number)).map(|_| puts += 1).unwrap(),
            1 => {
                // It is asked once, also where it has to wait for space.
                let mut decide = |_: Option<cabinet::RecordRef<'_>>| {
                    updates += 1;
                    cabinet::Change::Put(value(number), Meta::NONE)
                };
                let key = key(number);
                engine.engine().update(&key, cabinet::Wait::Block, &mut decide).unwrap();
            }
            _ => {
                let mut batch = Batch::new();
                batch.put(&key(number), &value(number), Meta::NONE);
                database.write(&batch).unwrap();
            }
        }
        assert!(database.get(&key(number)).unwrap().is_some());
    }
    assert_eq!((puts, updates), (RECORDS.div_ceil(3), RECORDS / 3));
    assert!(evicted(&database) > RECORDS / 2);
}

#[test]
fn a_record_over_a_quarter_of_the_cap_is_refused_and_evicts_nothing() {
    let storage = FaultyStorage::new();
    let (_engine, database) = open::<Hash>(&storage, &options());
    database.put(b"a", b"value").unwrap();
    let most = CAPACITY_BYTES_MIN as usize / 4;
    let overhead = 32;
    for too_long in [most, CAPACITY_BYTES_MIN as usize, 3 * CAPACITY_BYTES_MIN as usize] {
        let refused = database.put(b"b", &vec![1; too_long]);
        assert!(matches!(refused, Err(Error::ValueTooLong { .. })), "{refused:?}");
        assert!(database.put_cat(b"a", &vec![1; too_long]).is_err());
    }
    let mut batch = Batch::new();
    batch.put(b"c", &vec![1; most / 2], Meta::NONE);
    batch.put(b"d", &vec![1; most / 2], Meta::NONE);
    assert!(matches!(database.write(&batch), Err(Error::ValueTooLong { .. })));
    assert_eq!(database.get(b"a").unwrap().unwrap(), b"value");
    assert_eq!((database.len(), evicted(&database)), (1, 0));
    for number in 0..20u64 {
        database.put(&key(number), &vec![2; most - overhead]).unwrap();
        assert!(database.get(&key(number)).unwrap().is_some(), "the newest is there");
        let bytes = stored_bytes::<Hash>(&storage);
        assert!(bytes <= CAPACITY_BYTES_MIN + most as u64, "{bytes}: and one too many");
    }
    database.put(b"small", b"").unwrap();
    assert!(stored_bytes::<Hash>(&storage) <= CAPACITY_BYTES_MIN);
}

#[test]
fn what_has_expired_goes_before_what_has_not() {
    let storage = FaultyStorage::new();
    let (clock, time) = Clock::manual(1000);
    let mut options = options();
    options.clock = clock;
    let (engine, database) = open::<Hash>(&storage, &options);
    let kept = RECORDS / 10;
    for number in 0..kept {
        database.put(&key(number), &value(number)).unwrap();
    }
    for number in kept..2 * kept {
        let meta = Meta { flags: 0, expires_at_ms: 2000 };
        database.put_with(&key(number), &value(number), meta).unwrap();
    }
    time.set(3000);
    engine.run_maintenance().unwrap();
    // As much as there is room for without what has expired.
    for number in 2 * kept..RECORDS / 4 {
        database.put(&key(number), &value(number)).unwrap();
        engine.run_maintenance().unwrap();
    }
    assert_eq!(evicted(&database), 0);
    assert_eq!(present(&database, 0..kept) as u64, kept);
}

#[test]
fn records_that_are_written_all_the_time_do_not_push_out_the_others() {
    let storage = FaultyStorage::new();
    let (engine, database) = open::<Hash>(&storage, &options());
    let kept = CAPACITY_BYTES_MIN / 2 / VALUE_BYTES as u64;
    for number in 0..kept {
        database.put(&key(number), &value(number)).unwrap();
    }
    for number in 0..3 * RECORDS {
        database.put(&key(kept + number % 10), &value(number)).unwrap();
        if number % 1000 == 0 {
            engine.run_maintenance().unwrap();
        }
    }
    assert_eq!(present(&database, 0..kept) as u64, kept);
    assert_eq!(evicted(&database), 0);
}

#[test]
fn a_damaged_segment_goes_in_its_turn() {
    let storage = FaultyStorage::new();
    {
        let (_engine, database) = open::<Hash>(&storage, &options());
        for number in 0..RECORDS / 8 {
            database.put(&key(number), &value(number)).unwrap();
        }
    }
    let storage = storage.kill();
    {
        let file = storage.open(Path::new("casket.tch/0000000002.log"), Open::Existing).unwrap();
        file.write_at(&[0xff; 8], 20_000).unwrap();
    }
    let (_engine, database) = open::<Hash>(&storage, &options());
    for number in RECORDS..2 * RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    assert!(database.size_bytes() <= CAPACITY_BYTES_MIN);
    assert_eq!(present(&database, 0..RECORDS / 8), 0);
    let left = database.len();
    assert_eq!(present(&database, 2 * RECORDS - left..2 * RECORDS) as u64, left);
}

// Whatever befalls it.

/// One thing that happens to a capped database.
#[derive(Clone, Debug)]
enum Event {
    /// So many records of some length are put, from this key on.
    Put {
        first: u8,
        count: u8,
        length: u16,
    },
    Batch {
        first: u8,
        count: u8,
    },
    Read {
        first: u8,
        count: u8,
    },
    Remove {
        first: u8,
        count: u8,
    },
    Maintain,
    Checkpoint,
    Acknowledge,
    Reopen,
    Crash(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let span = || (any::<u8>(), 1u8..100);
    let event = prop_oneof![
        12 => (any::<u8>(), 1u8..100, 0u16..30_000)
            .prop_map(|(first, count, length)| Event::Put { first, count, length }),
        1 => (any::<u8>(), 1u8..20).prop_map(|(first, count)| Event::Batch { first, count }),
        6 => span().prop_map(|(first, count)| Event::Read { first, count }),
        2 => span().prop_map(|(first, count)| Event::Remove { first, count }),
        2 => Just(Event::Maintain),
        1 => Just(Event::Checkpoint),
        1 => Just(Event::Acknowledge),
        1 => Just(Event::Reopen),
        2 => any::<u64>().prop_map(Event::Crash),
    ];
    proptest::collection::vec(event, 1..60)
}

/// Values that may be under a key.
#[derive(Clone, Default)]
struct Known {
    /// Changes from the last acknowledged one on: the number that was put, or `None`.
    states: Vec<Option<u64>>,
}

struct History<E> {
    storage: FaultyStorage,
    options: Options,
    opened: Option<(E, Database)>,
    known: BTreeMap<u8, Known>,
    /// Puts are numbered, and a value says which it is of.
    puts: u64,
    /// Most bytes of all files.
    files_bytes_max: u64,
}

impl<E: DiskEngine> History<E> {
    fn new(durability: Durability, files_bytes_max: u64) -> Self {
        let mut options = options();
        options.durability = durability;
        options.set_eager_append_blocks(true);
        let storage = FaultyStorage::new();
        let known = BTreeMap::new();
        let mut history = Self { storage, options, opened: None, known, puts: 0, files_bytes_max };
        history.open();
        history
    }

    fn open(&mut self) {
        self.opened = None;
        let (engine, database) = open::<E>(&self.storage, &self.options);
        // Space that was set aside in files and not used is given back at once.
        engine.run_maintenance().unwrap();
        self.opened = Some((engine, database.deferred()));
    }

    fn database(&self) -> Database {
        self.opened.as_ref().unwrap().1.clone()
    }

    fn key(number: u8) -> Vec<u8> {
        key(u64::from(number))
    }

    fn next_value(&mut self, length: u16) -> Vec<u8> {
        self.puts += 1;
        // It is a row, too.
        let mut value = format!("n\0{:08}", self.puts).into_bytes();
        value.resize(value.len() + usize::from(length), b'x');
        value
    }

    fn note(&mut self, number: u8, state: Option<u64>) {
        let known = self.known.entry(number).or_default();
        known.states.push(state);
        if self.options.durability == Durability::None {
            known.states.drain(..known.states.len() - 1);
        }
    }

    /// Reads a record: it is the newest or, having been evicted, not there, and then not there
    /// before it is put again.
    fn check(&mut self, number: u8) {
        let found = self.found(number);
        let newest = self.known.get(&number).and_then(|known| *known.states.last()?);
        match found {
            Some(found) => assert_eq!(Some(found), newest, "of {number}"),
            None if newest.is_some() => self.note(number, None),
            None => {}
        }
    }

    fn found(&self, number: u8) -> Option<u64> {
        let found = self.database().get(&Self::key(number)).unwrap();
        found.map(|value| std::str::from_utf8(&value[2..10]).unwrap().parse().unwrap())
    }

    /// After a crash: none that is older than what was acknowledged. One that was evicted without
    /// anybody's having noticed may be gone.
    fn resolve(&mut self) {
        for number in 0..=u8::MAX {
            let found = self.found(number);
            let known = self.known.entry(number).or_default();
            let is_possible = found.is_none() || known.states.contains(&found);
            assert!(is_possible, "{number} is {found:?}, none of {:?}", known.states);
            known.states = vec![found];
        }
    }

    fn step(&mut self, event: &Event) {
        let span = |first: u8, count: u8| (0..count).map(move |offset| first.wrapping_add(offset));
        match event {
            Event::Put { first, count, length } => {
                for number in span(*first, *count) {
                    let value = self.next_value(*length);
                    self.database().put(&Self::key(number), &value).unwrap();
                    self.note(number, Some(self.puts));
                    self.check(number);
                }
            }
            Event::Batch { first, count } => {
                let mut batch = Batch::new();
                let mut put = Vec::new();
                for number in span(*first, *count) {
                    batch.put(&Self::key(number), &self.next_value(100), Meta::NONE);
                    put.push((number, self.puts));
                }
                self.database().write(&batch).unwrap();
                for (number, put) in put {
                    self.note(number, Some(put));
                }
            }
            Event::Read { first, count } => {
                span(*first, *count).for_each(|number| self.check(number));
            }
            Event::Remove { first, count } => {
                for number in span(*first, *count) {
                    // Whether there was one or not, there is none from now on.
                    self.database().remove(&Self::key(number)).unwrap();
                    self.note(number, None);
                }
            }
            Event::Maintain => self.opened.as_ref().unwrap().0.run_maintenance().unwrap(),
            Event::Checkpoint => self.opened.as_ref().unwrap().0.checkpoint().unwrap(),
            Event::Acknowledge => {
                let database = self.database();
                database.wait_durable(database.appended()).unwrap();
                for known in self.known.values_mut() {
                    known.states.drain(..known.states.len().saturating_sub(1));
                }
            }
            Event::Reopen => {
                self.open();
                for number in 0..=u8::MAX {
                    self.check(number);
                }
            }
            Event::Crash(seed) => {
                let mut chance = *seed;
                let storage = match self.options.durability {
                    Durability::None => self.storage.kill(),
                    _ => self.storage.lose_power(|| {
                        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        chance >> 33
                    }),
                };
                self.storage = storage;
                self.open();
                self.resolve();
            }
        }
        let size = stored_bytes::<E>(&self.storage);
        assert!(size <= self.files_bytes_max, "{size} bytes after {event:?}");
    }
}

fn nothing_old_comes_back<E: DiskEngine>(durability: Durability, files_bytes_max: u64) {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 12;
    }
    proptest!(config, |(events in events())| {
        let mut history = History::<E>::new(durability, files_bytes_max);
        for event in &events {
            history.step(event);
        }
    });
}

#[test]
fn nothing_old_comes_back_in_a_hash_that_is_killed() {
    nothing_old_comes_back::<Hash>(Durability::None, CAPACITY_BYTES_MIN);
}

#[test]
fn nothing_old_comes_back_in_a_hash_that_loses_power() {
    nothing_old_comes_back::<Hash>(Durability::Always, CAPACITY_BYTES_MIN);
}

#[test]
fn nothing_old_comes_back_in_a_hash_with_its_index_in_runs_that_is_killed() {
    nothing_old_comes_back::<Runs>(Durability::None, CAPACITY_BYTES_MIN);
}

#[test]
fn nothing_old_comes_back_in_a_hash_with_its_index_in_runs_that_loses_power() {
    nothing_old_comes_back::<Runs>(Durability::Always, CAPACITY_BYTES_MIN);
}

#[test]
fn nothing_old_comes_back_in_a_fixed_length_database_that_is_killed() {
    nothing_old_comes_back::<Fixed>(Durability::None, CAPACITY_BYTES_MIN);
}

#[test]
fn nothing_old_comes_back_in_a_fixed_length_database_that_loses_power() {
    nothing_old_comes_back::<Fixed>(Durability::Always, CAPACITY_BYTES_MIN);
}

#[test]
fn nothing_old_comes_back_in_a_tree_that_is_killed() {
    nothing_old_comes_back::<Tree>(Durability::None, u64::MAX);
}

#[test]
fn nothing_old_comes_back_in_a_tree_that_loses_power() {
    nothing_old_comes_back::<Tree>(Durability::Always, u64::MAX);
}

#[test]
fn nothing_old_comes_back_in_a_table_that_is_killed() {
    nothing_old_comes_back::<TableDatabase>(Durability::None, u64::MAX);
}

#[test]
fn nothing_old_comes_back_in_a_table_that_loses_power() {
    nothing_old_comes_back::<TableDatabase>(Durability::Always, u64::MAX);
}

#[test]
fn what_was_not_there_is_not_there_after_a_crash_while_a_segment_goes() {
    let storage = FaultyStorage::new();
    let running: Arc<OnceLock<Database>> = Arc::default();
    let crashes = Arc::new(AtomicU64::new(0));
    let (here, counted, killed) = (Arc::clone(&running), Arc::clone(&crashes), storage.clone());
    let watch = move |step| {
        let Some(running) = here.get().filter(|_| step == StorageOperation::Remove) else { return };
        // A checkpoint leaves a file that is removed, too, and there are many segments.
        if counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(32) {
            let (_engine, left) = open::<Hash>(&killed.kill(), &options());
            let is_there =
                |database: &Database, number: u64| database.get(&key(number)).unwrap().is_some();
            let back =
                (0..RECORDS).find(|number| is_there(&left, *number) && !is_there(running, *number));
            assert_eq!(back, None, "it came back");
        }
    };
    let observed = Arc::new(ObservedStorage { storage, watch: Arc::new(watch) });
    let engine = Arc::<HashDatabase>::open(observed, &options()).unwrap();
    let database = engine.database();
    assert!(running.set(database.clone()).is_ok());
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    assert!(crashes.load(Ordering::Relaxed) > 64);
}

#[test]
fn a_database_on_a_real_disk_is_what_it_was_after_it_was_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch");
    let open = || {
        let engine =
            HashDatabase::open_on(Arc::new(RealStorage), &path, &options(), false).unwrap();
        Database::from_engine(Arc::new(engine))
    };
    let left = {
        let database = open();
        for number in 0..RECORDS {
            database.put(&key(number), &value(number)).unwrap();
        }
        database.len()
    };
    let database = open();
    assert!(database.len() <= left && database.len() >= left * 9 / 10);
    assert_eq!(present(&database, RECORDS - database.len()..RECORDS) as u64, database.len());
}

/// An eviction makes names durable, too. A sync beside it is done only when they are: the power may
/// go as soon as it is.
#[test]
fn a_sync_beside_an_eviction_covers_the_names_of_the_segments() {
    let storage = FaultyStorage::new();
    let is_armed = Arc::new(AtomicBool::new(false));
    let (reached, is_reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (armed, may_go_on) = (Arc::clone(&is_armed), Mutex::new(may_go_on));
    let watch = move |step| {
        if step == StorageOperation::SyncNames && armed.swap(false, Ordering::AcqRel) {
            reached.send(()).unwrap();
            let _ = may_go_on.lock().unwrap().recv();
        }
    };
    let observed = Arc::new(ObservedStorage { storage: storage.clone(), watch: Arc::new(watch) });
    let mut options = options();
    options.durability = Durability::None;
    let engine = Arc::<HashDatabase>::open(observed, &options).unwrap();
    let database = engine.database();
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    is_armed.store(true, Ordering::Release);
    let last = AtomicU64::new(RECORDS - 1);
    let left = thread::scope(|scope| {
        scope.spawn(|| {
            for number in RECORDS.. {
                database.put(&key(number), &value(number)).unwrap();
                if !is_armed.load(Ordering::Acquire) {
                    return;
                }
                last.store(number, Ordering::Release);
            }
        });
        is_reached.recv_timeout(Duration::from_secs(120)).unwrap();
        let (done, is_done) = mpsc::channel();
        let database = &database;
        scope.spawn(move || {
            database.sync().unwrap();
            done.send(()).unwrap();
        });
        // It waits for the names, or has ended without them.
        if is_done.recv_timeout(Duration::from_millis(500)).is_err() {
            go_on.send(()).unwrap();
            is_done.recv_timeout(Duration::from_secs(120)).unwrap();
        }
        let left = storage.lose_power(|| 1);
        drop(go_on);
        left
    });
    let last = last.load(Ordering::Acquire);
    let (_engine, database) = open::<Hash>(&left, &options);
    assert_eq!(database.get(&key(last)).unwrap(), Some(value(last)), "it was synced");
}
