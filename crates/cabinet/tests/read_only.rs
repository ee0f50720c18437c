//! Reading changes nothing: a database that is opened for reading stays byte for byte what it was,
//! also one whose process was killed, and needs no right to write.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use cabinet::table::{IndexChange, IndexKind, Operator, Query, Row};
use cabinet::{Database, Error, Options, check, salvage};
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
    let database = Database::open_with(path, &to_read()).unwrap();
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
        let ordered = query.order_by(b"more", cabinet::table::OrderKind::StringAscending);
        assert_eq!(table.search(&ordered).unwrap().0.len(), 1000);
    }
    assert!(matches!(database.put(&key(5), b"a\0b"), Err(Error::NotSupported(_))));
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
        let one = Database::open_with(&path, &to_read()).unwrap();
        read_all(&path, records);
        let refused = Database::open(path.to_str().unwrap()).map(drop);
        assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
        drop(one);
        // Nor does anybody read while it is written to.
        let writer = Database::open(path.to_str().unwrap()).unwrap();
        let refused = Database::open_with(&path, &to_read()).map(drop);
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
