//! Databases that earlier versions have made are opened, read, changed and compacted.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

#[path = "fixtures/databases/make/contents.rs"]
#[expect(unreachable_pub, reason = "the program that made the databases has it, too")]
mod contents;

use cabinet::table::{Operator, Query};
use cabinet::{Database, Inventory, Meta, Options, Result, check};
use contents::{COUNT, DATABASES, DUPLICATES, EXPIRED_AT_MS, Record, records, row, rows};
use std::fs;
use std::path::{Path, PathBuf};

/// Most bytes that all databases may take in the repository.
const BYTES_MAX: u64 = 200_000;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/databases")
}

/// Returns the folders of the commits.
fn commits() -> Vec<PathBuf> {
    let entries = fixtures().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut commits: Vec<_> =
        entries.filter(|path| path.is_dir() && !path.ends_with("make")).collect();
    commits.sort();
    commits
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Calls `test` with a copy of each database.
fn each(test: impl Fn(&str, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    assert!(!commits().is_empty());
    for commit in commits() {
        for (name, _) in DATABASES {
            let path = folder.path().join(format!("{}-{name}", folder_name(&commit)));
            copy(&commit.join(name), &path);
            test(name, &path);
        }
    }
}

fn folder_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap()
}

fn found(database: &Database) -> Vec<Record> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let records = database.iter().unwrap().map(|record| {
        let record = record.unwrap();
        let Meta { flags, expires_at_ms } = record.meta;
        Record { key: text(record.key), value: text(record.value), flags, expires_at_ms }
    });
    records.collect()
}

/// Returns what a database of keys and values is to hold, sorted.
fn expected(name: &str, database: &Database) -> Vec<Record> {
    let mut expected = records(name);
    if database.has_duplicates() {
        let (key, values) = DUPLICATES;
        expected.extend(values.map(|value| Record {
            key: key.into(),
            value: value.into(),
            flags: 0,
            expires_at_ms: 0,
        }));
    }
    expected.sort();
    expected
}

fn assert_is_whole(name: &str, database: &Database) {
    assert_eq!(database.damages(), [], "{name}");
    let Some(table) = database.table() else {
        let mut found = found(database);
        found.sort();
        assert_eq!(found, expected(name, database), "{name}");
        for record in &found {
            let stored = database.get(record.key.as_bytes()).unwrap();
            let is_duplicate = record.key == DUPLICATES.0;
            assert!(is_duplicate || stored.as_deref() == Some(record.value.as_bytes()), "{name}");
        }
        if database.has_duplicates() {
            let values = database.get_all(DUPLICATES.0.as_bytes()).unwrap();
            assert_eq!(values, DUPLICATES.1.map(|value| value.as_bytes().to_vec()), "{name}");
        }
        return;
    };
    table.check_indices().unwrap();
    assert_eq!(table.len(), rows().len() as u64, "{name}");
    for number in rows() {
        let stored = table.get(&row_key(number)).unwrap().expect("a row");
        for (column, value) in row(number) {
            assert_eq!(stored.get(column.as_bytes()), Some(value.as_bytes()), "{name}");
        }
    }
    let search = |column: &str, operator, operand: &str| {
        let query = Query::new().with(column.as_bytes(), operator, operand.as_bytes());
        let mut keys = table.search(&query).unwrap().0;
        keys.sort();
        keys
    };
    let keys = |is_meant: &dyn Fn(u32) -> bool| -> Vec<Vec<u8>> {
        rows().into_iter().filter(|number| is_meant(*number)).map(row_key).collect()
    };
    let aged = search("age", Operator::NumberGreaterEqual, "40");
    assert_eq!(aged, keys(&|number| number >= 40), "{name}");
    let named = search("name", Operator::StringEqual, "name 7");
    assert_eq!(named, keys(&|number| number == 7), "{name}");
    let tagged = search("tags", Operator::StringAllTokens, "odd");
    assert_eq!(tagged, keys(&|number| number % 2 == 1), "{name}");
    let written = search("text", Operator::TextPhrase, "of row 11 has");
    assert_eq!(written, keys(&|number| number == 11), "{name}");
}

fn row_key(number: u32) -> Vec<u8> {
    format!("row-{number:04}").into_bytes()
}

fn open(path: &Path) -> Result<Database> {
    Options::new().create(false).open(path)
}

#[test]
fn the_databases_are_small_and_have_several_segments() {
    for commit in commits() {
        let mut bytes = 0;
        for (name, _) in DATABASES {
            let path = commit.join(name);
            for entry in path.read_dir().unwrap() {
                bytes += entry.unwrap().metadata().unwrap().len();
            }
            let names = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
            let is_segment = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".log");
            let segments = names.filter(is_segment).count();
            // A checkpoint of a tree or table has freed the first one.
            let is_in_order = name.ends_with("tcb") || name.ends_with("tct");
            assert!(segments >= 2 || is_in_order, "{name}: {segments}");
        }
        assert!(bytes <= BYTES_MAX, "{} takes {bytes} bytes", commit.display());
    }
}

#[test]
fn an_old_database_is_read_without_a_change_to_its_files() {
    each(|name, path| {
        let files = |path: &Path| {
            let names = Inventory::of(path).unwrap().files;
            names.iter().map(|name| fs::read(path.join(name)).unwrap()).collect::<Vec<_>>()
        };
        let before = files(path);
        let mut report = |damage| panic!("{name}: {damage}");
        check(path, &mut report).unwrap();
        let database = Options::new().read_only(true).open(path).unwrap();
        assert_is_whole(name, &database);
        drop(database);
        assert!(files(path) == before, "{name}");
    });
}

#[test]
fn segments_of_an_old_database_without_their_headers_keep_their_records() {
    each(|name, path| {
        for file in path.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|suffix| suffix == "log") {
                let mut bytes = fs::read(&file).unwrap();
                bytes[..64].fill(0xff);
                fs::write(&file, bytes).unwrap();
            }
        }
        let database = open(path).unwrap();
        assert!(!database.damages().is_empty(), "{name}");
        if database.table().is_none() {
            let mut found = found(&database);
            found.sort();
            assert_eq!(found, expected(name, &database), "{name}");
        }
    });
}

#[test]
fn an_old_database_is_changed_compacted_and_opened_again() {
    each(|name, path| {
        let database = open(path).unwrap();
        assert_is_whole(name, &database);
        let (new, value): (&[u8], &[u8]) = match database.table() {
            Some(_) => (b"new", b"name\0new"),
            None => (b"700", b"new"),
        };
        database.put(new, value).unwrap();
        database.put(new, value).unwrap();
        assert!(database.remove(new).unwrap(), "{name}");
        database.optimize().unwrap();
        assert_is_whole(name, &database);
        database.put(new, value).unwrap();
        drop(database);

        let mut report = |damage| panic!("{name}: {damage}");
        check(path, &mut report).unwrap();
        let database = open(path).unwrap();
        assert_eq!(database.get(new).unwrap().as_deref(), Some(value), "{name}");
        assert!(database.remove(new).unwrap(), "{name}");
        assert_is_whole(name, &database);
    });
}

#[test]
fn expired_and_removed_records_of_an_old_database_stay_away() {
    each(|name, path| {
        let database = open(path).unwrap();
        if database.table().is_some() {
            return;
        }
        let gone = (1..=COUNT)
            .map(|number| contents::record(name, number))
            .filter(|record| record.expires_at_ms == EXPIRED_AT_MS || record.key.ends_with('9'));
        for record in gone {
            assert_eq!(database.get(record.key.as_bytes()).unwrap(), None, "{name} {record:?}");
        }
    });
}
