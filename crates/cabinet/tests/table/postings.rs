//! Entries of indices are gathered in memory before they reach the disk. No crash shows that.

use cabinet::table::{IndexChange, IndexKind, Operator, Query, Row, Table};
use cabinet::testing::FaultyStorage;
use cabinet::{Database, Engine, Options, TreeDatabase};
use std::path::Path;
use std::sync::Arc;

fn open(storage: &FaultyStorage) -> Table {
    let options = Options::default();
    let storage = Arc::new(storage.clone());
    let engine = TreeDatabase::open_on(storage, Path::new("casket.tct"), &options, false);
    Table::new(Arc::new(engine.unwrap()) as Arc<dyn Engine>, &options).unwrap()
}

fn row(word: &str, filling: usize) -> Row {
    let row = Row::new().with(b"tags", word.as_bytes()).unwrap();
    row.with(b"filling", &vec![b'f'; filling]).unwrap()
}

fn found(table: &Table, word: &str) -> Vec<Vec<u8>> {
    let query = Query::new().with(b"tags", Operator::StringAllTokens, word.as_bytes());
    table.search(&query).unwrap().0
}

#[test]
fn rows_of_any_length_are_found_by_what_they_are_now_after_a_crash() {
    // Up to a length the row before goes into the batch of the change, beyond it ahead of that.
    for filling in [0, 1000, (1 << 20) - 20, (1 << 20) + 20, 3 << 20] {
        let storage = FaultyStorage::new();
        let table = open(&storage);
        table.set_index(b"tags", IndexChange::Set(IndexKind::Token)).unwrap();
        table.put(b"kept", &row("red", filling)).unwrap();
        table.put(b"gone", &row("red", filling)).unwrap();
        table.put(b"changed", &row("red green", filling)).unwrap();
        let storage = {
            let after = storage.kill();
            drop(table);
            after
        };
        let table = open(&storage);
        table.put(b"changed", &row("green blue", filling)).unwrap();
        assert!(table.remove(b"gone").unwrap());
        let after = storage.kill();
        drop(table);
        let table = open(&after);
        table.check_indices().unwrap();
        assert_eq!(found(&table, "red"), [b"kept"], "{filling}");
        assert_eq!(found(&table, "green"), [b"changed"]);
        assert_eq!(found(&table, "blue"), [b"changed"]);
    }
}

#[test]
fn a_table_that_was_left_in_a_crash_can_be_searched_by_who_only_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tct");
    let copy = folder.path().join("copy.tct");
    let table = Table::open(&path, &Options::default()).unwrap();
    table.set_index(b"tags", IndexChange::Set(IndexKind::Token)).unwrap();
    table.put(b"one", &row("red", 10)).unwrap();
    table.put(b"two", &row("green", 10)).unwrap();
    // A copy has what is on the disk, and not what is in memory.
    let table = Database::from(Arc::new(table));
    table.copy_to(&copy).unwrap();
    let mut options = Options::default();
    options.read_only = true;
    for _ in 0..2 {
        let copy = Table::open(&copy, &options).unwrap();
        assert_eq!(found(&copy, "red"), [b"one"]);
        assert_eq!(found(&copy, "green"), [b"two"]);
        copy.check_indices().unwrap();
    }
}
