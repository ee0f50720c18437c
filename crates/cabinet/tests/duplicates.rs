//! Keys with several values, by number and by prefix.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use cabinet::table::Row;
use cabinet::{Database, Error, Side};
use tempfile::TempDir;

fn open(name: &str) -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join(name).to_str().unwrap()).unwrap();
    (folder, database)
}

#[test]
fn each_duplicate_is_read_by_its_number_and_none_behind_the_last() {
    let (_folder, database) = open("casket.tcb");
    for (key, value) in [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")] {
        database.put_duplicate(key.as_bytes(), value.as_bytes(), Side::After).unwrap();
    }
    let read = |key: &str, number| {
        let value = database.read_duplicate(key.as_bytes(), number, |entry| entry.value.to_vec());
        value.unwrap().map(|value| String::from_utf8(value).unwrap())
    };
    assert_eq!(read("a", 0).as_deref(), Some("1"));
    assert_eq!(read("a", 1).as_deref(), Some("2"));
    assert_eq!(read("a", 2).as_deref(), Some("4"));
    assert_eq!(read("a", 3), None);
    assert_eq!(read("a", usize::MAX), None);
    assert_eq!(read("", 0), None);
    assert_eq!(read("b", 1), None);
    assert_eq!(read("c", 0), None);
}

#[test]
fn a_prefix_finds_each_key_once_in_every_order() {
    for order in ["lexical", "decimal"] {
        let (_folder, database) = open(&format!("casket.tcb#order={order}"));
        for key in ["", "", "1", "9", "10", "10", "100", "-1"] {
            database.put_duplicate(key.as_bytes(), b"", Side::After).unwrap();
        }
        let mut keys = database.keys_with_prefix(b"1", None).unwrap();
        keys.sort();
        assert_eq!(keys, [&b"1"[..], b"10", b"100"], "{order}");
        assert_eq!(database.keys_with_prefix(b"", None).unwrap().len(), 6, "{order}");
        assert_eq!(database.keys_with_prefix(b"1", Some(2)).unwrap().len(), 2, "{order}");
    }
}

#[test]
fn what_a_kind_does_not_have_is_said() {
    let hash = Database::open("*").unwrap();
    assert!(!hash.has_duplicates());
    assert!(matches!(hash.read_duplicate(b"a", 0, |_| ()), Err(Error::Unsupported { .. })));
    assert!(matches!(hash.read_row(b"a", |_| ()), Err(Error::Unsupported { .. })));
    let (_folder, tree) = open("casket.tcb");
    assert!(tree.has_duplicates());
    assert!(matches!(tree.read_row(b"a", |_| ()), Err(Error::Unsupported { .. })));
}

#[test]
fn a_row_is_read_through_the_database() {
    let (_folder, database) = open("casket.tct");
    let row = Row::new().with(b"a", b"1\x002").unwrap();
    database.table().unwrap().put(b"k", &row).unwrap();
    assert_eq!(database.read_row(b"k", |row| row.to_row()).unwrap(), Some(row));
    assert_eq!(database.read_row(b"l", |row| row.to_row()).unwrap(), None);
}
