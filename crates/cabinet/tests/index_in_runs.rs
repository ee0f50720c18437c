//! Hash databases whose index does not fit into the memory that it may use.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::io::{FaultyStorage, Open, Storage};
use cabinet::{
    Batch, Engine, Error, HashDatabase, Maintenance, Meta, Options, Visitor, Wait, Wanted,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const RECORDS: u32 = 300_000;

/// Memory of the index of a quarter of the records.
const BUDGET_BYTES: u64 = 1 << 20;

const CHECKPOINT: &str = "casket.tch/checkpoint";

fn options(budget: u64) -> Options {
    let mut options = Options::default();
    options.index_bytes = Some(budget);
    options
}

fn open(storage: &FaultyStorage, budget: u64) -> HashDatabase {
    let storage = Arc::new(storage.clone());
    HashDatabase::open_on(storage, Path::new("casket.tch"), &options(budget), false).unwrap()
}

fn put(database: &HashDatabase, number: u32, value: u32) {
    let (key, value) = (number.to_be_bytes(), value.to_be_bytes());
    database.put(&key, &value, Meta::NONE, Wait::Block).unwrap();
}

fn remove(database: &HashDatabase, number: u32) {
    let mut batch = Batch::new();
    batch.remove(&number.to_be_bytes());
    database.write(&batch).unwrap();
}

fn get(database: &HashDatabase, number: u32) -> cabinet::Result<Option<u32>> {
    let mut value = None;
    database.read(&number.to_be_bytes(), Wait::Block, &mut |entry| {
        value = Some(u32::from_be_bytes(entry.value.try_into().unwrap()));
    })?;
    Ok(value)
}

fn figure(database: &HashDatabase, name: &str) -> u64 {
    let figures = database.figures();
    let (_, value) = figures.iter().find(|(other, _)| *other == name).unwrap();
    value.parse().unwrap()
}

fn all(database: &HashDatabase) -> BTreeMap<u32, u32> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let mut met = BTreeMap::new();
    let mut scan = database.full_scan(Wanted::Records, true).unwrap();
    let mut count = 0;
    while scan
        .step(&mut |entry| {
            count += 1;
            met.insert(number(entry.key), number(entry.value));
        })
        .unwrap()
    {}
    assert_eq!(met.len(), count, "met twice");
    met
}

/// A database that was closed.
fn filled(records: u32) -> FaultyStorage {
    let storage = FaultyStorage::new();
    let database = open(&storage, u64::MAX);
    (0..records).for_each(|number| put(&database, number, number));
    drop(database);
    storage
}

#[test]
fn memory_is_bounded_and_all_is_there_through_changes_kills_and_a_lost_checkpoint() {
    let storage = filled(RECORDS);
    let mut storage = storage.kill();
    let mut expected: BTreeMap<u32, u32> = (0..RECORDS).map(|number| (number, number)).collect();
    let check = |database: &HashDatabase, expected: &BTreeMap<u32, u32>| {
        assert_eq!(figure(database, "index_on_disk"), 1);
        let bytes = figure(database, "index_bytes");
        assert!(bytes <= 2 * BUDGET_BYTES, "{bytes}");
        assert_eq!(database.len(), expected.len() as u64);
        for number in (0..2 * RECORDS).step_by(997) {
            assert_eq!(get(database, number).unwrap(), expected.get(&number).copied(), "{number}");
        }
    };
    for round in 1..=3 {
        let database = open(&storage, BUDGET_BYTES);
        check(&database, &expected);
        for number in (round..RECORDS).step_by(41) {
            put(&database, number, number + round);
            expected.insert(number, number + round);
            put(&database, RECORDS + number, round);
            expected.insert(RECORDS + number, round);
            if number % 3 == 0 {
                remove(&database, number);
                expected.remove(&number);
            }
            if number.is_multiple_of(16_384) {
                database.tend().unwrap();
            }
        }
        database.tend().unwrap();
        check(&database, &expected);
        for number in (0..RECORDS).step_by(1009) {
            put(&database, number, round);
            expected.insert(number, round);
        }
        storage = storage.kill();
        drop(database);
        if round == 2 {
            storage.remove(Path::new(CHECKPOINT)).unwrap();
        }
    }
    let database = open(&storage, BUDGET_BYTES);
    check(&database, &expected);
    assert!(all(&database) == expected);
}

#[test]
fn an_index_that_outgrows_its_memory_goes_to_the_disk_and_comes_back_with_more_memory() {
    let storage = FaultyStorage::new();
    let database = open(&storage, BUDGET_BYTES);
    let mut number = 0;
    while figure(&database, "index_on_disk") == 0 {
        assert!(number < 400_000);
        (number..number + 10_000).for_each(|number| put(&database, number, number));
        number += 10_000;
        database.tend().unwrap();
    }
    assert!(number >= 60_000, "{number}");
    (0..number).for_each(|number| assert_eq!(get(&database, number).unwrap(), Some(number)));
    drop(database);
    let database = open(&storage, u64::MAX);
    assert_eq!(figure(&database, "index_on_disk"), 0);
    assert_eq!(all(&database).len(), number as usize);
}

#[test]
fn a_thread_that_must_not_wait_does_not_read_the_index_from_the_disk() {
    let storage = filled(10_000);
    let database = open(&storage, 0);
    assert_eq!(figure(&database, "index_on_disk"), 1);
    let at_once = |number: u32| database.read(&number.to_be_bytes(), Wait::Never, &mut |_| ());
    assert!(at_once(7).unwrap());
    storage.faults().cold.store(true, Ordering::Relaxed);
    assert!(matches!(at_once(7), Err(Error::WouldBlock)));
    assert_eq!(get(&database, 7).unwrap(), Some(7));
}

#[test]
fn a_damaged_page_of_the_index_costs_its_records_until_the_index_is_made_from_the_log() {
    for is_unreadable in [false, true] {
        let storage = filled(10_000);
        let path = Path::new(CHECKPOINT);
        if is_unreadable {
            storage.lose_sectors(path, 40_960..45_056).unwrap();
        } else {
            let file = storage.open(path, Open::Existing).unwrap();
            // Longer than the header of a block.
            let mut bytes = [0; 16];
            file.read_at(&mut bytes, 41_000).unwrap();
            file.write_at(&bytes.map(|byte| byte ^ 4), 41_000).unwrap();
        }
        let database = open(&storage, 0);
        let is_hit = |number| matches!(get(&database, number), Err(Error::Corrupted { .. }));
        let hit = (0..10_000).filter(|number| is_hit(*number)).count();
        assert!((1..=512).contains(&hit), "{hit}");
        let added = (20_000..).find(|number| !is_hit(*number)).unwrap();
        put(&database, added, 1);
        drop(database);
        let database = open(&storage, 0);
        assert_eq!(database.len(), 10_001);
        assert_eq!(all(&database).len(), 10_001);
    }
}

#[test]
fn keys_are_met_once_each_in_the_order_of_hashes_however_many_are_changed_meanwhile() {
    let storage = filled(20_000);
    let database = open(&storage, 0);
    let mut position = cabinet::Position::Start;
    let mut met = BTreeMap::new();
    let mut step = 0;
    while let Some(next) = database
        .scan(&position, Visitor::Keys(&mut |key| *met.entry(key.to_vec()).or_insert(0) += 1))
        .unwrap()
    {
        position = next;
        step += 1;
        put(&database, step * 7, step);
        remove(&database, 19_999 - step);
        if step % 100 == 0 {
            database.tend().unwrap();
        }
    }
    assert!(met.values().all(|count| *count == 1));
    let steps = step as usize;
    assert!(met.len() >= 20_000 - steps && steps > 500, "{} {steps}", met.len());
}

/// Makes a checkpoint one of an older version, without a directory.
fn take_directory(storage: &FaultyStorage) {
    const TRAILER_BYTES: usize = 16;
    let file = storage.open(Path::new(CHECKPOINT), Open::Existing).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let trailer = bytes.len() - TRAILER_BYTES;
    let lines = word(&bytes, trailer) as usize;
    let directory_bytes = 8 + 8 * word(&bytes, lines - 8) as usize;
    let mut old = bytes[..lines - directory_bytes].to_vec();
    old.extend_from_slice(&bytes[lines..trailer]);
    let mut end = ((lines - directory_bytes) as u64).to_le_bytes().to_vec();
    end.extend_from_slice(&bytes[trailer + 8..trailer + 12]);
    let sum = crc32c::crc32c(&bytes[..48]);
    let sum = crc32c::crc32c_append(sum, &bytes[lines..trailer]);
    end.extend_from_slice(&crc32c::crc32c_append(sum, &end).to_le_bytes());
    old.extend_from_slice(&end);
    file.truncate(0).unwrap();
    file.write_at(&old, 0).unwrap();
}

#[test]
fn a_checkpoint_of_an_older_version_is_taken() {
    for budget in [0, u64::MAX] {
        let storage = filled(10_000);
        take_directory(&storage);
        // Without its checkpoint the database would not have these.
        storage.remove(Path::new("casket.tch/0000000001.log")).unwrap();
        let database = open(&storage, budget);
        assert_eq!(figure(&database, "index_on_disk"), u64::from(budget == 0));
        assert_eq!(database.len(), 10_000);
    }
}

#[test]
fn nothing_comes_back_if_a_merge_runs_while_all_records_are_removed() {
    let database = open(&filled(20_000), 0);
    let is_over = AtomicBool::new(false);
    let after_clear = || -> cabinet::Result<u64> {
        (0..2000).for_each(|number| put(&database, number, number));
        database.replace_all(&Batch::new())?;
        let mut scan = database.full_scan(Wanted::Keys, true)?;
        let mut met = database.len();
        while scan.step_keys(&mut |_| met += 1)? {}
        Ok(met)
    };
    let outcomes = std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| -> cabinet::Result<u32> {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                database.checkpoint()?;
                written += 1;
            }
            Ok(written)
        });
        // The thread is to end whatever comes out.
        let outcomes: Vec<_> = (0..20).map(|_| after_clear()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(checkpoints.join().unwrap().unwrap() > 0);
        outcomes
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(0))), "{outcomes:?}");
}
