//! Budget, space, copies, limits, damage, and many threads.

use crate::{PATH, open, small_options, stat};
use cabinet::limits::{CACHE_BYTES_MIN, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{
    Clock, Compression, Database, Error, KeyOrder, Maintenance, Meta, Options, Side, TreeDatabase,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

fn fill(database: &Database, records: u64) {
    for number in 0..records {
        database.put(&key(number), &[number as u8; 100]).unwrap();
    }
}

fn check(database: &Database, records: u64) {
    assert_eq!(database.len(), records);
    for number in 0..records {
        assert_eq!(database.get(&key(number)).unwrap(), Some(vec![number as u8; 100]), "{number}");
    }
}

#[test]
fn pages_in_memory_keep_to_their_budget() {
    const BUDGET_BYTES: usize = 200 << 10;
    let storage = FaultyStorage::new();
    let mut options = Options::default();
    options.cache_bytes = Some(BUDGET_BYTES as u64);
    options.segment_bytes = Some(1 << 20);
    let (engine, database) = open(&storage, &options);
    let mut most = 0;
    for number in 0..20_000u64 {
        database.put(&key(number), &[number as u8; 100]).unwrap();
        most = most.max(engine.cached_bytes());
    }
    check(&database, 20_000);
    assert!(most <= BUDGET_BYTES, "{most}");
    assert!(stat(&database, "cache_evictions") > 1000);
    assert!(engine.cached_bytes() <= BUDGET_BYTES);
}

#[test]
fn over_the_cap_the_smallest_keys_go_when_a_leaf_is_divided() {
    const CAP: u64 = 1000;
    let storage = FaultyStorage::new();
    let mut options = small_options(KeyOrder::Lexical);
    options.capacity_records = CAP;
    let (_engine, database) = open(&storage, &options);
    let number = |number: u64| number.to_be_bytes();
    for count in 0..CAP {
        database.put(&number(count), b"value").unwrap();
    }
    assert_eq!(database.len(), CAP, "the cap itself is not over it");
    for count in CAP..5 * CAP {
        database.put(&number(count), b"value").unwrap();
        assert!(database.len() <= CAP + 20, "a leaf more at most: {}", database.len());
    }
    let mut batch = cabinet::Batch::new();
    for count in 5 * CAP..6 * CAP {
        batch.put(&number(count), b"value", Meta::NONE);
    }
    database.write(&batch).unwrap();
    let (_engine, again) = open(&storage.kill(), &options);
    for database in [database, again] {
        let kept = database.len();
        assert!((CAP..=CAP + 20).contains(&kept), "{kept}");
        let keys = database.keys_with_prefix(b"", None).unwrap();
        assert_eq!(keys[0], number(6 * CAP - kept), "the greatest are there");
    }
}

#[test]
fn a_key_may_have_very_many_duplicates() {
    // Quadratic work would take minutes.
    const DUPLICATES: u64 = 100_000;
    let storage = FaultyStorage::new();
    let options = Options::default();
    let (engine, database) = open(&storage, &options);
    database.put(b"a", b"before").unwrap();
    database.put(b"c", b"behind").unwrap();
    for number in 0..DUPLICATES {
        let side = if number % 10 == 0 { Side::Before } else { Side::After };
        database.put_duplicate(b"b", &number.to_le_bytes(), side).unwrap();
    }
    engine.checkpoint().unwrap();
    assert_eq!(database.count(b"b").unwrap() as u64, DUPLICATES);
    let (_engine, again) = open(&storage.kill(), &options);
    let values = again.get_all(b"b").unwrap();
    assert_eq!(values.len() as u64, DUPLICATES);
    assert_eq!(values[0], (DUPLICATES - 10).to_le_bytes());
    assert_eq!(values[values.len() - 1], (DUPLICATES - 1).to_le_bytes());
    for _ in 0..1000 {
        assert!(again.remove(b"b").unwrap());
    }
    assert_eq!(again.remove_all(b"b").unwrap() as u64, DUPLICATES - 1000);
    assert_eq!(again.len(), 2);
}

#[test]
fn what_is_overwritten_takes_no_more_space_than_checkpoints_allow() {
    let storage = FaultyStorage::new();
    let mut options = Options::default();
    options.segment_bytes = Some(256 << 10);
    let (engine, database) = open(&storage, &options);
    fill(&database, 5_000);
    engine.checkpoint().unwrap();
    let bare = database.size_bytes();
    for round in 0..10 {
        for number in 0..1000 {
            database.put(&key((number * 7 + round) % 5000), &[round as u8; 100]).unwrap();
        }
        engine.checkpoint().unwrap();
        // All but the dead share that is allowed, and the segment that is being written to.
        let most = bare * 100 / 70 + (512 << 10);
        assert!(database.size_bytes() <= most, "{} of {most}", database.size_bytes());
    }
    for number in 0..4_500 {
        assert!(database.remove(&key(number)).unwrap());
    }
    database.optimize().unwrap();
    assert!(database.size_bytes() < bare / 5, "{} of {bare}", database.size_bytes());
    assert!(stat(&database, "leaves") < 40, "empty leaves are joined");
    let (_engine, again) = open(&storage.kill(), &options);
    assert_eq!(again.len(), 500);
}

#[test]
fn a_snapshot_opens_alone_and_holds_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let options = small_options(KeyOrder::Lexical).cache_bytes(CACHE_BYTES_MIN);
    let database = options.open(directory.path().join("source.tcb")).unwrap();
    fill(&database, 2000);
    let copy = directory.path().join("copy.tcb");
    database.copy_to(&copy).unwrap();
    fill(&database, 3000);
    drop(database);
    std::fs::remove_dir_all(directory.path().join("source.tcb")).unwrap();
    let copied = Options::new().open(&copy).unwrap();
    check(&copied, 2000);
    copied.put(b"only in the copy", b"1").unwrap();
    assert_eq!(copied.len(), 2001);
}

#[test]
fn short_segments_are_put_together_however_little_in_them_is_dead() {
    const COPIES: u32 = 300;
    let storage = FaultyStorage::new();
    let mut options = small_options(KeyOrder::Lexical);
    options.segment_bytes = Some(256 << 10);
    options.dead_percent_max = 95;
    let (engine, database) = open(&storage, &options);
    for number in 0..COPIES {
        database.put(&number.to_be_bytes(), &[number as u8; 1000]).unwrap();
        // It seals a segment, in which there is next to nothing.
        database.copy_to(Path::new(&format!("copy-{number}.tcb"))).unwrap();
        engine.checkpoint().unwrap();
        assert!(stat(&database, "segments") <= 128 + 3);
    }
    let (_engine, again) = open(&storage.kill(), &options);
    for number in 0..COPIES {
        assert_eq!(again.get(&number.to_be_bytes()).unwrap().unwrap(), [number as u8; 1000]);
    }
}

#[test]
fn keys_and_values_of_any_allowed_size_come_back() {
    let storage = FaultyStorage::new();
    let options = small_options(KeyOrder::Lexical);
    let (_engine, database) = open(&storage, &options);
    let long_key = vec![b'k'; KEY_BYTES_MAX];
    for (key, length) in [
        (&b""[..], 0usize),
        (b"a", 70_000),
        (&long_key, 0),
        (&long_key[..KEY_BYTES_MAX - 1], 5 << 20),
    ] {
        database.put(key, &vec![5; length]).unwrap();
    }
    assert!(matches!(database.put(&[0; KEY_BYTES_MAX + 1], b""), Err(Error::KeyTooLong { .. })));
    let check = |database: &Database| {
        assert_eq!(database.len(), 4);
        assert_eq!(database.value_size(b"").unwrap(), Some(0));
        assert_eq!(database.value_size(b"a").unwrap(), Some(70_000));
        assert_eq!(database.value_size(&long_key).unwrap(), Some(0));
        assert_eq!(database.value_size(&long_key[1..]).unwrap(), Some(5 << 20));
    };
    check(&database);
    let (_engine, again) = open(&storage.kill(), &options);
    check(&again);
}

#[test]
#[ignore = "takes gigabytes of memory"]
fn the_longest_value_and_no_longer_one_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(PATH);
    let long_key = vec![b'k'; KEY_BYTES_MAX];
    for length in [VALUE_BYTES_MAX - 1, VALUE_BYTES_MAX] {
        let database = Options::new().open(&path).unwrap();
        database.put(&long_key, &vec![9; length]).unwrap();
        assert!(matches!(
            database.put_duplicate(&long_key, &[9; 1000], Side::After),
            Err(Error::ValueTooLong { .. })
        ));
        drop(database);
        let database = Options::new().open(&path).unwrap();
        assert_eq!(database.value_size(&long_key).unwrap(), Some(length));
    }
    let database = Options::new().open(&path).unwrap();
    let over = database.put(&long_key, &vec![9; VALUE_BYTES_MAX + 1]);
    assert!(matches!(over, Err(Error::ValueTooLong { .. })));
}

#[test]
fn the_order_is_remembered_and_another_one_refused() {
    let storage = FaultyStorage::new();
    let mut options = small_options(KeyOrder::Int64);
    let (_, database) = open(&storage, &options);
    database.put(&2i64.to_le_bytes(), b"two").unwrap();
    database.put(&(-1i64).to_le_bytes(), b"minus one").unwrap();
    drop(database);
    options.order = None;
    let (_, database) = open(&storage, &options);
    assert_eq!(database.order(), Some(KeyOrder::Int64));
    let mut cursor = database.cursor().unwrap();
    assert!(cursor.first().unwrap());
    assert_eq!(cursor.value(), Some(&b"minus one"[..]));
    drop((cursor, database));
    options.order = Some(KeyOrder::Lexical);
    let opened = TreeDatabase::open_on(Arc::new(storage), Path::new(PATH), &options, false);
    assert!(matches!(opened.err(), Some(Error::WrongKind { .. })));
}

#[test]
fn bytes_that_an_order_calls_equal_are_one_key_and_the_first_ones_stay() {
    let (_engine, database) = open(&FaultyStorage::new(), &small_options(KeyOrder::Int32));
    database.put(&[1], b"short").unwrap();
    database.put(&[1, 0, 0, 0, 7], b"long").unwrap();
    assert_eq!(database.len(), 1);
    let read = |entry: cabinet::RecordRef<'_>| (entry.key.to_vec(), entry.value.to_vec());
    assert_eq!(database.read(&[1, 0], read).unwrap(), Some((vec![1], b"long".to_vec())));
}

#[test]
fn compressed_pages_come_back_and_take_less() {
    let size = |compression| {
        let storage = FaultyStorage::new();
        let mut options = small_options(KeyOrder::Lexical);
        options.leaf_bytes = None;
        options.compression = compression;
        let (engine, database) = open(&storage, &options);
        fill(&database, 5000);
        engine.checkpoint().unwrap();
        check(&database, 5000);
        database.optimize().unwrap();
        drop((engine, database));
        let (_engine, database) = open(&storage, &options);
        check(&database, 5000);
        database.size_bytes()
    };
    let plain = size(Compression::None);
    for compression in [Compression::Lz4, Compression::Zstd] {
        assert!(size(compression) < plain / 2);
    }
}

#[test]
fn expired_duplicates_do_not_count_and_are_reclaimed() {
    let (clock, time) = Clock::manual(1000);
    let storage = FaultyStorage::new();
    let mut options = small_options(KeyOrder::Lexical);
    options.clock = clock;
    let (engine, database) = open(&storage, &options);
    database.put_with(b"key", b"passing", Meta { flags: 0, expires_at_ms: 2000 }).unwrap();
    database.put_duplicate(b"key", b"lasting", Side::After).unwrap();
    for number in 0..100 {
        database.put_with(&key(number), &[0; 50], Meta { flags: 1, expires_at_ms: 2000 }).unwrap();
    }
    assert_eq!(database.count(b"key").unwrap(), 2);
    time.set(2000);
    assert_eq!(database.get_all(b"key").unwrap(), [b"lasting"]);
    assert_eq!(database.get(&key(5)).unwrap(), None);
    let mut cursor = database.cursor().unwrap();
    assert!(cursor.first().unwrap());
    assert_eq!(cursor.value(), Some(&b"lasting"[..]));
    assert!(!cursor.next().unwrap());
    engine.run_maintenance().unwrap();
    assert_eq!(database.len(), 1);
    let (_engine, again) = open(&storage.kill(), &options);
    assert_eq!(again.len(), 1);
    assert_eq!(again.get(b"key").unwrap().unwrap(), b"lasting");
}

#[test]
fn a_missing_checkpoint_is_an_error_that_says_what_to_do_unless_the_log_is_whole() {
    let storage = FaultyStorage::new();
    let options = small_options(KeyOrder::Lexical);
    let (_, database) = open(&storage, &options);
    fill(&database, 300);
    let checkpoint = Path::new(PATH).join("checkpoint");
    let storage = storage.kill();
    storage.remove(&checkpoint).unwrap();
    let (_, database) = open(&storage, &options);
    check(&database, 300);
    for _ in 0..3 {
        fill(&database, 300);
        database.optimize().unwrap();
    }
    drop(database);
    let file = storage.open(&checkpoint, Open::Existing).unwrap();
    file.write_at(&[0xaa], file.length().unwrap() / 2).unwrap();
    let opened = TreeDatabase::open_on(Arc::new(storage), Path::new(PATH), &options, false);
    let error = opened.err().unwrap();
    assert!(matches!(error, Error::Corrupted { .. }), "{error}");
}

#[test]
fn a_damaged_page_is_an_error_with_its_place_and_the_others_are_served() {
    let storage = FaultyStorage::new();
    let options = small_options(KeyOrder::Lexical);
    let (_, database) = open(&storage, &options);
    fill(&database, 1000);
    database.optimize().unwrap();
    drop(database);
    let storage = storage.kill();
    let mut names = storage.list(Path::new(PATH)).unwrap();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    let first = storage.open(&Path::new(PATH).join(&names[0]), Open::Existing).unwrap();
    first.write_at(b"damage", 3000).unwrap();
    let (engine, database) = open(&storage, &options);
    let reads = (0..1000).map(|number| database.get(&key(number)));
    let (good, bad): (Vec<_>, Vec<_>) = reads.partition(Result::is_ok);
    assert!(!bad.is_empty() && bad.len() < 20, "{} records are lost", bad.len());
    assert!(bad.iter().all(|error| matches!(error, Err(Error::Corrupted { .. }))));
    assert_eq!(good.len() + bad.len(), 1000);
    // Iterators return what is before the damage, then the error, and no more.
    let mut sorted: Vec<_> = (0..1000).map(key).collect();
    sorted.sort_unstable();
    let before = sorted.iter().take_while(|key| database.get(key).is_ok()).count();
    assert!(before > 0);
    let (records, keys) = (database.iter().unwrap(), database.keys().unwrap());
    let records = records.map(|record| record.map(|record| record.key)).collect::<Vec<_>>();
    for found in [records, keys.collect()] {
        assert!(found.iter().take(before).all(Result::is_ok));
        assert!(matches!(found[before..], [Err(Error::Corrupted { .. })]), "{}", found.len());
    }
    let mut visited = 0;
    let found = database.for_each(|_| {
        visited += 1;
        if visited < before { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(found.is_ok() && visited == before);
    database.put(b"new", b"value").unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(database.get(b"new").unwrap().unwrap(), b"value");
}

#[test]
fn writers_scans_checkpoints_and_clearing_go_on_side_by_side() {
    const LASTING: u64 = 2000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(PATH);
    let options = small_options(KeyOrder::Lexical);
    let engine = Arc::new(TreeDatabase::open(&path, &options).unwrap());
    let database = Database::from_engine(Arc::clone(&engine) as _);
    let lasting = |number: u64| [b"lasting".to_vec(), key(number)].concat();
    for number in 0..LASTING {
        database.put(&lasting(number), b"value").unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (database, done) = (&database, &done);
            scope.spawn(move || {
                let mut step = thread;
                while !done.load(Ordering::Relaxed) {
                    let key = key(step % 4000);
                    if (step / 4000).is_multiple_of(2) {
                        database.put(&key, &vec![step as u8; 60 + (step % 300) as usize]).unwrap();
                    } else {
                        database.remove(&key).unwrap();
                    }
                    step += 2;
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                engine.checkpoint().unwrap();
                engine.optimize(None).unwrap();
            }
        });
        for _ in 0..20 {
            let mut met = 0;
            let mut previous: Option<Vec<u8>> = None;
            let visit = |entry: cabinet::RecordRef<'_>| {
                assert!(previous.as_deref().is_none_or(|previous| previous < entry.key));
                previous = Some(entry.key.to_vec());
                met += u64::from(entry.key.starts_with(b"lasting"));
                ControlFlow::Continue(())
            };
            database.for_each(visit).unwrap();
            assert_eq!(met, LASTING);
        }
        done.store(true, Ordering::Relaxed);
    });
    for number in 0..LASTING {
        assert_eq!(database.get(&lasting(number)).unwrap().unwrap(), b"value");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&database, 5000));
        for _ in 0..20 {
            database.clear().unwrap();
        }
    });
    let left = database.len();
    drop((engine, database));
    let database = options.cache_bytes(CACHE_BYTES_MIN).open(&path).unwrap();
    assert_eq!(database.len(), left);
    let mut met = 0;
    let count = |_: cabinet::RecordRef<'_>| {
        met += 1;
        ControlFlow::Continue(())
    };
    database.for_each(count).unwrap();
    assert_eq!(met, left);
}

#[test]
fn dead_bytes_are_at_most_those_that_an_optimization_gives_back() {
    const RECORDS: u64 = 5_000;
    let storage = FaultyStorage::new();
    let mut options = Options::default();
    options.segment_bytes = Some(256 << 10);
    options.cache_bytes = Some(200 << 10);
    let dead_of = |database: &Database| (stat(database, "dead_bytes"), stat(database, "log_bytes"));
    let check = |database: &Database, moment: &str| {
        let (dead, log) = dead_of(database);
        assert!(dead > 10 << 10, "{moment}: {dead} of {log}");
        database.optimize().unwrap();
        // The header of each segment, of 64 bytes, counts as dead.
        let given_back = log + 64 * stat(database, "segments") - stat(database, "log_bytes");
        assert!(dead <= given_back, "{moment}: {dead} of {log}, {given_back} were given back");
    };
    let overwrite_some = |database: &Database| {
        // Less than the share of dead bytes that a checkpoint leaves.
        for number in 0..RECORDS / 20 {
            database.put(&key(number), &[number as u8; 100]).unwrap();
        }
    };
    let (engine, database) = open(&storage, &options);
    for moment in ["after a checkpoint", "after an opening"] {
        fill(&database, RECORDS);
        engine.checkpoint().unwrap();
        overwrite_some(&database);
        engine.checkpoint().unwrap();
        if moment == "after a checkpoint" {
            check(&database, moment);
        }
    }
    let (_engine, database) = open(&storage.kill(), &options);
    check(&database, "after an opening");
    // No opening needs the changes before. Pages that leave the memory are written again.
    fill(&database, 4 * RECORDS);
    database.clear().unwrap();
    fill(&database, RECORDS);
    check(&database, "after a clear");
}
