//! Iterators and entries, over every kind of database.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use cabinet::table::Row;
use cabinet::{Database, Error, Meta, Record, RecordRef, ScanCursor, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

/// Records of a database in these tests: more than a step of any scan takes.
const RECORDS: u32 = 5000;

fn open(folder: &tempfile::TempDir, name: &str) -> Database {
    let path = match name {
        "*" | "+" => name.to_owned(),
        file => folder.path().join(file).display().to_string(),
    };
    Database::open(&path).unwrap()
}

fn filled(folder: &tempfile::TempDir, name: &str) -> Database {
    let database = open(folder, name);
    for number in 1..=RECORDS {
        database.put(&key(number), format!("column\0{number}").as_bytes()).unwrap();
    }
    database
}

fn key(number: u32) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Records that a visit of all shows, with how often.
fn shown(visit: impl FnOnce(&mut dyn FnMut(RecordRef<'_>))) -> BTreeMap<(Vec<u8>, Vec<u8>), usize> {
    let mut shown = BTreeMap::new();
    visit(&mut |entry| *shown.entry((entry.key.to_vec(), entry.value.to_vec())).or_default() += 1);
    shown
}

fn keys(records: impl Iterator<Item = cabinet::Result<Record>>) -> Vec<Vec<u8>> {
    records.map(|record| record.unwrap().key).collect()
}

const ORDERED: [&str; 3] = ["a.tcb", "a.tct", "+"];
const UNORDERED: [&str; 3] = ["a.tch", "a.tcf", "*"];

#[test]
fn a_visit_in_any_order_shows_the_records_of_any_other_once() {
    for name in ORDERED.into_iter().chain(UNORDERED) {
        let folder = tempfile::tempdir().unwrap();
        let mut database = filled(&folder, name);
        let is_on_disk = !matches!(name, "*" | "+");
        // Then from the files alone.
        for mode in ["", "#mode=r"] {
            if mode == "#mode=r" {
                if !is_on_disk {
                    continue;
                }
                drop(database);
                database = open(&folder, &format!("{name}{mode}"));
            }
            let in_order = shown(|visit| {
                let visit = |entry: RecordRef<'_>| {
                    visit(entry);
                    ControlFlow::Continue(())
                };
                database.for_each(visit).unwrap();
            });
            let in_any_order = shown(|visit| {
                let visit = |entry: RecordRef<'_>| {
                    visit(entry);
                    ControlFlow::Continue(())
                };
                database.for_each_in_any_order(visit).unwrap();
            });
            assert_eq!(in_order.len(), RECORDS as usize, "{name}{mode}");
            assert!(in_any_order.values().all(|count| *count == 1), "{name}{mode}");
            assert!(in_any_order == in_order, "{name}{mode}");
            let mut count = 0;
            let visit = |_: RecordRef<'_>| {
                count += 1;
                if count < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            database.for_each_in_any_order(visit).unwrap();
            assert_eq!(count, 10, "{name}{mode}");
            if let Some(table) = database.table() {
                let mut rows = BTreeSet::new();
                table
                    .for_each_row_in_any_order(|key, row| {
                        assert!(rows.insert(key.to_vec()) && row.columns().count() == 1);
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                assert!(rows.into_iter().eq(in_order.into_keys().map(|(key, _)| key)));
            }
        }
    }
}

#[test]
fn iterators_return_every_record_once() {
    for name in ORDERED.into_iter().chain(UNORDERED) {
        let folder = tempfile::tempdir().unwrap();
        let database = filled(&folder, name);
        let mut found = BTreeMap::new();
        for record in database.iter().unwrap() {
            let record = record.unwrap();
            assert!(found.insert(record.key, record.value).is_none(), "{name}");
        }
        assert_eq!(found.len(), RECORDS as usize, "{name}");
        assert_eq!(found[&b"17"[..]], b"column\x0017", "{name}");
        let listed: Vec<_> = database.keys().unwrap().map(|key| key.unwrap()).collect();
        assert_eq!(listed.len(), RECORDS as usize, "{name}");
        let listed: BTreeSet<_> = listed.into_iter().collect();
        assert!(listed.iter().eq(found.keys()), "{name}");
    }
}

#[test]
fn a_scan_of_rows_goes_on_from_each_of_its_positions_with_whole_columns() {
    let folder = tempfile::tempdir().unwrap();
    let database = filled(&folder, "table.tct");
    let table = database.table().unwrap();
    let row = Row::new().with(b"n\0", b"a\0b").unwrap();
    table.put(b"nul", &row).unwrap();
    let (mut rows, mut positions) = (BTreeMap::new(), vec![ScanCursor::Start]);
    while let Some(from) = positions.last() {
        let next = table.scan(from, |key, row| {
            assert!(rows.insert(key.to_vec(), row.stored().to_vec()).is_none());
        });
        match next.unwrap() {
            Some(next) => positions.push(next),
            None => break,
        }
    }
    assert_eq!(rows.len(), RECORDS as usize + 1);
    assert_eq!(rows[&b"nul"[..]], row.encode().unwrap());
    assert!(positions.len() > 2);
    let mut before = 0;
    for position in positions {
        let mut first = None;
        table
            .scan(&position, |key, _| {
                first.get_or_insert(key.to_vec());
            })
            .unwrap();
        let place = rows.keys().position(|key| Some(key) == first.as_ref()).unwrap();
        assert!(place >= before);
        before = place;
    }
    assert!(table.scan(&ScanCursor::Hash(1), |_, _| ()).is_err());
}

#[test]
fn records_with_a_prefix_are_found_in_every_kind() {
    for name in ORDERED.into_iter().chain(UNORDERED) {
        let folder = tempfile::tempdir().unwrap();
        let database = filled(&folder, name);
        let mut found = keys(database.prefix(b"49").unwrap());
        if ORDERED.contains(&name) {
            assert!(found.is_sorted(), "{name}");
        }
        found.sort();
        let mut expected: Vec<_> =
            (1..=RECORDS).map(key).filter(|key| key.starts_with(b"49")).collect();
        expected.sort();
        assert_eq!(found, expected, "{name}");
        assert!(keys(database.prefix(b"x").unwrap()).is_empty(), "{name}");
        assert_eq!(keys(database.prefix(b"").unwrap()).len(), RECORDS as usize, "{name}");
    }
}

#[test]
fn ranges_end_at_their_bounds_and_need_an_order() {
    for name in ORDERED {
        let folder = tempfile::tempdir().unwrap();
        let database = filled(&folder, name);
        let mut sorted: Vec<_> = (1..=RECORDS).map(key).collect();
        sorted.sort();
        let within = |begin: &[u8], end: &[u8]| {
            let keys = sorted.iter().filter(|key| &key[..] >= begin && &key[..] < end);
            keys.cloned().collect::<Vec<_>>()
        };
        assert_eq!(keys(database.range("2".."31").unwrap()), within(b"2", b"31"), "{name}");
        let both = keys(database.range("2"..="31").unwrap());
        assert_eq!(both.last().unwrap(), b"31", "{name}");
        let after = (Bound::Excluded("2"), Bound::Unbounded);
        assert_eq!(keys(database.range::<&str>(after).unwrap())[0], b"20", "{name}");
        assert_eq!(keys(database.range::<&str>(..).unwrap()), sorted, "{name}");
        let reversed = (Bound::Included("4"), Bound::Excluded("2"));
        assert!(keys(database.range::<&str>(reversed).unwrap()).is_empty(), "{name}");
    }
    for name in UNORDERED {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder, name);
        assert!(matches!(database.range("1"..), Err(Error::Unsupported { .. })), "{name}");
    }
}

#[test]
fn a_tree_returns_each_value_of_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder, "a.tcb");
    for value in ["1", "2", "3"] {
        database.put_duplicate(b"key", value.as_bytes(), Side::After).unwrap();
    }
    let values = |records: cabinet::Records<'_>| -> Vec<Vec<u8>> {
        records.map(|record| record.unwrap().value).collect()
    };
    let expected = [b"1", b"2", b"3"];
    assert_eq!(values(database.iter().unwrap()), expected);
    assert_eq!(values(database.range("key"..="key").unwrap()), expected);
    assert_eq!(values(database.prefix(b"k").unwrap()), expected);
}

#[test]
fn a_database_is_written_between_the_steps_of_an_iterator() {
    for name in ORDERED.into_iter().chain(UNORDERED) {
        let folder = tempfile::tempdir().unwrap();
        let database = filled(&folder, name);
        let mut met = 0;
        for record in database.iter().unwrap() {
            assert!(database.remove(&record.unwrap().key).unwrap(), "{name}");
            met += 1;
        }
        assert_eq!((met, database.len()), (RECORDS, 0), "{name}");
    }
}

#[test]
fn an_entry_is_changed_or_created_and_keeps_its_expiry() {
    for name in ["a.tcb", "a.tch", "*", "+"] {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder, name);
        assert_eq!(database.entry(b"k").or_nothing().unwrap(), None, "{name}");
        assert_eq!(database.len(), 0, "{name}");
        assert_eq!(database.entry(b"k").or_insert(b"a").unwrap(), b"a", "{name}");
        assert_eq!(database.entry(b"k").or_insert(b"b").unwrap(), b"a", "{name}");

        let meta = Meta { flags: 7, expires_at_ms: u64::MAX };
        database.put_with(b"k", b"c", meta).unwrap();
        let entry = database.entry(b"k").and_modify(|value| value.push(b'd'));
        let entry = entry.and_modify(|value| value.push(b'e'));
        assert_eq!(entry.or_nothing().unwrap().unwrap(), b"cde", "{name}");
        let read = database.read(b"k", |entry| (entry.value.to_vec(), entry.meta)).unwrap();
        assert_eq!(read.unwrap(), (b"cde".to_vec(), meta), "{name}");
    }
}
