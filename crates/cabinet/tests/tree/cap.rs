//! A cap on the bytes of a tree: what goes, what stays, what it bounds.

use crate::observed_storage::{ObservedStorage, StorageOperation};
use crate::wait::wait_until_at_most;
use crate::{PATH, open};
use cabinet::limits::CAPACITY_BYTES_MIN;
use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{
    Batch, Database, Durability, Error, Meta, Options, Result, Side, TreeDatabase, Wait,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CAP: u64 = CAPACITY_BYTES_MIN;

/// The files take at most so many times the cap, as `docs/protocols/memcached.md` has it.
const FILES_OF_CAP: u64 = 3;

/// Length of the values, of which a leaf has dozens.
const VALUE_BYTES: usize = 200;

/// Bytes that a record of that length takes at most in its page.
const RECORD_BYTES: u64 = VALUE_BYTES as u64 + 40;

/// Records that fit into the cap.
const ROOM: u64 = CAP / RECORD_BYTES;

fn options() -> Options {
    let mut options = Options::default();
    options.capacity_bytes = CAP;
    options.cache_bytes = Some(1 << 20);
    options
}

/// Keys in no order.
fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(VALUE_BYTES / 8)
}

fn put(database: &Database, number: u64) {
    database.put(&key(number), &value(number)).unwrap();
}

fn stat(database: &Database, name: &str) -> u64 {
    let stat = database.stats().into_iter().find(|(other, _)| *other == name);
    stat.unwrap().1.parse().unwrap()
}

fn is_there(database: &Database, number: u64) -> bool {
    let found = database.get(&key(number)).unwrap();
    found.is_some_and(|found| {
        assert_eq!(found, value(number));
        true
    })
}

fn stored_bytes(storage: &FaultyStorage) -> u64 {
    let names = storage.list(Path::new(PATH)).unwrap();
    let bytes_of = |name: &String| {
        storage.open(&Path::new(PATH).join(name), Open::Existing).unwrap().length().unwrap()
    };
    names.iter().map(bytes_of).sum()
}

/// Bytes of all keys and values.
fn data_bytes(database: &Database) -> u64 {
    let mut bytes = 0;
    database
        .for_each(|entry| {
            bytes += (entry.key.len() + entry.value.len()) as u64;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    bytes
}

fn keys(database: &Database) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    database
        .for_each(|entry| {
            keys.insert(entry.key.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    keys
}

#[test]
fn keys_in_no_order_stay_if_they_are_read_or_new() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage, &options());
    let read = 0..20;
    for number in 0..4 * ROOM {
        put(&database, number);
        if number % 500 == 0 {
            tree.run_maintenance().unwrap();
        }
        if number % 4000 == 0 {
            // One that goes through all does not keep all.
            data_bytes(&database);
        }
        if number % 200 == 0 {
            read.clone().filter(|read| *read <= number).for_each(|read| {
                assert!(is_there(&database, read), "{read} at {number}");
            });
        }
    }
    let newest = 4 * ROOM - ROOM / 8..4 * ROOM;
    let there = newest.clone().filter(|number| is_there(&database, *number)).count() as u64;
    assert!(there >= ROOM / 8 * 9 / 10, "{there} of {}", ROOM / 8);
    let (left, bytes) = (database.len(), data_bytes(&database));
    assert_eq!(stat(&database, "evicted"), 4 * ROOM - left);
    assert!(bytes <= CAP && bytes > CAP * 3 / 4, "{bytes} bytes");
}

#[test]
fn the_data_stay_within_the_cap_and_the_files_within_a_few_times_of_it() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage, &options());
    let mut longest = 0;
    for number in 0..4 * ROOM {
        // Values of all lengths, some of them over again, some removed.
        let length = (number * 7919 % 2000) as usize;
        let key = key(number * 7907 % (3 * ROOM));
        database.put(&key, &vec![7; length]).unwrap();
        if number % 5 == 0 {
            database.remove(&key).unwrap();
        }
        if number % 500 == 0 {
            tree.run_maintenance().unwrap();
        }
        if number % 100 == 99 {
            longest = longest.max(stored_bytes(&storage));
        }
        if number % 4000 == 0 {
            let bytes = data_bytes(&database);
            assert!(bytes <= CAP, "{bytes} bytes after {number} puts");
        }
    }
    assert!(longest <= FILES_OF_CAP * CAP, "{longest} bytes of files");
    assert!(data_bytes(&database) > CAP * 3 / 4, "{} bytes", data_bytes(&database));
}

#[test]
fn a_cap_is_set_and_lowered_while_the_tree_is_open() {
    let storage = FaultyStorage::new();
    let mut options = options();
    options.capacity_bytes = 0;
    let (tree, database) = open(&storage, &options);
    for number in 0..6 * ROOM {
        put(&database, number);
    }
    assert!(!database.evicts());
    assert_eq!((stat(&database, "limit_bytes"), stat(&database, "evicted")), (0, 0));
    for limit in [2 * CAP, CAP] {
        database.retune(&format!("capsiz={limit}")).unwrap();
        assert!(database.evicts());
        assert_eq!(stat(&database, "limit_bytes"), limit);
        // An event loop does not wait for what has to go first.
        let late = tree_put(&tree, 0, Wait::Never);
        assert!(matches!(late, Err(Error::WouldBlock)), "{late:?}");
        assert!(is_there(&database, 0));
        tree.run_maintenance().unwrap();
        tree_put(&tree, 0, Wait::Never).unwrap();
        assert!(is_there(&database, 0));
        let bytes = data_bytes(&database);
        assert!(bytes <= limit && bytes > limit * 3 / 4, "{bytes} bytes of {limit}");
        let newest = 6 * ROOM - ROOM / 2..6 * ROOM;
        let there = newest.filter(|number| is_there(&database, *number)).count() as u64;
        assert!(there > ROOM / 2 * 9 / 10, "{there} of the newest {} at {limit}", ROOM / 2);
        let files = stored_bytes(&storage);
        assert!(files <= FILES_OF_CAP * limit, "{files} bytes of files at {limit}");
    }
    // A lower one than is allowed counts as the lowest.
    database.retune("capsiz=1").unwrap();
    assert_eq!(stat(&database, "limit_bytes"), CAP);
}

fn tree_put(tree: &Arc<TreeDatabase>, number: u64, wait: Wait) -> Result<u64> {
    let engine: Arc<dyn cabinet::Engine> = Arc::clone(tree) as _;
    engine.put(&key(number), &value(number), Meta::NONE, wait)
}

#[test]
fn a_writer_evicts_what_a_lower_cap_leaves_no_room_for_after_opening() {
    let storage = FaultyStorage::new();
    let mut uncapped = options();
    uncapped.capacity_bytes = 0;
    {
        let (_tree, database) = open(&storage, &uncapped);
        (0..3 * ROOM).for_each(|number| put(&database, number));
    }
    let (_tree, database) = open(&storage, &options());
    assert_eq!(database.len(), 3 * ROOM);
    put(&database, 3 * ROOM);
    let bytes = data_bytes(&database);
    assert!(bytes <= CAP && bytes > CAP * 3 / 4, "{bytes} bytes");
    assert!(is_there(&database, 3 * ROOM));
}

#[test]
fn what_was_evicted_stays_away_whatever_befalls_the_tree() {
    for durability in [Durability::None, Durability::Always] {
        let mut options = options();
        options.durability = durability;
        let mut storage = FaultyStorage::new();
        for round in 0..3u64 {
            let (tree, database) = open(&storage, &options);
            let database = database.deferred();
            for number in round * ROOM..(round + 1) * ROOM + ROOM / 2 {
                put(&database, number);
                if number % (ROOM / 3) == 0 {
                    tree.run_maintenance().unwrap();
                }
            }
            database.wait_durable(database.appended()).unwrap();
            let before = keys(&database);
            let crashed = match durability {
                Durability::None => storage.kill(),
                _ => storage.lose_power(|| 0),
            };
            drop((tree, database));
            storage = crashed;
            let (_tree, database) = open(&storage, &options);
            assert_eq!(keys(&database), before);
            assert_eq!(database.len(), before.len() as u64);
        }
    }
}

#[test]
fn records_of_a_key_over_a_quarter_of_the_cap_are_refused_and_evict_nothing() {
    let storage = FaultyStorage::new();
    let (_tree, database) = open(&storage, &options());
    let most = CAP as usize / 4;
    let overhead = 100;
    database.put(b"a", b"value").unwrap();
    for too_long in [most, 3 * CAP as usize] {
        let long = vec![1; too_long];
        let refused = database.put(b"b", &long);
        assert!(matches!(refused, Err(Error::ValueTooLong { .. })), "{refused:?}");
        assert!(matches!(database.put_cat(b"a", &long), Err(Error::ValueTooLong { .. })));
        let refused = database.put_duplicate(b"a", &long, Side::After);
        assert!(matches!(refused, Err(Error::ValueTooLong { .. })), "{refused:?}");
        let mut batch = Batch::new();
        batch.put(b"c", &long[..most / 2], Meta::NONE);
        batch.put(b"d", &long[..most / 2], Meta::NONE);
        assert!(matches!(database.write(&batch), Err(Error::ValueTooLong { .. })));
    }
    assert_eq!(database.get(b"a").unwrap().unwrap(), b"value");
    assert_eq!((database.len(), stat(&database, "evicted")), (1, 0));
    database.put(b"b", &vec![2; most - overhead]).unwrap();
    // Together they are too many.
    let mut stored = 0;
    let refused = loop {
        match database.put_duplicate(b"many", &[3; 10_000], Side::After) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::ValueTooLong { .. }), "{refused}");
    assert!(stored * 10_000 > most * 9 / 10 && stored * 10_000 <= most, "{stored}");
    // In the place of others there is room.
    assert_eq!(database.remove_all(b"many").unwrap(), stored);
    database.put(b"many", &vec![2; most - overhead]).unwrap();
    database.put(b"many", &vec![3; most - overhead]).unwrap();
    for number in 0..20u64 {
        database.put(&key(number), &vec![2; most - overhead]).unwrap();
        assert!(database.get(&key(number)).unwrap().is_some(), "the newest is there");
        let bytes = data_bytes(&database);
        assert!(bytes <= CAP + most as u64, "{bytes}: and one too many");
    }
}

#[test]
fn duplicates_of_a_key_go_together() {
    const DUPLICATES: usize = 30;
    let storage = FaultyStorage::new();
    let (_tree, database) = open(&storage, &options());
    let keys = 2 * ROOM / DUPLICATES as u64;
    for number in 0..keys {
        for _ in 0..DUPLICATES {
            database.put_duplicate(&key(number), &value(number), Side::After).unwrap();
        }
    }
    let mut left = 0;
    for number in 0..keys {
        let found = database.get_all(&key(number)).unwrap();
        assert!(found.is_empty() || found.len() == DUPLICATES, "{} of {number}", found.len());
        left += found.len() as u64;
    }
    assert!(left > ROOM / 2 && left < 3 * ROOM / 2, "{left} and room for {ROOM}");
    assert_eq!(stat(&database, "evicted"), 2 * ROOM / 30 * 30 - left);
    assert_eq!(database.get_all(&key(keys - 1)).unwrap().len(), DUPLICATES);
}

#[test]
fn writers_of_many_threads_keep_to_the_cap() {
    const WRITERS: u64 = 3;
    const LONGEST: u64 = 8000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PATH);
    let database = options().open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..WRITERS {
            let database = database.clone();
            scope.spawn(move || {
                for number in 0..3000 {
                    let length = (number * 7919 % LONGEST) as usize;
                    let key = key(number * WRITERS + thread);
                    database.put(&key, &vec![7; length]).unwrap();
                    assert!(database.get(&key).unwrap().is_some_and(|found| found.len() == length));
                }
            });
        }
        for _ in 0..1000 {
            let bytes = stat(&database, "page_bytes");
            std::thread::sleep(Duration::from_millis(1));
            assert!(bytes <= CAP + WRITERS * LONGEST, "{bytes} bytes");
        }
    });
    // Which evicts what the last writers have left over the cap.
    database.put(b"last", b"").unwrap();
    let bytes = data_bytes(&database);
    assert!(bytes <= CAP && bytes > CAP * 3 / 4, "{bytes} bytes");
    let (left, evicted) = (database.len(), stat(&database, "evicted"));
    assert_eq!(left + evicted, 3000 * WRITERS + 1);
    // Maintenance gives space back on its own, which it may not have come to yet.
    wait_until_at_most(FILES_OF_CAP * CAP, || database.size_bytes());
    drop(database);
    let database = options().open(&path).unwrap();
    assert_eq!((database.len(), data_bytes(&database)), (left, bytes));
}

#[test]
fn the_last_resort_is_over_with_the_call_that_had_to_take_it() {
    const KEYS: u64 = 30;
    let storage = FaultyStorage::new();
    let mut options = options();
    // All duplicates of a key are in one page, which is not to be written with each.
    options.cache_bytes = Some(4 * CAP);
    let (_tree, database) = open(&storage, &options);
    // All keys were last written lately, so none is old: one goes all the same.
    let mut number = 0;
    while stat(&database, "evicted") == 0 {
        database.put_duplicate(&[(number % KEYS) as u8], &[1; 3000], Side::After).unwrap();
        number += 1;
    }
    // Each is in front of the one before it, so that the hand comes to the newest first.
    let newest = |number: u64| [&[255][..], &(u64::MAX - number).to_be_bytes()].concat();
    for number in 0..2 * ROOM {
        database.put(&newest(number), &value(number)).unwrap();
        if number > ROOM / 4 {
            let recent = number - ROOM / 8..=number;
            let there = recent.step_by(100);
            let lost = there.filter(|recent| database.get(&newest(*recent)).unwrap().is_none());
            assert_eq!(lost.collect::<Vec<_>>(), [0; 0], "at {number}");
        }
    }
}

#[test]
fn writers_wait_for_checkpoints_that_cannot_keep_up() {
    // As where the processors or the disk are busy with something else.
    let watch = Arc::new(|_: StorageOperation| {
        if std::thread::current().name() == Some("cabinet-keeper") {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let observed = Arc::new(ObservedStorage { storage: FaultyStorage::new(), watch });
    let tree = TreeDatabase::open_on(observed, Path::new(PATH), &options(), true).unwrap();
    let database = Database::from_engine(Arc::new(tree));
    let mut longest = 0;
    for number in 0..2000 {
        database.put(&key(number), &vec![7; (number * 7919 % 16_000) as usize]).unwrap();
        if number % 20 == 0 {
            longest = longest.max(database.size_bytes());
        }
    }
    assert!(longest <= (FILES_OF_CAP + 1) * CAP, "{longest} bytes of files");
}
