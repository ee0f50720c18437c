//! Hash databases whose index does not fit into the memory that it may use.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{
    Batch, Clock, Engine, Error, HashDatabase, Maintenance, Meta, Options, Visitor, Wait, Wanted,
};
use proptest::prelude::*;
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
    try_open(storage, &options(budget)).unwrap()
}

fn try_open(storage: &FaultyStorage, options: &Options) -> cabinet::Result<HashDatabase> {
    HashDatabase::open_on(Arc::new(storage.clone()), Path::new("casket.tch"), options, false)
}

fn put(database: &HashDatabase, number: u32, value: u32) {
    let (key, value) = (number.to_be_bytes(), value.to_be_bytes());
    database.put(&key, &value, Meta::NONE, Wait::Block).unwrap();
}

fn remove(database: &HashDatabase, number: u32) {
    let mut batch = Batch::new();
    batch.remove(&number.to_be_bytes());
    database.write(&batch, Wait::Block).unwrap();
}

fn get(database: &HashDatabase, number: u32) -> cabinet::Result<Option<u32>> {
    let mut value = None;
    database.read(&number.to_be_bytes(), Wait::Block, &mut |entry| {
        value = Some(u32::from_be_bytes(entry.value.try_into().unwrap()));
    })?;
    Ok(value)
}

fn stat(database: &HashDatabase, name: &str) -> u64 {
    let stats = database.stats();
    let (_, value) = stats.iter().find(|(other, _)| *other == name).unwrap();
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
        assert_eq!(stat(database, "index_on_disk"), 1);
        let bytes = stat(database, "index_bytes");
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
                database.run_maintenance().unwrap();
            }
        }
        database.run_maintenance().unwrap();
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
    while stat(&database, "index_on_disk") == 0 {
        assert!(number < 400_000);
        (number..number + 10_000).for_each(|number| put(&database, number, number));
        number += 10_000;
        database.run_maintenance().unwrap();
    }
    assert!(number >= 60_000, "{number}");
    (0..number).for_each(|number| assert_eq!(get(&database, number).unwrap(), Some(number)));
    drop(database);
    let database = open(&storage, u64::MAX);
    assert_eq!(stat(&database, "index_on_disk"), 0);
    assert_eq!(all(&database).len(), number as usize);
}

#[test]
fn a_thread_that_must_not_wait_does_not_read_the_index_from_the_disk() {
    let storage = filled(10_000);
    let database = open(&storage, 0);
    assert_eq!(stat(&database, "index_on_disk"), 1);
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

/// Changes a byte of the checkpoint at each of these offsets.
fn damage(storage: &FaultyStorage, offsets: impl IntoIterator<Item = u64>) {
    let file = storage.open(Path::new(CHECKPOINT), Open::Existing).unwrap();
    for offset in offsets {
        // Longer than the header of a block.
        let mut bytes = [0; 16];
        file.read_at(&mut bytes, offset).unwrap();
        file.write_at(&bytes.map(|byte| byte ^ 4), offset).unwrap();
    }
}

fn checkpoint_bytes(storage: &FaultyStorage) -> Vec<u8> {
    let file = storage.open(Path::new(CHECKPOINT), Open::Existing).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn damages(storage: &FaultyStorage) -> u64 {
    let path = Path::new("casket.tch");
    cabinet::testing::check_on(storage, path, &|_| true, &mut |_| {}).unwrap().damages
}

#[test]
fn damaged_pages_of_the_index_are_made_again_while_the_database_is_in_use() {
    const PAGES: u64 = 5;
    let storage = filled(100_000);
    damage(&storage, (0..PAGES).map(|page| 41_000 + page * 100_000));
    let before = checkpoint_bytes(&storage);
    let database = open(&storage, 0);
    let mut expected: BTreeMap<u32, u32> = (0..100_000).map(|number| (number, number)).collect();
    let mut hit = 0;
    for number in 0..100_000 {
        // Changes and removals of others are in memory when the pages are made again.
        match get(&database, number) {
            Ok(found) => assert_eq!(found, Some(number)),
            Err(Error::Corrupted { .. }) => {
                hit += 1;
                let key = number.to_be_bytes();
                let refused = database.put(&key, b"new", Meta::NONE, Wait::Block);
                assert!(matches!(refused, Err(Error::Corrupted { .. })), "{refused:?}");
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        if number % 5 == 0 {
            put(&database, number, number + 1);
            expected.insert(number, number + 1);
        } else if number % 7 == 0 {
            remove(&database, number);
            expected.remove(&number);
        }
    }
    assert!((100..=512 * PAGES as usize).contains(&hit), "{hit}");
    assert_eq!(stat(&database, "index_damaged_pages"), PAGES);
    assert!(stat(&database, "damaged_records") >= hit as u64);
    // It is known what is damaged, and nobody has taken it away.
    assert!(checkpoint_bytes(&storage) == before);
    database.run_maintenance().unwrap();
    assert_eq!(stat(&database, "index_damaged_pages"), 0);
    assert_eq!(stat(&database, "index_mended_pages"), PAGES);
    assert_eq!(database.len(), expected.len() as u64);
    assert!(all(&database) == expected);
    for number in (0..100_000).step_by(11) {
        put(&database, number, number + 2);
        expected.insert(number, number + 2);
    }
    database.run_maintenance().unwrap();
    assert!(all(&database) == expected);
    drop(database);
    assert_eq!(damages(&storage), 0);
    assert!(all(&open(&storage, 0)) == expected);
}

#[test]
fn a_page_that_is_damaged_while_it_is_in_use_costs_nothing_that_was_changed_since() {
    let (clock, time) = Clock::manual(1_000_000);
    let mut options = options(0);
    options.clock = clock;
    let storage = filled(60_000);
    let open = || {
        let storage = Arc::new(storage.clone());
        HashDatabase::open_on(storage, Path::new("casket.tch"), &options, false).unwrap()
    };
    let database = open();
    let mut expected: BTreeMap<u32, u32> = (0..60_000).map(|number| (number, number)).collect();
    for number in 0..60_000 {
        match number % 6 {
            0 => {
                put(&database, number, 1);
                expected.insert(number, 1);
            }
            1 => {
                remove(&database, number);
                expected.remove(&number);
            }
            2 => {
                let meta = Meta { flags: 0, expires_at_ms: 1_005_000 };
                let key = number.to_be_bytes();
                database.put(&key, &[0; 4], meta, Wait::Block).unwrap();
                expected.remove(&number);
            }
            _ => {}
        }
        // Some of the changes are in runs by then, and some in memory.
        if number == 30_000 {
            database.run_maintenance().unwrap();
        }
    }
    time.set(1_010_000);
    // Each page of a run has so many bytes at most.
    let end = checkpoint_bytes(&storage).len() as u64 / 2;
    damage(&storage, (4_100..end).step_by(20_000));
    let hit = (0..60_000).filter(|number| get(&database, *number).is_err()).count();
    assert!(hit > 500, "{hit}");
    database.run_maintenance().unwrap();
    assert!(stat(&database, "index_mended_pages") >= 10);
    assert!(all(&database) == expected);
    drop(database);
    assert!(all(&open()) == expected);
}

#[test]
fn what_a_verification_finds_of_the_index_is_made_again() {
    let storage = filled(20_000);
    // In the second case the header of a block, too.
    for offset in [50_000, 48] {
        let database = open(&storage, 0);
        damage(&storage, [offset]);
        let verify = || {
            let (go_on, report) = (&mut |_: &_| Some(u64::MAX), &mut |_| {});
            database.persistence().unwrap().verify(go_on, report).unwrap().checked.damages
        };
        assert_eq!(verify(), 1);
        assert_eq!(stat(&database, "index_mended_pages"), 0);
        database.run_maintenance().unwrap();
        assert!(stat(&database, "index_mended_pages") > 0);
        assert_eq!(verify(), 0);
        assert_eq!(all(&database).len(), 20_000);
    }
}

/// How pages of the index are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Changed,
    Unreadable,
}

/// How a segment is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Overwritten,
    Cut,
    Missing,
}

/// Damages pages of the checkpoint, as many as are made again.
fn damage_pages(storage: &FaultyStorage, how: Page) {
    let path = Path::new(CHECKPOINT);
    match how {
        Page::Changed => damage(storage, (4_100..100_000).step_by(500)),
        Page::Unreadable => storage.lose_sectors(path, 8192..20_480).unwrap(),
    }
}

fn damage_segment(storage: &FaultyStorage, number: u64, how: Part) {
    let path = format!("casket.tch/{number:010}.log");
    let path = Path::new(&path);
    if how == Part::Missing {
        return storage.remove(path).unwrap();
    }
    let file = storage.open(path, Open::Existing).unwrap();
    match how {
        Part::Overwritten => file.write_at(&[0xa5; 30_000], 10_000).unwrap(),
        _ => file.truncate(20_000).unwrap(),
    }
}

#[test]
fn no_older_record_comes_back_where_the_log_is_damaged_beside_the_index() {
    const KEYS: u32 = 20_000;
    for (page, part) in [
        (Page::Unreadable, Part::Overwritten),
        (Page::Unreadable, Part::Cut),
        (Page::Unreadable, Part::Missing),
        (Page::Changed, Part::Overwritten),
        (Page::Changed, Part::Missing),
    ] {
        let storage = FaultyStorage::new();
        let mut options = options(u64::MAX);
        options.segment_bytes = Some(64 << 10);
        let database = try_open(&storage, &options).unwrap();
        (0..KEYS).for_each(|number| put(&database, number, 1));
        let sealed = stat(&database, "segments");
        let mut expected: BTreeMap<u32, u32> = (0..KEYS).map(|number| (number, 1)).collect();
        for number in 0..KEYS {
            match number % 4 {
                1 => {
                    put(&database, number, 2);
                    expected.insert(number, 2);
                }
                2 => {
                    remove(&database, number);
                    expected.remove(&number);
                }
                _ => {}
            }
        }
        drop(database);
        damage_segment(&storage, sealed + 2, part);
        damage_pages(&storage, page);
        options.index_bytes = Some(0);
        let database = try_open(&storage, &options).unwrap();
        let is_hit = |number: &u32| matches!(get(&database, *number), Err(Error::Corrupted { .. }));
        let hit = (0..KEYS).filter(is_hit).count();
        assert!(hit > 500, "{hit}");
        database.run_maintenance().unwrap();
        assert_eq!(stat(&database, "index_damaged_pages"), 0);
        assert!(stat(&database, "index_mended_pages") > 50);
        let check = |database: &HashDatabase, expected: &BTreeMap<u32, u32>| {
            let mut failed = Vec::new();
            for number in 0..KEYS {
                match get(database, number) {
                    Ok(Some(value)) => {
                        assert_eq!(Some(&value), expected.get(&number), "{page:?} {part:?}");
                    }
                    Ok(None) if !expected.contains_key(&number) => {}
                    Ok(None) | Err(Error::Corrupted { .. }) => failed.push(number),
                    Err(error) => panic!("{error}"),
                }
            }
            failed
        };
        let failed = check(&database, &expected);
        // A segment has 2,000 records. Those that are older and in the same pages are in doubt.
        let most = if page == Page::Changed { 2500 } else { 5000 };
        assert!((100..most).contains(&failed.len()), "{page:?} {part:?} {}", failed.len());
        assert!((1..most as u64).contains(&stat(&database, "index_lost_records")));
        assert!(stat(&database, "damaged_segments") > 0);
        // Records that are put again are there, and removed ones do not come back.
        for number in failed {
            if number % 3 == 0 {
                remove(&database, number);
                expected.remove(&number);
                assert_eq!(get(&database, number).unwrap(), None);
            } else {
                put(&database, number, 3);
                expected.insert(number, 3);
            }
        }
        assert_eq!(check(&database, &expected), [] as [u32; 0]);
        drop(database);
        assert!(damages(&storage) > 0);
        let database = try_open(&storage, &options).unwrap();
        assert_eq!(check(&database, &expected), [] as [u32; 0]);
    }
}

#[test]
fn a_key_has_one_record_where_the_log_has_lost_its_newest() {
    const KEYS: u32 = 10_000;
    let storage = FaultyStorage::new();
    let mut options = options(u64::MAX);
    options.segment_bytes = Some(64 << 10);
    let database = try_open(&storage, &options).unwrap();
    (0..KEYS).for_each(|number| put(&database, number, 1));
    let before = stat(&database, "segments");
    (0..KEYS).for_each(|number| put(&database, number, 2));
    let second = before + 1..stat(&database, "segments");
    drop(database);
    second.for_each(|number| damage_segment(&storage, number, Part::Overwritten));
    options.index_bytes = Some(0);
    let database = try_open(&storage, &options).unwrap();
    let before = stat(&database, "segments");
    let mut changed = Vec::new();
    for number in 0..KEYS {
        // Not those that have no other record with their hash, and are damaged.
        if get(&database, number).is_err() {
            put(&database, number, 3);
            changed.push(number);
        }
    }
    assert!(changed.len() > 1000);
    for number in before + 1..=stat(&database, "segments") {
        let path = format!("casket.tch/{number:010}.log");
        storage.lose_sectors(Path::new(&path), 0..64 << 10).unwrap();
    }
    damage_pages(&storage, Page::Unreadable);
    let is_hit = |number: &&u32| get(&database, **number).is_err();
    let hit: Vec<u32> = changed.iter().filter(is_hit).copied().collect();
    assert!(hit.len() > 100, "{}", hit.len());
    database.run_maintenance().unwrap();
    for number in hit {
        assert_eq!(get(&database, number).unwrap(), Some(3));
        remove(&database, number);
        assert_eq!(get(&database, number).unwrap(), None);
    }
}

#[test]
fn records_that_expired_in_a_damaged_page_are_dead_and_not_lost() {
    let (clock, time) = Clock::manual(1_000_000);
    let mut options = options(u64::MAX);
    options.clock = clock;
    let storage = FaultyStorage::new();
    let database = try_open(&storage, &options).unwrap();
    for number in 0..20_000u32 {
        let expires_at_ms = if number % 10 == 0 { 1_005_000 } else { 0 };
        let meta = Meta { flags: 0, expires_at_ms };
        database.put(&number.to_be_bytes(), &[0; 4], meta, Wait::Block).unwrap();
    }
    drop(database);
    let stats = [false, true].map(|is_damaged| {
        let storage = storage.kill();
        options.index_bytes = Some(0);
        if is_damaged {
            damage_pages(&storage, Page::Unreadable);
        }
        time.set(1_000_000);
        let database = try_open(&storage, &options).unwrap();
        let hit = (0..20_000).filter(|number| get(&database, *number).is_err()).count();
        assert_eq!(hit > 500, is_damaged, "{hit}");
        time.set(1_010_000);
        database.run_maintenance().unwrap();
        assert_eq!(stat(&database, "index_mended_pages") > 50, is_damaged);
        assert_eq!(stat(&database, "index_lost_records"), 0);
        (database.len(), stat(&database, "live_bytes"), stat(&database, "log_bytes"))
    });
    assert_eq!(stats[0], stats[1]);
    assert_eq!(stats[0].0, 18_000);
}

#[test]
fn compaction_reads_only_the_pages_that_may_have_keys_of_a_segment() {
    let storage = filled(RECORDS);
    let mut options = options(BUDGET_BYTES);
    options.segment_bytes = Some(1 << 20);
    let shared = Arc::new(storage.clone());
    let database = HashDatabase::open_on(shared, Path::new("casket.tch"), &options, false).unwrap();
    let put_long = |number: u32| {
        let key = (RECORDS + number).to_be_bytes();
        database.put(&key, &[number as u8; 4000], Meta::NONE, Wait::Block).unwrap();
    };
    (0..2000).for_each(put_long);
    database.checkpoint().unwrap();
    (0..2000).filter(|number| number % 50 != 0).for_each(put_long);
    let (index_bytes, compactions) =
        (checkpoint_bytes(&storage).len() as u64, stat(&database, "compactions"));
    let read_bytes = || storage.read_bytes(Path::new(CHECKPOINT)).unwrap();
    let before = read_bytes();
    database.run_maintenance().unwrap();
    let (read, compacted) = (read_bytes() - before, stat(&database, "compactions") - compactions);
    assert!(compacted >= 4, "{compacted}");
    // 40 keys at most, each of which may be in two pages.
    assert!((1..=40 * 2 * 4096).contains(&read) && read < index_bytes, "{read} {index_bytes}");
    for number in 0..2000u32 {
        let key = (RECORDS + number).to_be_bytes();
        let is_right = &mut |entry: cabinet::RecordRef<'_>| {
            assert_eq!(entry.value, [number as u8; 4000]);
        };
        assert!(database.read(&key, Wait::Block, is_right).unwrap());
    }
    assert_eq!(database.len(), u64::from(RECORDS) + 2000);
}

#[test]
fn damage_of_the_index_keeps_no_segment_from_being_compacted_for_good() {
    let storage = filled(50_000);
    let database = open(&storage, 0);
    // Most of the log is dead then.
    for number in 0..50_000 {
        put(&database, number, 1);
    }
    let before = stat(&database, "segments");
    for number in 0..40_000 {
        put(&database, number, 2);
    }
    damage(&storage, [60_000, 200_000]);
    // The first meets the damage.
    assert!(matches!(database.run_maintenance(), Err(Error::Corrupted { .. })));
    database.run_maintenance().unwrap();
    let (dead, log) = (stat(&database, "dead_bytes"), stat(&database, "log_bytes"));
    assert!(dead * 2 < log, "{dead} of {log} in {before} segments");
    let expected: BTreeMap<u32, u32> =
        (0..50_000).map(|number| (number, if number < 40_000 { 2 } else { 1 })).collect();
    assert!(all(&database) == expected);
}

#[test]
fn a_merge_that_fails_for_want_of_space_leaves_nothing_on_the_disk() {
    for is_known in [false, true] {
        let storage = filled(50_000);
        let budget = 64 << 10;
        let database = open(&storage, budget);
        let mut expected: BTreeMap<u32, u32> = (0..50_000).map(|number| (number, number)).collect();
        for number in (0..50_000).step_by(7) {
            put(&database, number, 1);
            expected.insert(number, 1);
        }
        let faults = storage.faults();
        faults.hide_shortage.store(!is_known, Ordering::Relaxed);
        faults.space_bytes.store(150_000, Ordering::Relaxed);
        let (merges, before) = (stat(&database, "checkpoints"), checkpoint_bytes(&storage));
        for _ in 0..3 {
            database.run_maintenance().unwrap();
            assert_eq!(storage.nameless_bytes(), 0);
            assert!(storage.open(Path::new("casket.tch/checkpoint.new"), Open::Existing).is_err());
        }
        assert_eq!(stat(&database, "checkpoints"), merges);
        assert!(checkpoint_bytes(&storage) == before);
        assert!(all(&database) == expected);
        let killed = storage.kill();
        assert!(all(&open(&killed, budget)) == expected);
        // Puts are refused before the index takes much more memory, and removals go on.
        faults.space_bytes.store(8 << 20, Ordering::Relaxed);
        faults.hide_shortage.store(false, Ordering::Relaxed);
        let mut refused = None;
        for number in 200_000..2_000_000u32 {
            let (key, value) = (number.to_be_bytes(), [0; 4]);
            match database.put(&key, &value, Meta::NONE, Wait::Block) {
                Ok(_) => drop(expected.insert(number, 0)),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
            if number % 16_384 == 0 {
                faults.space_bytes.store(100_000, Ordering::Relaxed);
                database.run_maintenance().unwrap();
                faults.space_bytes.store(8 << 20, Ordering::Relaxed);
            }
        }
        assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
        let bytes = stat(&database, "index_bytes");
        assert!(bytes < budget + (2 << 20), "{bytes}");
        remove(&database, 0);
        expected.remove(&0);
        faults.space_bytes.store(u64::MAX, Ordering::Relaxed);
        database.run_maintenance().unwrap();
        assert_eq!(stat(&database, "checkpoints"), merges + 1);
        put(&database, 7, 7);
        expected.insert(7, 7);
        let bytes = stat(&database, "index_bytes");
        assert!(bytes < 4 * budget, "{bytes}");
        assert!(all(&database) == expected);
    }
}

#[test]
fn the_database_opens_after_a_kill_without_space_on_the_disk() {
    let storage = filled(RECORDS);
    let database = open(&storage, BUDGET_BYTES);
    let mut expected: BTreeMap<u32, u32> = (0..RECORDS).map(|number| (number, number)).collect();
    for number in (0..RECORDS).step_by(50) {
        put(&database, number, 1);
        expected.insert(number, 1);
    }
    for is_read_only in [false, true] {
        let killed = storage.kill();
        let mut options = options(BUDGET_BYTES);
        options.read_only = is_read_only;
        let space = if is_read_only { u64::MAX } else { 0 };
        killed.faults().space_bytes.store(space, Ordering::Relaxed);
        let database = try_open(&killed, &options).unwrap();
        assert_eq!(stat(&database, "index_on_disk"), 1);
        let bytes = stat(&database, "index_bytes");
        assert!(bytes <= BUDGET_BYTES, "{bytes}");
        assert!(all(&database) == expected);
        drop(database);
        // Without the checkpoint, all of the index has to be made.
        killed.remove(Path::new(CHECKPOINT)).unwrap();
        killed.faults().space_bytes.store(space, Ordering::Relaxed);
        options.index_bytes = Some(2 * BUDGET_BYTES);
        // There is memory for it within the limit.
        let database = try_open(&killed, &options).unwrap();
        assert!(all(&database) == expected);
        drop(database);
    }
}

#[test]
fn an_index_for_which_there_is_neither_memory_nor_disk_is_an_error_that_says_so() {
    let storage = FaultyStorage::new();
    let database = open(&storage, u64::MAX);
    (0..RECORDS).for_each(|number| put(&database, number, number));
    for is_read_only in [false, true] {
        let killed = storage.kill();
        let mut options = options(BUDGET_BYTES);
        options.read_only = is_read_only;
        let space = if is_read_only { u64::MAX } else { 0 };
        killed.faults().space_bytes.store(space, Ordering::Relaxed);
        for _ in 0..2 {
            let Err(error) = try_open(&killed, &options) else { panic!("it is open") };
            let told = error.to_string();
            assert!(told.contains("bytes of disk") && told.contains("#index="), "{told}");
        }
        options.index_bytes = None;
        assert_eq!(try_open(&killed, &options).unwrap().len(), u64::from(RECORDS));
        if !is_read_only {
            killed.faults().space_bytes.store(u64::MAX, Ordering::Relaxed);
            options.index_bytes = Some(BUDGET_BYTES);
            // It had no room when the database was closed.
            assert!(killed.remove(Path::new(CHECKPOINT)).is_err());
            let database = try_open(&killed, &options).unwrap();
            assert_eq!(database.len(), u64::from(RECORDS));
            assert_eq!(stat(&database, "index_on_disk"), 1);
        }
    }
}

#[test]
fn an_index_that_has_not_changed_is_not_written_again() {
    let storage = filled(100_000);
    for is_old in [true, false] {
        if is_old {
            take_directory(&storage);
            drop(open(&storage, 0));
        }
        let before = checkpoint_bytes(&storage);
        storage.faults().written_bytes.store(0, Ordering::Relaxed);
        for _ in 0..3 {
            let database = open(&storage, 0);
            database.run_maintenance().unwrap();
            assert_eq!(get(&database, 7).unwrap(), Some(7));
            assert_eq!(stat(&database, "checkpoints"), 0);
            drop(database);
            assert!(checkpoint_bytes(&storage) == before);
        }
        let written = storage.faults().written_bytes.load(Ordering::Relaxed);
        assert!(written < 200_000, "{written}");
        // Nor is it after a segment has gone.
        let database = open(&storage, 0);
        (0..100_000).for_each(|number| put(&database, number, number));
        database.run_maintenance().unwrap();
        database.checkpoint().unwrap();
        database.run_maintenance().unwrap();
    }
}

#[test]
fn memory_is_bounded_while_very_many_records_expire() {
    let (clock, time) = Clock::manual(1_000_000);
    let mut options = options(256 << 10);
    options.clock = clock;
    let storage = FaultyStorage::new();
    let open = |options: &Options| {
        let storage = Arc::new(storage.clone());
        HashDatabase::open_on(storage, Path::new("casket.tch"), options, false).unwrap()
    };
    let budget = options.index_bytes.replace(u64::MAX);
    let database = open(&options);
    for number in 0..RECORDS {
        let meta = Meta { flags: 0, expires_at_ms: if number % 100 == 0 { 0 } else { 2_000_000 } };
        let bytes = number.to_be_bytes();
        database.put(&bytes, &bytes, meta, Wait::Block).unwrap();
    }
    drop(database);
    options.index_bytes = budget;
    let database = open(&options);
    assert_eq!(stat(&database, "index_on_disk"), 1);
    time.set(3_000_000);
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(stat(&database, "index_bytes"));
            }
            most
        });
        let swept = database.run_maintenance();
        is_over.store(true, Ordering::Relaxed);
        swept.unwrap();
        watcher.join().unwrap()
    });
    // A quarter more than it may, at least 1 MiB, and what runs take beside.
    assert!(most < (256 << 10) + (1 << 20) + (600 << 10), "{most}");
    assert!(stat(&database, "checkpoints") >= 2);
    assert_eq!(database.len(), u64::from(RECORDS / 100));
    assert_eq!(all(&database).len(), RECORDS as usize / 100);
}

#[test]
fn keys_are_met_once_each_in_the_order_of_hashes_however_many_are_changed_meanwhile() {
    let storage = filled(20_000);
    let database = open(&storage, 0);
    let mut position = cabinet::ScanCursor::Start;
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
            database.run_maintenance().unwrap();
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
        assert_eq!(stat(&database, "index_on_disk"), u64::from(budget == 0));
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

/// One thing that happens to a database whose index is in runs.
#[derive(Clone, Debug)]
enum Event {
    /// So many records from this key on, that expire after so many milliseconds, if at all.
    Put {
        first: u8,
        count: u8,
        lifetime_ms: Option<u16>,
    },
    Remove {
        first: u8,
        count: u8,
    },
    Wait(u16),
    Maintain,
    Checkpoint,
    /// A byte of the checkpoint changes: this share of its length from the beginning.
    Damage(u16),
    /// The disk has no space for the next merge.
    FailedMerge,
    Scan,
    Reopen,
    Kill,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let lifetime = proptest::option::weighted(0.3, 1u16..2000);
    let event = prop_oneof![
        8 => (any::<u8>(), 1u8..100, lifetime)
            .prop_map(|(first, count, lifetime_ms)| Event::Put { first, count, lifetime_ms }),
        3 => (any::<u8>(), 1u8..60).prop_map(|(first, count)| Event::Remove { first, count }),
        2 => (1u16..1000).prop_map(Event::Wait),
        4 => Just(Event::Maintain),
        2 => Just(Event::Checkpoint),
        4 => any::<u16>().prop_map(Event::Damage),
        1 => Just(Event::FailedMerge),
        2 => Just(Event::Scan),
        1 => Just(Event::Reopen),
        1 => Just(Event::Kill),
    ];
    proptest::collection::vec(event, 1..50)
}

struct History {
    storage: FaultyStorage,
    options: Options,
    time: cabinet::testing::ManualClock,
    database: Option<HashDatabase>,
    /// Number of the last put of each key, and when it expires, in milliseconds; 0 is never.
    records: BTreeMap<u8, (u64, u64)>,
    puts: u64,
    /// Pages may be damaged of which it is not known yet, or that were not made again yet.
    is_damaged: bool,
}

impl History {
    fn new() -> Self {
        let (clock, time) = Clock::manual(1_000_000);
        let mut options = options(0);
        options.clock = clock;
        options.segment_bytes = Some(64 << 10);
        let mut history = Self {
            storage: FaultyStorage::new(),
            options,
            time,
            database: None,
            records: BTreeMap::new(),
            puts: 0,
            is_damaged: false,
        };
        history.open();
        history
    }

    fn open(&mut self) {
        self.database = None;
        let storage = Arc::new(self.storage.clone());
        let path = Path::new("casket.tch");
        let database = HashDatabase::open_on(storage, path, &self.options, false);
        self.database = Some(database.unwrap());
    }

    fn database(&self) -> &HashDatabase {
        self.database.as_ref().unwrap()
    }

    /// A value whose length depends on the number.
    fn value(number: u64) -> Vec<u8> {
        let mut value = number.to_le_bytes().to_vec();
        value.resize(8 + (number * 7919 % 1500) as usize, 7);
        value
    }

    fn live(&self, key: u8) -> Option<u64> {
        let (number, expires_at_ms) = *self.records.get(&key)?;
        (expires_at_ms == 0 || expires_at_ms > self.time.now_ms()).then_some(number)
    }

    /// Whether something was done; otherwise a page that it needs is damaged.
    fn is_done<T>(&self, result: cabinet::Result<T>) -> bool {
        match result {
            Ok(_) => true,
            Err(Error::Corrupted { .. }) if self.is_damaged => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self) {
        for key in 0..=u8::MAX {
            let mut found = None;
            let read = self.database().read(&[key], Wait::Block, &mut |entry| {
                found = Some(entry.value.to_vec());
            });
            if self.is_done(read) {
                assert_eq!(found, self.live(key).map(Self::value), "of {key}");
            }
        }
    }

    fn scan(&self) {
        let mut met = BTreeMap::new();
        let mut scan = self.database().full_scan(Wanted::Records, true).unwrap();
        loop {
            let step = scan.step(&mut |entry| {
                let is_new = met.insert(entry.key[0], entry.value.to_vec()).is_none();
                assert!(is_new, "{:?} was met twice", entry.key);
            });
            match step {
                Ok(true) => {}
                Ok(false) => break,
                failed => {
                    assert!(!self.is_done(failed));
                    return;
                }
            }
        }
        let live = (0..=u8::MAX).filter_map(|key| Some((key, Self::value(self.live(key)?))));
        assert!(met.into_iter().eq(live));
    }

    fn step(&mut self, event: &Event) {
        let span = |first: u8, count: u8| (0..count).map(move |offset| first.wrapping_add(offset));
        match event {
            Event::Put { first, count, lifetime_ms } => {
                let now_ms = self.time.now_ms();
                let expires_at_ms = lifetime_ms.map_or(0, |ms| now_ms + u64::from(ms));
                let meta = Meta { flags: 0, expires_at_ms };
                for key in span(*first, *count) {
                    self.puts += 1;
                    let value = Self::value(self.puts);
                    if self.is_done(self.database().put(&[key], &value, meta, Wait::Block)) {
                        self.records.insert(key, (self.puts, expires_at_ms));
                    }
                }
            }
            Event::Remove { first, count } => {
                for key in span(*first, *count) {
                    let mut batch = Batch::new();
                    batch.remove(&[key]);
                    if self.is_done(self.database().write(&batch, Wait::Block)) {
                        self.records.remove(&key);
                    }
                }
            }
            Event::Wait(ms) => self.time.advance(u64::from(*ms)),
            Event::Maintain => {
                let maintained = self.database().run_maintenance();
                let _ = self.is_done(maintained);
                self.check();
                // It reads all runs.
                if !self.is_done(self.database().checkpoint()) {
                    self.database().run_maintenance().unwrap();
                    self.database().checkpoint().unwrap();
                }
                self.is_damaged = false;
            }
            Event::Checkpoint => drop(self.is_done(self.database().checkpoint())),
            Event::Damage(share) => {
                let Ok(file) = self.storage.open(Path::new(CHECKPOINT), Open::Existing) else {
                    return;
                };
                let length = file.length().unwrap();
                let offset = (length * u64::from(*share)) >> 16;
                let mut byte = [0];
                file.read_at(&mut byte, offset).unwrap();
                file.write_at(&byte.map(|byte| byte ^ 0x10), offset).unwrap();
                self.is_damaged = true;
            }
            Event::FailedMerge => {
                let faults = self.storage.faults();
                faults.hide_shortage.store(true, Ordering::Relaxed);
                faults.space_bytes.store(4000, Ordering::Relaxed);
                match self.database().checkpoint() {
                    // Space that was allocated ahead and is given back may suffice.
                    Ok(()) => self.is_damaged = false,
                    Err(Error::NoSpace { .. }) => {}
                    failed => assert!(!self.is_done(failed)),
                }
                faults.hide_shortage.store(false, Ordering::Relaxed);
                faults.space_bytes.store(u64::MAX, Ordering::Relaxed);
            }
            Event::Scan => self.scan(),
            Event::Reopen => self.open(),
            Event::Kill => {
                self.storage = self.storage.kill();
                self.open();
            }
        }
        self.check();
    }
}

/// Histories that are gone through unless the environment asks for more.
const HISTORIES: u32 = 50;

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = HISTORIES;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damage_of_the_index_costs_no_record_whatever_else_happens(events in events()) {
        let mut history = History::new();
        for event in &events {
            history.step(event);
        }
        history.step(&Event::Maintain);
        history.scan();
        prop_assert_eq!(history.database().persistence().unwrap().damages(), []);
        history.step(&Event::Kill);
        history.step(&Event::Maintain);
        history.scan();
    }
}
