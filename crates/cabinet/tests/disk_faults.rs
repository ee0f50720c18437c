//! Promises of databases when the disk fails or fills up.

#[path = "support/disk.rs"]
mod disk;
#[path = "model/in_runs.rs"]
mod in_runs;

use cabinet::table::{IndexChange, IndexKind, Row};
use cabinet::testing::{FaultyStorage, Storage};
use cabinet::{
    Database, Durability, Error, FixedDatabase, HashDatabase, Options, Result, TreeDatabase,
};
use disk::{DiskEngine, TableDatabase};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options.segment_bytes = Some(64 << 10);
    options
}

fn try_open<E: DiskEngine>(storage: &FaultyStorage, options: &Options) -> Result<(E, Database)> {
    let opened = E::open(Arc::new(storage.clone()), options)?;
    let database = opened.database();
    Ok((opened, database))
}

fn open_any<E: DiskEngine>(storage: &FaultyStorage, options: &Options) -> (E, Database) {
    try_open(storage, options).expect("the database opens")
}

fn open(storage: &FaultyStorage, options: &Options) -> (Arc<HashDatabase>, Database) {
    open_any(storage, options)
}

/// Random numbers, the same each time.
fn chance() -> impl FnMut() -> u64 {
    let mut seed = 0u64;
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    }
}

#[test]
fn after_a_failed_sync_writes_refuse_and_reads_go_on() {
    let storage = FaultyStorage::new();
    let options = options(Durability::Always);
    let (_engine, database) = open(&storage, &options);
    let deferred = database.deferred();
    database.put(b"before", b"1").expect("a put");
    storage.faults().fail_syncs.store(true, Ordering::Relaxed);
    assert!(matches!(database.put(b"during", b"2"), Err(Error::Io { .. })));
    storage.faults().fail_syncs.store(false, Ordering::Relaxed);
    assert!(matches!(database.put(b"after", b"3"), Err(Error::Poisoned(_))));
    assert!(matches!(deferred.remove(b"before"), Err(Error::Poisoned(_))));
    assert_eq!(database.get(b"before").expect("a read"), Some(b"1".to_vec()));
}

/// The power goes at any moment of an opening after a kill in the middle of a clearing.
#[test]
fn a_clearing_that_was_cut_short_is_done_as_a_whole_or_not_at_all() {
    fn test<E: DiskEngine>() {
        let storage = FaultyStorage::new();
        let options = options(Durability::None);
        let (_engine, database) = open_any::<E>(&storage, &options);
        let key = |number: u32| (number + 1).to_string().into_bytes();
        for number in 0..300 {
            database.put(&key(number), &[1; 1000]).expect("a put");
        }
        database.sync().expect("a sync");
        storage.faults().fail_syncs.store(true, Ordering::Relaxed);
        assert!(database.clear().is_err());
        let mut chance = chance();
        let mut syncs = 0;
        loop {
            let killed = storage.kill();
            killed.faults().syncs_left.store(syncs, Ordering::Relaxed);
            let is_open = try_open::<E>(&killed, &options).is_ok();
            for loss in 0..20 {
                let lost = killed.lose_power(&mut chance);
                let (_engine, database) = open_any::<E>(&lost, &options);
                assert_eq!(database.damages(), [], "{syncs} syncs, loss {loss}");
                let is_there = |number: &u32| database.get(&key(*number)).expect("a get").is_some();
                let left = (0..300).filter(is_there).count();
                assert!([0, 300].contains(&left), "{syncs} syncs, loss {loss}: {left} left");
            }
            if is_open {
                return;
            }
            syncs += 1;
        }
    }
    test::<Arc<HashDatabase>>();
    test::<Arc<TreeDatabase>>();
}

/// An opening after a kill finds a copy of the manifest that only the page cache has. If the power
/// goes while it writes the other one, one of them is whole.
#[test]
fn a_power_loss_during_the_opening_after_a_kill_leaves_a_manifest() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (_engine, database) = open(&storage, &options);
    for number in 0..300u32 {
        database.put(&number.to_le_bytes(), &[1; 1000]).expect("a put");
    }
    database.sync().expect("a sync");
    // Segments of which only one copy knows, without a sync.
    for number in 300..600u32 {
        database.put(&number.to_le_bytes(), &[1; 1000]).expect("a put");
    }
    let mut chance = chance();
    let mut syncs = 0;
    loop {
        let killed = storage.kill();
        killed.faults().syncs_left.store(syncs, Ordering::Relaxed);
        let opened = try_open::<Arc<HashDatabase>>(&killed, &options);
        for loss in 0..20 {
            let lost = killed.lose_power(&mut chance);
            let (_engine, database) = match try_open::<Arc<HashDatabase>>(&lost, &options) {
                Ok(opened) => opened,
                Err(error) => panic!("{syncs} syncs, loss {loss}: {error}"),
            };
            for number in 0..300u32 {
                let found = database.get(&number.to_le_bytes()).expect("a read");
                assert!(found.is_some(), "{syncs} syncs, loss {loss}: {number}");
            }
        }
        if opened.is_ok() {
            return;
        }
        syncs += 1;
    }
}

#[test]
fn a_full_disk_refuses_loses_nothing_and_goes_on_when_space_returns() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (engine, database) = open(&storage, &options);
    storage.faults().space_bytes.store(400 << 10, Ordering::Relaxed);
    let mut stored = 0u32;
    let refused = loop {
        match database.put(&stored.to_le_bytes(), &[stored as u8; 500]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(stored > 300, "{stored}");
    for number in 0..stored {
        let found = database.get(&number.to_le_bytes()).expect("a read");
        assert_eq!(found, Some(vec![number as u8; 500]));
    }
    // There is room left for removals, and what they leave between others can be given back.
    let removed = 60u32;
    for number in 0..removed {
        assert!(database.remove(&(number * 2).to_le_bytes()).expect("a removal"));
    }
    engine.run_maintenance().expect("maintenance");
    for number in 0..30u32 {
        database.put(&(number * 2).to_le_bytes(), &[1; 500]).expect("a put after space returned");
    }
    let again = storage.kill();
    drop((engine, database));
    let (_engine, database) = open(&again, &options);
    for number in 0..stored {
        let found = database.get(&number.to_le_bytes()).expect("a read");
        let expected = match number {
            number if number % 2 == 0 && number < 60 => Some(vec![1; 500]),
            number if number % 2 == 0 && number < removed * 2 => None,
            number => Some(vec![number as u8; 500]),
        };
        assert_eq!(found, expected, "{number}");
    }
}

#[test]
fn a_full_database_can_be_cleared() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (_engine, database) = open(&storage, &options);
    storage.faults().space_bytes.store(200 << 10, Ordering::Relaxed);
    let mut stored = 0u32;
    while database.put(&stored.to_le_bytes(), &[1; 500]).is_ok() {
        stored += 1;
    }
    database.clear().expect("clearing");
    assert_eq!(database.len(), 0);
    database.put(b"again", &[1; 500]).expect("a put after the clearing");
}

#[test]
fn a_read_that_fails_says_so_and_a_short_one_is_continued() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    {
        let (_engine, database) = open(&storage, &options);
        for number in 0..1000u32 {
            database.put(&number.to_le_bytes(), &[3; 300]).expect("a put");
        }
    }
    let short = storage.kill();
    short.faults().short_reads.store(7, Ordering::Relaxed);
    let (_engine, database) = open(&short, &options);
    assert_eq!(database.get(&5u32.to_le_bytes()).expect("a read"), Some(vec![3; 300]));
    assert_eq!(database.len(), 1000);
    let failing = storage.kill();
    failing.faults().fail_reads.store(true, Ordering::Relaxed);
    let result = try_open::<Arc<HashDatabase>>(&failing, &options);
    assert!(matches!(result.err(), Some(Error::Io { .. })));
}

#[test]
fn a_database_that_is_open_cannot_be_opened_again() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (_engine, _database) = open(&storage, &options);
    let again = try_open::<Arc<HashDatabase>>(&storage, &options);
    assert!(matches!(again.err(), Some(Error::InUse { .. })));
}

/// A key and a value that every kind takes: an id, and a column of a row.
fn record(number: u32) -> (Vec<u8>, Vec<u8>) {
    let key = (number + 1).to_string().into_bytes();
    let value = format!("column\0{}", "value ".repeat(20 + number as usize % 30)).into_bytes();
    (key, value)
}

fn check_records(database: &Database, count: u32) {
    assert_eq!(database.len(), u64::from(count));
    for number in 0..count {
        let (key, value) = record(number);
        assert_eq!(database.get(&key).expect("a read"), Some(value), "{number}");
    }
}

/// Writes checkpoints of a changed database on disks with more and more space, from none.
fn a_disk_that_is_full_for_a_checkpoint_loses_nothing<E: DiskEngine>() {
    const RECORDS: u32 = 500;
    let options = options(Durability::None);
    let base = FaultyStorage::new();
    let (engine, database) = open_any::<E>(&base, &options);
    for number in 0..RECORDS {
        let (key, value) = record(number);
        database.put(&key, &value).expect("a put");
        if number == RECORDS / 2 {
            engine.checkpoint().expect("a checkpoint");
        }
    }
    let (mut refused, mut written) = (0, 0);
    for space in (0..).map(|step: u64| step * step * 512).take_while(|space| *space < 1 << 20) {
        let storage = base.kill();
        let (engine, database) = open_any::<E>(&storage, &options);
        let (key, value) = record(RECORDS);
        storage.faults().space_bytes.store(space, Ordering::Relaxed);
        match engine.checkpoint() {
            Ok(()) => written += 1,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                refused += 1;
            }
        }
        check_records(&database, RECORDS);
        check_records(&open_any::<E>(&storage.kill(), &options).1, RECORDS);

        storage.faults().space_bytes.store(u64::MAX, Ordering::Relaxed);
        database.put(&key, &value).expect("a put after space returned");
        engine.checkpoint().expect("a checkpoint after space returned");
        check_records(&database, RECORDS + 1);
        check_records(&open_any::<E>(&storage.kill(), &options).1, RECORDS + 1);
    }
    drop((engine, database));
    assert!(refused > 0 && written > 0, "{refused} refused, {written} written");
}

#[test]
fn a_full_disk_loses_nothing_while_a_hash_writes_a_checkpoint() {
    a_disk_that_is_full_for_a_checkpoint_loses_nothing::<Arc<HashDatabase>>();
}

#[test]
fn the_same_of_a_hash_with_its_index_in_runs() {
    a_disk_that_is_full_for_a_checkpoint_loses_nothing::<in_runs::HashInRuns>();
}

#[test]
fn the_same_of_a_fixed_length_database() {
    a_disk_that_is_full_for_a_checkpoint_loses_nothing::<Arc<FixedDatabase>>();
}

#[test]
fn the_same_of_a_tree() {
    a_disk_that_is_full_for_a_checkpoint_loses_nothing::<Arc<TreeDatabase>>();
}

#[test]
fn the_same_of_a_table() {
    a_disk_that_is_full_for_a_checkpoint_loses_nothing::<TableDatabase>();
}

/// Puts until the disk is full and beyond, has the engine do what it does in the background, and
/// looks whether everything that was stored is there: before space returns, and after.
fn a_disk_that_fills_up_loses_nothing<E: DiskEngine>() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (engine, database) = open_any::<E>(&storage, &options);
    storage.faults().space_bytes.store(500 << 10, Ordering::Relaxed);
    let mut stored = 0;
    let refused = loop {
        let (key, value) = record(stored);
        match database.put(&key, &value) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(stored > 300, "{stored}");
    for _ in 0..3 {
        // It may succeed or not.
        let _ = engine.run_maintenance();
        check_records(&database, stored);
    }
    check_records(&open_any::<E>(&storage.kill(), &options).1, stored);
    storage.faults().space_bytes.store(u64::MAX, Ordering::Relaxed);
    engine.run_maintenance().expect("maintenance when space returned");
    for number in stored..stored + 200 {
        let (key, value) = record(number);
        database.put(&key, &value).expect("a put after space returned");
    }
    check_records(&database, stored + 200);
    check_records(&open_any::<E>(&storage.kill(), &options).1, stored + 200);
}

#[test]
fn a_tree_on_a_disk_that_fills_up_loses_nothing_and_goes_on() {
    a_disk_that_fills_up_loses_nothing::<Arc<TreeDatabase>>();
}

#[test]
fn a_table_on_a_disk_that_fills_up_loses_nothing_and_goes_on() {
    a_disk_that_fills_up_loses_nothing::<TableDatabase>();
}

/// The numbers below `count` in an order that has nothing to do with theirs.
fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    let mut state = 0x9e37_79b9_u32;
    for at in (1..numbers.len()).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        numbers.swap(at, (state >> 8) as usize % (at + 1));
    }
    numbers
}

/// Bytes of a disk that is filled with small records.
const FULL_DISK_BYTES: u64 = 4 << 20;

/// Fills a disk with small records, removes most of them in no order, and puts again: nobody else
/// gives space back meanwhile. No removal is refused, no put is for good, and nothing is lost.
fn a_full_disk_takes_removals_and_then_puts<E: DiskEngine>(space_bytes: u64) {
    let storage = FaultyStorage::new();
    let mut options = options(Durability::None);
    // Pages of some size, all of which are in memory.
    options.leaf_bytes = Some(1 << 10);
    options.cache_bytes = Some(4 << 20);
    let engine = E::open(Arc::new(storage.clone()), &options).expect("the database opens");
    let database = engine.database();
    storage.faults().space_bytes.store(space_bytes, Ordering::Relaxed);
    let mut stored = 0;
    let refused = loop {
        let (key, value) = record(stored);
        let mut result = database.put(&key, &value);
        if result.is_err() {
            // Dead records are reclaimed first.
            let _ = engine.run_maintenance();
            result = database.put(&key, &value);
        }
        match result {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    let order = shuffled(stored);
    let (removed, kept) = order.split_at(stored as usize * 7 / 10);
    let mut left: std::collections::BTreeSet<u32> = kept.iter().copied().collect();
    for number in removed {
        let was_there = database.remove(&record(*number).0);
        let was_there = was_there.unwrap_or_else(|error| panic!("removal of {number}: {error}"));
        assert!(was_there, "{number}");
    }
    // Half of what went has to have room again.
    let puts = removed.len() as u32 / 2;
    for number in stored..stored + puts {
        let (key, value) = record(number);
        let mut result = database.put(&key, &value);
        for _ in 0..3 {
            if matches!(result, Err(Error::NoSpace { .. })) {
                engine.run_maintenance().expect("maintenance");
                result = database.put(&key, &value);
            }
        }
        result.unwrap_or_else(|error| panic!("put {} of {puts}: {error}", number - stored));
        left.insert(number);
    }
    for database in [&database, &open_any::<E>(&storage.kill(), &options).1] {
        assert_eq!(database.len(), left.len() as u64);
        for number in 0..stored + puts {
            let (key, value) = record(number);
            let expected = left.contains(&number).then_some(value);
            assert_eq!(database.get(&key).expect("a read"), expected, "{number}");
        }
    }
}

#[test]
fn a_full_hash_takes_removals_and_then_puts() {
    a_full_disk_takes_removals_and_then_puts::<Arc<HashDatabase>>(FULL_DISK_BYTES);
}

#[test]
fn a_full_hash_with_its_index_in_runs_takes_removals_and_then_puts() {
    a_full_disk_takes_removals_and_then_puts::<in_runs::HashInRuns>(FULL_DISK_BYTES);
}

/// A database whose reserve does not fit on the disk takes what fits besides, also where the system
/// keeps a part of what it cannot allocate.
#[test]
fn a_reserve_that_does_not_fit_takes_nothing() {
    for hide_shortage in [false, true] {
        let storage = FaultyStorage::new();
        let options = options(Durability::None);
        let (engine, database) = open_any::<Arc<HashDatabase>>(&storage, &options);
        for number in 0..100 {
            let (key, value) = record(number);
            database.put(&key, &value).expect("a put");
        }
        drop((engine, database));
        storage
            .remove(&Path::new(<Arc<HashDatabase> as DiskEngine>::PATH).join("reserve"))
            .expect("the reserve goes");
        let faults = storage.faults();
        faults.space_bytes.store(48 << 10, Ordering::Relaxed);
        faults.keep_parts.store(true, Ordering::Relaxed);
        faults.hide_shortage.store(hide_shortage, Ordering::Relaxed);
        let (engine, database) = open_any::<Arc<HashDatabase>>(&storage, &options);
        for number in 100..150 {
            let (key, value) = record(number);
            database.put(&key, &value).expect("a put into what is left");
        }
        for number in 0..150 {
            assert!(database.remove(&record(number).0).expect("a removal"), "{number}");
        }
        drop(engine);
    }
}

/// Whether the space of a segment that was removed is enough for another reserve of compaction
/// depends on a few bytes.
#[test]
fn the_same_of_disks_that_differ_by_a_few_bytes() {
    for bytes in 0..8 {
        let space_bytes = (1 << 20) + 8 * bytes;
        a_full_disk_takes_removals_and_then_puts::<Arc<HashDatabase>>(space_bytes);
        a_full_disk_takes_removals_and_then_puts::<in_runs::HashInRuns>(space_bytes);
    }
}

/// There are as many segments as the share for removals has room for tombstones, so that hardly
/// anything is dead in each of them when it is used up.
#[test]
fn the_same_of_many_segments() {
    a_full_disk_takes_removals_and_then_puts::<Arc<HashDatabase>>(12 << 20);
}

#[test]
fn a_full_fixed_length_database_takes_removals_and_then_puts() {
    a_full_disk_takes_removals_and_then_puts::<Arc<FixedDatabase>>(FULL_DISK_BYTES);
}

#[test]
fn a_full_tree_takes_removals_and_then_puts() {
    a_full_disk_takes_removals_and_then_puts::<Arc<TreeDatabase>>(FULL_DISK_BYTES);
}

#[test]
fn a_full_table_takes_removals_and_then_puts() {
    a_full_disk_takes_removals_and_then_puts::<TableDatabase>(FULL_DISK_BYTES);
}

/// Fills a disk with rows that have entries in indices, removes all of them in no order, and puts
/// again.
#[test]
fn a_full_table_with_indices_takes_removals_and_then_puts() {
    let storage = FaultyStorage::new();
    let mut options = options(Durability::None);
    options.leaf_bytes = Some(1 << 10);
    // All pages are in memory, and not all changes of entries.
    options.cache_bytes = Some(4 << 20);
    let opened = TableDatabase::open(Arc::new(storage.clone()), &options).unwrap();
    let table = &opened.table;
    for (column, kind) in [("number", IndexKind::Decimal), ("text", IndexKind::Gram)] {
        table.set_index(column.as_bytes(), IndexChange::Set(kind)).unwrap();
    }
    let row = |number: u32| {
        let text = format!("{number} words of row {} that vary {}", number % 97, number * 7919);
        let row = Row::new().with(b"number", number.to_string().as_bytes()).unwrap();
        row.with(b"text", text.as_bytes()).unwrap()
    };
    let key = |number: u32| number.to_string().into_bytes();
    storage.faults().space_bytes.store(4 << 20, Ordering::Relaxed);
    let mut stored = 0;
    let refused = loop {
        let mut result = table.put(&key(stored), &row(stored));
        if result.is_err() {
            let _ = opened.run_maintenance();
            result = table.put(&key(stored), &row(stored));
        }
        match result {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    let order = shuffled(stored);
    let mut refused = 0;
    for number in &order {
        match table.remove(&key(*number)) {
            Ok(was_there) => assert!(was_there, "{number}"),
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 0, "of {stored}");
    table.check_indices().unwrap();
    for number in 0..stored / 2 {
        let mut result = table.put(&key(number), &row(number));
        for _ in 0..3 {
            if matches!(result, Err(Error::NoSpace { .. })) {
                opened.run_maintenance().unwrap();
                result = table.put(&key(number), &row(number));
            }
        }
        result.unwrap_or_else(|error| panic!("put {number} of {stored}: {error}"));
    }
    table.check_indices().unwrap();
    let again = TableDatabase::open(Arc::new(storage.kill()), &options).unwrap();
    assert_eq!(again.table.len(), u64::from(stored / 2));
    again.table.check_indices().unwrap();
}
