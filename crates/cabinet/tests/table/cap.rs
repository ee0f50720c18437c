//! A cap on the bytes of a table: rows go with all entries of their indices, and nothing else goes.

use crate::observed_storage::{ObservedStorage, StorageOperation};
use cabinet::limits::CAPACITY_BYTES_MIN;
use cabinet::table::{IndexChange, IndexKind, Operator, Query, Row, Table};
use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{
    Batch, Database, Durability, Engine, Error, Maintenance, Meta, Options, TreeDatabase, Wait,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

const CAP: u64 = CAPACITY_BYTES_MIN;
const PATH: &str = "casket.tct";

/// Rows over the cap are one write's, with its entries.
const OVER_BYTES_MAX: u64 = 64 << 10;

/// The files take at most so many times the cap, as `docs/protocols/memcached.md` has it.
const FILES_OF_CAP: u64 = 3;

/// Rows that do not fit into the cap together, with or without indices.
const MANY: u64 = 18_000;

const INDICES: [(&[u8], IndexKind); 3] =
    [(b"name", IndexKind::Lexical), (b"size", IndexKind::Decimal), (b"text", IndexKind::Token)];

fn options() -> Options {
    let mut options = Options::default();
    options.capacity_bytes = CAP;
    options.cache_bytes = Some(1 << 20);
    options
}

fn uncapped() -> Options {
    let mut options = options();
    options.capacity_bytes = 0;
    options
}

/// A table without threads of its own, and its tree.
fn open(storage: Arc<dyn Storage>, options: &Options) -> (Arc<TreeDatabase>, Arc<Table>) {
    let tree = TreeDatabase::open_table_on(storage, Path::new(PATH), options, false).unwrap();
    let tree = Arc::new(tree);
    let table = Table::new(Arc::clone(&tree) as Arc<dyn Engine>, options).unwrap();
    (tree, Arc::new(table))
}

fn open_indexed(storage: &FaultyStorage, options: &Options) -> (Arc<TreeDatabase>, Arc<Table>) {
    let (tree, table) = open(Arc::new(storage.clone()), options);
    for (column, kind) in INDICES {
        table.set_index(column, IndexChange::Set(kind)).unwrap();
    }
    (tree, table)
}

/// Keys in no order.
fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

fn row(number: u64) -> Row {
    let text = format!("common word{} word{}", number % 50, number % 1000);
    Row::new()
        .with(b"name", format!("name {number}").as_bytes())
        .and_then(|row| row.with(b"size", (number % 777).to_string().as_bytes()))
        .and_then(|row| row.with(b"text", text.as_bytes()))
        .and_then(|row| row.with(b"rest", &number.to_le_bytes().repeat(20)))
        .unwrap()
}

fn put(table: &Table, number: u64) {
    table.put(&key(number), &row(number)).unwrap();
}

fn is_there(table: &Table, number: u64) -> bool {
    let found = table.get(&key(number)).unwrap();
    found.is_some_and(|found| {
        assert_eq!(found, row(number));
        true
    })
}

fn stat(table: &Table, name: &str) -> u64 {
    let stat = table.stats().into_iter().find(|(other, _)| *other == name);
    stat.unwrap().1.parse().unwrap()
}

fn rows(table: &Table) -> BTreeMap<Vec<u8>, Row> {
    let mut rows = BTreeMap::new();
    table
        .for_each_row(|key, row| {
            rows.insert(key.to_vec(), row.to_row());
            ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

/// Compares all entries of all indices with all rows, and what searches by an index and without one
/// find.
fn check(table: &Table) {
    table.check_indices().unwrap();
    let all = rows(table);
    assert_eq!(table.len(), all.len() as u64);
    for (column, operator, operand) in [
        (&b"text"[..], Operator::StringAllTokens, &b"common"[..]),
        (b"text", Operator::StringAnyToken, b"word7 word77"),
        (b"size", Operator::NumberGreaterEqual, b"400"),
        (b"name", Operator::StringBegins, b"name 1"),
    ] {
        let query = Query::new().with(column, operator, operand);
        let (mut found, report) = table.search(&query).unwrap();
        let is_indexed = table.indices().iter().any(|index| index.column == column);
        assert_eq!(report.hint.contains("using an index"), is_indexed, "{}", report.hint);
        let mut unindexed = query.clone();
        unindexed.conditions[0].no_index = true;
        let (mut expected, _) = table.search(&unindexed).unwrap();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert!(found.iter().all(|key| all.contains_key(key)));
    }
}

fn stored_bytes(storage: &FaultyStorage) -> u64 {
    let names = storage.list(Path::new(PATH)).unwrap();
    let bytes_of = |name: &String| {
        storage.open(&Path::new(PATH).join(name), Open::Existing).unwrap().length().unwrap()
    };
    names.iter().map(bytes_of).sum()
}

fn keeps_to_the_cap(is_indexed: bool) {
    let storage = FaultyStorage::new();
    let (tree, table) = if is_indexed {
        open_indexed(&storage, &options())
    } else {
        open(Arc::new(storage.clone()), &options())
    };
    let uid = table.generate_uid().unwrap();
    let (read, mut files_bytes) = (0..20, 0);
    for number in 0..MANY {
        put(&table, number);
        let bytes = stat(&table, "page_bytes");
        assert!(bytes <= CAP + OVER_BYTES_MAX, "{bytes} bytes after {number} puts");
        if number % 5000 == 0 {
            // A scan of all rows does not keep them all from eviction.
            rows(&table);
        }
        if number % 100 == 0 {
            read.clone().filter(|read| *read <= number).for_each(|read| {
                assert!(is_there(&table, read), "{read} at {number}");
            });
            tree.run_maintenance().unwrap();
            files_bytes = files_bytes.max(stored_bytes(&storage));
        }
    }
    check(&table);
    let newest = MANY - 1000..MANY;
    let there = newest.filter(|number| is_there(&table, *number)).count();
    assert!(there > 900, "{there} of the newest 1000");
    assert_eq!(stat(&table, "evicted"), MANY - table.len());
    let bytes = stat(&table, "page_bytes");
    assert!(bytes > CAP * 3 / 4, "{bytes} bytes");
    assert!(files_bytes <= FILES_OF_CAP * CAP, "{files_bytes} bytes of files");
    // The metadata of the table is there.
    assert_eq!(table.generate_uid().unwrap(), uid + 1);
    let indices = table.indices();
    assert_eq!(indices.len(), if is_indexed { INDICES.len() } else { 0 });
    let before = rows(&table);
    drop((tree, table));
    let (_tree, table) = open(Arc::new(storage), &options());
    assert_eq!((rows(&table), table.indices()), (before, indices));
    assert_eq!(table.last_uid(), uid + 1);
    check(&table);
}

#[test]
fn a_table_keeps_to_its_cap_and_what_is_read_or_new_stays() {
    keeps_to_the_cap(false);
}

#[test]
fn a_table_with_indices_keeps_to_its_cap_and_they_agree_with_the_rows() {
    keeps_to_the_cap(true);
}

#[test]
fn rows_of_many_lengths_change_and_go_with_their_entries() {
    let storage = FaultyStorage::new();
    let (tree, table) = open_indexed(&storage, &options());
    let database = Database::from(Arc::clone(&table));
    let mut longest = 0;
    for number in 0..12_000u64 {
        let length = (number * 7919 % 4000) as usize;
        let key = key(number * 7907 % 4000);
        let long = row(number).with(b"rest", &vec![7; length]).unwrap();
        match number % 7 {
            0 => drop(table.remove(&key).unwrap()),
            1 => {
                let mut batch = Batch::new();
                batch.put(&key, b"name\0of a batch\0size\x007", Meta::NONE);
                batch.put(&[&key[..], b"2"].concat(), b"text\0word7 of two", Meta::NONE);
                database.write(&batch).unwrap();
            }
            2 => table.put_cat(&key, &long).unwrap(),
            _ => table.put(&key, &long).unwrap(),
        }
        longest = longest.max(stat(&table, "page_bytes"));
        if number % 500 == 0 {
            tree.run_maintenance().unwrap();
        }
        if number % 3000 == 0 {
            check(&table);
        }
    }
    assert!(longest <= CAP + OVER_BYTES_MAX, "{longest} bytes");
    assert!(stat(&table, "evicted") > 1000);
    check(&table);
}

#[test]
fn a_cap_is_set_and_lowered_while_the_table_is_open() {
    let storage = FaultyStorage::new();
    let (tree, table) = open_indexed(&storage, &uncapped());
    let database = Database::from(Arc::clone(&table));
    (0..3 * MANY).for_each(|number| put(&table, number));
    assert!(!database.evicts());
    for limit in [2 * CAP, CAP] {
        database.retune(&format!("capsiz={limit}")).unwrap();
        tree.run_maintenance().unwrap();
        assert!(database.evicts());
        assert_eq!(stat(&table, "limit_bytes"), limit);
        let bytes = stat(&table, "page_bytes");
        assert!(bytes <= limit && bytes > limit / 2, "{bytes} bytes of {limit}");
        check(&table);
        let newest = 3 * MANY - 1000..3 * MANY;
        let there = newest.filter(|number| is_there(&table, *number)).count();
        assert!(there > 900, "{there} of the newest 1000 at {limit}");
        let files = stored_bytes(&storage);
        assert!(files <= FILES_OF_CAP * limit, "{files} bytes of files at {limit}");
    }
}

#[test]
fn a_writer_evicts_what_a_lower_cap_leaves_no_room_for_after_opening() {
    for is_indexed in [false, true] {
        let storage = FaultyStorage::new();
        {
            let (_tree, table) = if is_indexed {
                open_indexed(&storage, &uncapped())
            } else {
                open(Arc::new(storage.clone()), &uncapped())
            };
            (0..MANY).for_each(|number| put(&table, number));
        }
        let (_tree, table) = open(Arc::new(storage), &options());
        assert_eq!(table.len(), MANY);
        // An event loop does not wait for what has to go first.
        let engine: Arc<dyn Engine> = Arc::clone(&table) as _;
        let late = engine.put(b"key", b"a\0b", Meta::NONE, Wait::Never);
        assert!(matches!(late, Err(Error::WouldBlock)), "{late:?}");
        assert_eq!(table.len(), MANY);
        put(&table, MANY);
        let bytes = stat(&table, "page_bytes");
        assert!(bytes <= CAP + OVER_BYTES_MAX && bytes > CAP / 2, "{bytes} bytes");
        assert!(is_there(&table, MANY));
        check(&table);
    }
}

#[test]
fn an_index_that_is_built_in_a_full_table_makes_rows_go() {
    let storage = FaultyStorage::new();
    let (_tree, table) = open(Arc::new(storage), &options());
    (0..MANY).for_each(|number| put(&table, number));
    let before = table.len();
    for (column, kind) in INDICES {
        table.set_index(column, IndexChange::Set(kind)).unwrap();
        let bytes = stat(&table, "page_bytes");
        assert!(bytes <= CAP + CAP / 8, "{bytes} bytes");
        check(&table);
    }
    put(&table, MANY);
    let bytes = stat(&table, "page_bytes");
    assert!(bytes <= CAP + OVER_BYTES_MAX && bytes > CAP * 3 / 4, "{bytes} bytes");
    assert!(table.len() < before);
    check(&table);
}

#[test]
fn rows_over_a_quarter_of_the_cap_are_refused_and_evict_nothing() {
    let storage = FaultyStorage::new();
    let (_tree, table) = open_indexed(&storage, &options());
    let database = Database::from(Arc::clone(&table));
    let most = CAP as usize / 4;
    let of_bytes = |bytes| row(0).with(b"rest", &vec![1; bytes]).unwrap();
    put(&table, 0);
    let too_long = table.put(b"a", &of_bytes(most));
    assert!(matches!(too_long, Err(Error::ValueTooLong { .. })), "{too_long:?}");
    let mut batch = Batch::new();
    for key in [b"b", b"c"] {
        batch.put(key, &[b"rest\0", &vec![b'1'; most / 2][..]].concat(), Meta::NONE);
    }
    assert!(matches!(database.write(&batch), Err(Error::ValueTooLong { .. })));
    assert_eq!((table.len(), stat(&table, "evicted")), (1, 0));
    for number in 0..30u64 {
        // In its own place, too, where both are there for a moment.
        for bytes in [most - 1000, most - 2000] {
            table.put(&key(number), &of_bytes(bytes)).unwrap();
        }
        assert!(table.get(&key(number)).unwrap().is_some(), "the newest is there");
        let bytes = stat(&table, "page_bytes");
        assert!(bytes <= CAP + 2 * most as u64, "{bytes}: and what one write takes");
        check(&table);
    }
    assert!(table.len() < 16);
}

#[test]
fn what_was_evicted_stays_away_and_indices_agree_whatever_befalls_the_table() {
    for durability in [Durability::None, Durability::Always] {
        let mut options = options();
        options.durability = durability;
        let mut storage = FaultyStorage::new();
        drop(open_indexed(&storage, &options));
        for round in 0..3u64 {
            let (tree, table) = open(Arc::new(storage.clone()), &options);
            for number in round * MANY / 3..(round + 1) * MANY / 3 + round * 501 {
                put(&table, number);
                if number % 5000 == 0 {
                    tree.run_maintenance().unwrap();
                }
            }
            table.acknowledge().unwrap();
            let before = rows(&table);
            let crashed = match durability {
                Durability::None => storage.kill(),
                _ => storage.lose_power(|| 0),
            };
            drop((tree, table));
            storage = crashed;
            let (_tree, table) = open(Arc::new(storage.clone()), &options);
            assert_eq!(rows(&table), before);
            check(&table);
        }
    }
}

#[test]
fn a_crash_amid_an_eviction_leaves_rows_with_their_entries() {
    let storage = FaultyStorage::new();
    let left = Arc::new(std::sync::Mutex::new(Vec::new()));
    let watch = {
        let (storage, left) = (storage.clone(), Arc::clone(&left));
        let mut seen = 0;
        let seen = std::sync::Mutex::new(move || {
            seen += 1;
            seen
        });
        Arc::new(move |_: StorageOperation| {
            if (seen.lock().unwrap())() % 100 == 0 {
                left.lock().unwrap().push(storage.kill());
            }
        })
    };
    let observed: Arc<dyn Storage> = Arc::new(ObservedStorage { storage, watch });
    let (tree, table) = open(observed, &options());
    for (column, kind) in INDICES {
        table.set_index(column, IndexChange::Set(kind)).unwrap();
    }
    for number in 0..MANY / 2 {
        put(&table, number);
        if number % 1000 == 0 {
            tree.run_maintenance().unwrap();
        }
    }
    drop((tree, table));
    let left = std::mem::take(&mut *left.lock().unwrap());
    assert!(left.len() > 3, "{} crashes", left.len());
    for storage in left {
        let (_tree, table) = open(Arc::new(storage), &options());
        table.check_indices().unwrap();
        for (key, found) in rows(&table) {
            assert!(found.get(b"name").is_some(), "{key:?}");
        }
    }
}

#[test]
fn writers_of_many_threads_keep_to_the_cap_of_a_table() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 6000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PATH);
    let mut options = options();
    options.indices = INDICES
        .map(|(column, kind)| cabinet::table::IndexDescription { column: column.to_vec(), kind })
        .to_vec();
    let database = options.open(&path).unwrap();
    let table = database.table().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|thread| {
                scope.spawn(move || {
                    for number in 0..EACH {
                        let number = number * WRITERS + thread;
                        put(table, number);
                        assert!(is_there(table, number));
                        if number.is_multiple_of(11) {
                            table.remove(&key(number)).unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let bytes = stat(table, "page_bytes");
                assert!(bytes <= CAP + OVER_BYTES_MAX, "{bytes} bytes");
                // An entry may lead to a row that is gone when it is read, but no result does.
                let query = Query::new().with(b"text", Operator::StringAllTokens, b"word7");
                table
                    .for_each_result_row(&query, |_, row| {
                        let text = row.get(b"text").map(<[u8]>::to_vec).unwrap_or_default();
                        assert!(text.split(|byte| *byte == b' ').any(|word| word == b"word7"));
                        Ok(ControlFlow::Continue(()))
                    })
                    .unwrap();
            }
        });
        for writer in writers {
            let result = writer.join();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            result.unwrap();
        }
    });
    let removed = (0..EACH * WRITERS).filter(|number| number.is_multiple_of(11)).count() as u64;
    let evicted = stat(table, "evicted");
    assert!(evicted > EACH / 2, "{evicted}");
    // A row may have been evicted before it was removed.
    let left = table.len();
    assert!((EACH * WRITERS - removed..=EACH * WRITERS).contains(&(left + evicted)));
    check(table);
    let before = rows(table);
    drop(database);
    let database = options.open(&path).unwrap();
    let table = database.table().unwrap();
    assert_eq!(rows(table), before);
    check(table);
}
