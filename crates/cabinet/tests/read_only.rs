//! Reading changes nothing: a database that is opened for reading stays byte for byte what it was,
//! also one whose process was killed, and needs no right to write.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use cabinet::table::{IndexChange, IndexKind, Operator, Query, Row, SearchRequest, Table};
use cabinet::{
    Batch, CursorPut, Database, Error, Meta, Options, Result, Side, Transaction, check, salvage,
};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SUFFIXES: [&str; 4] = ["tch", "tcb", "tcf", "tct"];

/// Names, bytes and times of the files of a database.
fn files(path: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let bytes = fs::read(entry.path()).unwrap();
            let changed = entry.metadata().unwrap().modified().unwrap();
            (entry.file_name().into_string().unwrap(), (bytes, changed))
        })
        .collect()
}

fn key(number: u32) -> Vec<u8> {
    (number + 1).to_string().into_bytes()
}

fn put(database: &Database, number: u32) {
    let key = key(number);
    match database.table() {
        Some(table) => {
            let number = number.to_string();
            let row = Row::new().with(b"number", number.as_bytes()).unwrap();
            table.put(&key, &row.with(b"more", &[b'x'; 100]).unwrap()).unwrap();
        }
        None => drop(database.put(&key, &[b'x'; 100]).unwrap()),
    }
}

/// Makes a database of each kind at `path`, and leaves its files as a process that was killed does:
/// what they were while it was open is what is there. Returns how many records it has.
fn killed(path: &Path) -> u64 {
    let live = path.with_extension(format!("live.{}", path.extension().unwrap().display()));
    let database = Database::open(live.to_str().unwrap()).unwrap();
    if let Some(table) = database.table() {
        table.set_index(b"number", IndexChange::Set(IndexKind::Decimal)).unwrap();
    }
    (0..2000).for_each(|number| put(&database, number));
    // A sealed segment, and one that is appended to.
    let copy = path.with_extension(format!("copy.{}", path.extension().unwrap().display()));
    database.copy_to(&copy).unwrap();
    (1500..3000).for_each(|number| put(&database, number));
    (0..100).for_each(|number| assert!(database.remove(&key(number)).unwrap()));
    fs::create_dir(path).unwrap();
    for (name, (bytes, _)) in files(&live) {
        if name != "lock" {
            fs::write(path.join(name), bytes).unwrap();
        }
    }
    drop(database);
    2900
}

fn to_read() -> Options {
    let mut options = Options::default();
    (options.read_only, options.create) = (true, false);
    options
}

fn read_all(path: &Path, records: u64) {
    let database = to_read().open(path).unwrap();
    assert_eq!(database.len(), records, "{}", path.display());
    assert_eq!(database.get(&key(0)).unwrap(), None);
    assert!(database.get(&key(2999)).unwrap().is_some());
    let mut seen = 0;
    database
        .for_each(|_| {
            seen += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen, records);
    if let Some(table) = database.table() {
        let query = Query::new().with(b"number", Operator::NumberGreaterEqual, b"2000");
        assert_eq!(table.count(&query).unwrap(), 1000);
        let ordered = query.order_by(b"more", cabinet::table::SortKind::StringAscending);
        assert_eq!(table.search(&ordered).unwrap().0.len(), 1000);
    }
    assert!(matches!(database.put(&key(5), b"a\0b"), Err(Error::ReadOnly(_))));
    assert!(database.sync().is_ok());
}

#[test]
fn a_database_that_was_killed_stays_what_it_was_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for suffix in SUFFIXES {
        let path = folder.path().join(format!("casket.{suffix}"));
        let records = killed(&path);
        let before = files(&path);
        read_all(&path, records);
        assert!(files(&path) == before, "reading has changed a {suffix}");
        let mut damages = Vec::new();
        check(&path, &mut |damage| damages.push(damage)).unwrap();
        assert!(files(&path) == before, "check has changed a {suffix}");
        let into = Database::open(folder.path().join(format!("new.{suffix}")).to_str().unwrap());
        salvage(&path, &into.unwrap(), &mut |_| {}).unwrap();
        assert!(files(&path) == before, "salvage has changed a {suffix}");
        // Two may read at a time, and nobody writes meanwhile.
        fs::write(path.join("lock"), b"").unwrap();
        let one = to_read().open(&path).unwrap();
        read_all(&path, records);
        let refused = Database::open(path.to_str().unwrap()).map(drop);
        assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
        drop(one);
        // Nor does anybody read while it is written to.
        let writer = Database::open(path.to_str().unwrap()).unwrap();
        let refused = to_read().open(&path).map(drop);
        assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
        assert_eq!(writer.len(), records);
    }
}

#[test]
fn a_database_is_read_without_the_right_to_write() {
    let folder = tempfile::tempdir().unwrap();
    for suffix in SUFFIXES {
        let path = folder.path().join(format!("casket.{suffix}"));
        let records = killed(&path);
        let protect = |mode_of_folder, mode_of_files| {
            for name in files(&path).keys() {
                let mode = Permissions::from_mode(mode_of_files);
                fs::set_permissions(path.join(name), mode).unwrap();
            }
            fs::set_permissions(&path, Permissions::from_mode(mode_of_folder)).unwrap();
        };
        protect(0o555, 0o444);
        read_all(&path, records);
        check(&path, &mut |_| {}).unwrap();
        protect(0o755, 0o644);
    }
}

type Attempt<T> = (&'static str, fn(&T) -> Result<()>);

/// Every method that changes a database. None comes to its callback.
const WRITES: &[Attempt<Database>] = &[
    ("put", |it| it.put(b"1", b"a\0b").map(drop)),
    ("put_with", |it| it.put_with(b"1", b"a\0b", Meta::NONE).map(drop)),
    ("put_keep", |it| it.put_keep(b"1", b"a\0b", Meta::NONE).map(drop)),
    ("replace", |it| it.replace(b"1", b"a\0b", Meta::NONE).map(drop)),
    ("put_cat", |it| it.put_cat(b"1", b"a\0b")),
    ("put_shift", |it| it.put_shift(b"1", b"a\0b", 9)),
    ("extend", |it| it.extend(b"1", b"a\0b", true).map(drop)),
    ("remove", |it| it.remove(b"1").map(drop)),
    ("compare_and_swap", |it| it.compare_and_swap(b"1", 1, b"a\0b", Meta::NONE).map(drop)),
    ("touch", |it| it.touch(b"1", 1).map(drop)),
    ("modify", |it| it.modify(b"1", |_| unreachable!())),
    ("modify_versioned", |it| it.modify_versioned(b"1", |_| unreachable!()).map(|((), _)| ())),
    ("or_insert", |it| it.entry(b"1").or_insert(b"a\0b").map(drop)),
    ("or_insert_with", |it| it.entry(b"1").or_insert_with(|| unreachable!()).map(drop)),
    ("and_modify", |it| it.entry(b"1").and_modify(|_| unreachable!()).or_nothing().map(drop)),
    ("add_int", |it| it.add_int(b"1", 1).map(drop)),
    ("add_double", |it| it.add_double(b"1", 1.0).map(drop)),
    ("put_duplicate", |it| it.put_duplicate(b"1", b"b", Side::After).map(drop)),
    ("put_duplicate_with", |it| {
        it.put_duplicate_with(b"1", b"b", Meta::NONE, Side::Before).map(drop)
    }),
    ("remove_all", |it| it.remove_all(b"1").map(drop)),
    ("write of nothing", |it| it.write(&Batch::new())),
    ("write", |it| {
        let mut batch = Batch::new();
        batch.put(b"1", b"a\0b", Meta::NONE);
        it.write(&batch)
    }),
    ("put of a transaction", |it| it.transaction().put(b"1", b"a\0b").map(drop)),
    ("commit", |it| it.transaction().commit()),
    ("clear", Database::clear),
    ("remove_expired", |it| it.remove_expired(b"1").map(drop)),
    ("optimize", Database::optimize),
    ("retune", |it| it.retune("capsiz=1#capnum=1#width=1")),
    ("salvage", |it| salvage("nowhere.tch", it, &mut |_| {}).map(drop)),
];

/// Every method that changes a table.
const WRITES_OF_ROWS: &[Attempt<Table>] = &[
    ("put", |it| it.put(b"1", &Row::new())),
    ("put_keep", |it| it.put_keep(b"1", &Row::new()).map(drop)),
    ("put_cat", |it| it.put_cat(b"1", &Row::new())),
    ("modify", |it| it.modify(b"1", |_| unreachable!())),
    ("remove", |it| it.remove(b"1").map(drop)),
    ("add_int", |it| it.add_int(b"1", 1).map(drop)),
    ("add_double", |it| it.add_double(b"1", 1.0).map(drop)),
    ("generate_uid", |it| it.generate_uid().map(drop)),
    ("set_uid_seed", |it| it.set_uid_seed(7)),
    ("set_index", |it| it.set_index(b"more", IndexChange::Set(IndexKind::Lexical))),
    ("set_index again", |it| it.set_index(b"number", IndexChange::Optimize)),
    ("set_index off", |it| it.set_index(b"number", IndexChange::Remove)),
    ("search_out", |it| it.search_out(&Query::new(), |_, _| unreachable!()).map(drop)),
    ("answer", |it| it.answer(&SearchRequest::parse([&b"out"[..]])).map(drop)),
    ("clear_rows", Table::clear_rows),
];

fn assert_refused<T>(kind: &str, database: &T, writes: &[Attempt<T>]) {
    for (name, write) in writes {
        let result = write(database);
        let is_refused =
            matches!(&result, Err(Error::ReadOnly(what)) if what.contains("reading only"));
        assert!(is_refused, "{name} of {kind}: {result:?}");
    }
}

/// The method that changes a record where a cursor is, on one and beside all of them.
fn assert_cursors_refuse(database: &Database) {
    for is_on_a_record in [true, false] {
        let mut cursor = database.cursor().unwrap();
        assert!(!is_on_a_record || cursor.first().unwrap());
        let place = cursor.key().map(<[u8]>::to_vec);
        for how in [CursorPut::Current, CursorPut::Before, CursorPut::After] {
            assert!(matches!(cursor.put(b"other", how), Err(Error::ReadOnly(_))));
        }
        assert!(matches!(cursor.remove(), Err(Error::ReadOnly(_))));
        assert_eq!(cursor.key(), place.as_deref());
    }
}

#[test]
fn every_change_of_a_database_opened_for_reading_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for suffix in SUFFIXES {
        let path = folder.path().join(format!("casket.{suffix}"));
        killed(&path);
        let before = files(&path);
        let database = to_read().open(&path).unwrap();
        let record = database.get(b"2000").unwrap().unwrap();
        assert!(database.is_read_only());
        let transaction: Transaction = database.transaction();
        let handles =
            [database.clone(), database.nonblocking(), database.deferred(), database.blocking()];
        for handle in &handles {
            assert_refused(suffix, handle, WRITES);
        }
        assert_refused(suffix, &*transaction, WRITES);
        assert_eq!(transaction.get(b"2000").unwrap().as_ref(), Some(&record));
        if let Some(table) = database.table() {
            assert_refused(suffix, table, WRITES_OF_ROWS);
        }
        if database.has_duplicates() {
            assert_cursors_refuse(&database);
        }
        database.find_expired();
        assert!(database.expired_keys().is_none());
        // Reading goes on.
        assert_eq!(database.get(b"2000").unwrap(), Some(record));
        assert_eq!(database.large_value(b"2000", 1).unwrap().is_some(), suffix == "tch");
        database.sync().unwrap();
        drop((database, handles, transaction));
        assert!(files(&path) == before, "a {suffix} has changed");
    }
    for name in ["*", "+"] {
        let database = to_read().open(name).unwrap();
        assert_refused(name, &database, WRITES);
        assert_eq!(database.len(), 0);
    }
}
