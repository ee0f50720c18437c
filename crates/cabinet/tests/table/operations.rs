//! Operations on rows, as users of Tokyo Cabinet know them.

use crate::{in_memory, in_memory_with, row};
use cabinet::limits::{COLUMN_NAME_BYTES_MAX, PRIMARY_KEY_BYTES_MAX};
use cabinet::table::{IndexChange, IndexKind, Operator, Query, Row, Table};
use cabinet::{Batch, Database, Engine, Error, MemoryTree, Meta, Options};
use std::sync::Arc;

#[test]
fn put_replaces_putkeep_keeps_and_putcat_adds_columns() {
    let table = in_memory();
    table.put(b"p1", &row("name=mikio age=30")).unwrap();
    assert!(!table.put_keep(b"p1", &row("x=y")).unwrap());
    table.put_cat(b"p1", &row("age=99 new=1")).unwrap();
    assert_eq!(table.get(b"p1").unwrap(), Some(row("name=mikio age=30 new=1")));
    table.put(b"p1", &row("a=b")).unwrap();
    assert_eq!(table.get(b"p1").unwrap(), Some(row("a=b")));
    assert!(table.remove(b"p1").unwrap());
    assert!(!table.remove(b"p1").unwrap());
    assert_eq!(table.get(b"p1").unwrap(), None);
    table.put(b"empty", &Row::new()).unwrap();
    assert_eq!(table.get(b"empty").unwrap(), Some(Row::new()));
}

#[test]
fn a_row_is_changed_as_a_whole_or_left_alone() {
    let table = in_memory();
    table
        .modify(b"p", |row| {
            *row = Some(Row::new());
            false
        })
        .unwrap();
    assert_eq!(table.get(b"p").unwrap(), None);
    table
        .modify(b"p", |found| {
            *found = Some(row("a=1"));
            true
        })
        .unwrap();
    table.modify(b"p", |row| row.as_mut().unwrap().set(b"b", b"2").is_ok()).unwrap();
    assert_eq!(table.get(b"p").unwrap(), Some(row("a=1 b=2")));
    table.modify(b"p", |row| row.take().is_some()).unwrap();
    assert_eq!(table.len(), 0);
}

#[test]
fn sums_are_kept_as_text_in_a_column_of_their_own() {
    let table = in_memory();
    table.put(b"p", &row("name=x")).unwrap();
    assert_eq!(table.add_int(b"p", 5).unwrap(), 5);
    assert_eq!(table.get(b"p").unwrap(), Some(row("name=x _num=5")));
    assert!((table.add_double(b"p", -1.75).unwrap() - 3.25).abs() < 1e-9);
    assert_eq!(table.get(b"p").unwrap(), Some(row("name=x _num=3.25")));
    assert_eq!(table.add_int(b"p", 0).unwrap(), 3);
    assert_eq!(table.add_int(b"new", -2).unwrap(), -2);
    assert_eq!(table.get(b"new").unwrap(), Some(row("_num=-2")));
}

#[test]
fn identifiers_rise_from_1_and_are_never_given_out_twice() {
    let options = Options::default();
    let engine: Arc<dyn Engine> = Arc::new(MemoryTree::new(&options));
    let table = Table::new(Arc::clone(&engine), &options).unwrap();
    assert_eq!([table.generate_uid().unwrap(), table.generate_uid().unwrap()], [1, 2]);
    // Closed and opened again it goes on; a crash leaves some out.
    drop(table);
    let table = Table::new(Arc::clone(&engine), &options).unwrap();
    assert_eq!(table.generate_uid().unwrap(), 3);
    std::mem::forget(table);
    let table = Table::new(Arc::clone(&engine), &options).unwrap();
    let after_crash = table.generate_uid().unwrap();
    assert!(after_crash > 3);
    table.set_uid_seed(99).unwrap();
    assert_eq!(table.generate_uid().unwrap(), 100);
    assert_eq!(table.last_uid(), 100);
    table.clear_rows().unwrap();
    assert_eq!(table.generate_uid().unwrap(), 1);
    table.set_uid_seed(u64::MAX).unwrap();
    assert!(table.generate_uid().is_err());
}

#[test]
fn the_number_of_rows_is_known_after_a_close_and_counted_after_a_crash() {
    let options = Options::default();
    let engine: Arc<dyn Engine> = Arc::new(MemoryTree::new(&options));
    for is_crash in [false, true] {
        let table = Table::new(Arc::clone(&engine), &options).unwrap();
        let before = table.len();
        table.put(format!("{before}").as_bytes(), &row("a=1")).unwrap();
        if is_crash {
            std::mem::forget(table);
        }
    }
    assert_eq!(Table::new(engine, &options).unwrap().len(), 2);
}

#[test]
fn what_is_not_a_table_is_not_opened_as_one() {
    let options = Options::default();
    let engine: Arc<dyn Engine> = Arc::new(MemoryTree::new(&options));
    engine.put(b"key", b"value", Meta::NONE, cabinet::Wait::Block).unwrap();
    assert!(matches!(Table::new(engine, &options).err(), Some(Error::Corrupted { .. })));
}

#[test]
fn names_and_keys_over_their_limits_are_refused() {
    let table = in_memory();
    for (len, fits) in [
        (PRIMARY_KEY_BYTES_MAX - 1, true),
        (PRIMARY_KEY_BYTES_MAX, true),
        (PRIMARY_KEY_BYTES_MAX + 1, false),
    ] {
        assert_eq!(table.put(&vec![b'k'; len], &row("a=1")).is_ok(), fits);
    }
    assert_eq!(table.len(), 2);
    for (len, fits) in [(COLUMN_NAME_BYTES_MAX, true), (COLUMN_NAME_BYTES_MAX + 1, false)] {
        let name = vec![b'c'; len];
        let change = IndexChange::Set(IndexKind::Lexical);
        assert_eq!(table.set_index(&name, change).is_ok(), fits);
    }
}

#[test]
fn indices_are_kept_replaced_and_removed_as_asked() {
    let table = in_memory();
    table.put(b"p1", &row("age=30")).unwrap();
    table.set_index(b"age", IndexChange::SetNew(IndexKind::Decimal)).unwrap();
    let again = table.set_index(b"age", IndexChange::SetNew(IndexKind::Decimal));
    assert!(matches!(again, Err(Error::IndexExists)));
    table.set_index(b"age", IndexChange::Set(IndexKind::Token)).unwrap();
    table.set_index(b"age", IndexChange::Optimize).unwrap();
    assert_eq!(table.indices().len(), 1);
    assert_eq!(table.indices()[0].kind, IndexKind::Token);
    let query = Query::new().with(b"age", Operator::StringAnyToken, b"30");
    assert_eq!(table.count(&query).unwrap(), 1);
    table.set_index(b"age", IndexChange::Remove).unwrap();
    assert!(matches!(table.set_index(b"age", IndexChange::Optimize), Err(Error::NoIndex)));
    assert!(matches!(table.set_index(b"age", IndexChange::Remove), Err(Error::NoIndex)));
}

#[test]
fn indices_that_were_half_built_are_removed_and_not_used() {
    let options = Options::default();
    let engine: Arc<dyn Engine> = Arc::new(MemoryTree::new(&options));
    let table = Table::new(Arc::clone(&engine), &options).unwrap();
    table.put(b"p1", &row("age=30")).unwrap();
    table.put(b"p2", &row("age=31")).unwrap();
    // Building has written this when the process dies: a note to remove index 7, and an entry.
    let put = |key: &[u8]| engine.put(key, b"", Meta::NONE, cabinet::Wait::Block).unwrap();
    put(b"\x00d\x00\x00\x00\x07");
    put(b"\x02\x07\x81\x1e\x00p1");
    std::mem::forget(table);
    let before = engine.len();
    let table = Table::new(Arc::clone(&engine), &options).unwrap();
    assert_eq!(engine.len(), before - 2);
    assert!(table.indices().is_empty());
    table.set_index(b"age", IndexChange::Set(IndexKind::Decimal)).unwrap();
    let query = Query::new().with(b"age", Operator::NumberGreater, b"0");
    assert_eq!(table.count(&query).unwrap(), 2);
}

#[test]
fn a_table_is_a_database_whose_values_are_columns_joined_by_nul() {
    let table = Arc::new(in_memory());
    let database = Database::from(Arc::clone(&table));
    database.put(b"p3", b"name\0x").unwrap();
    // A name without a value would be lost.
    for odd in [&b"name\0x\0dangling"[..], b"hello"] {
        let refused = database.put(b"p3", odd).map(drop);
        assert!(matches!(refused, Err(Error::BadColumn(_))), "{refused:?}");
        let mut batch = Batch::new();
        batch.put(b"p3", odd, Meta::NONE);
        assert!(matches!(database.write(&batch), Err(Error::BadColumn(_))));
        assert!(matches!(database.put_cat(b"p3", odd), Err(Error::BadColumn(_))));
    }
    assert_eq!(database.get(b"p3").unwrap().as_deref(), Some(&b"name\0x"[..]));
    assert_eq!(database.value_size(b"p3").unwrap(), Some(6));
    assert!(!database.put_keep(b"p3", b"a\0b", Meta::NONE).unwrap());
    database.put_cat(b"p3", b"name\0y\0z\0zz").unwrap();
    assert_eq!(database.get(b"p3").unwrap().as_deref(), Some(&b"name\0x\0z\0zz"[..]));
    database.put_shift(b"p3", b"a\0b", 9).unwrap();
    assert_eq!(database.get(b"p3").unwrap().as_deref(), Some(&b"x\0z\0zza\0b"[..]));
    assert_eq!(database.add_int(b"p3", 5).unwrap(), 5);
    assert!(matches!(database.put(b"p4", b"\0value"), Err(Error::BadColumn(_))));
    // Under the empty key, rows get identifiers.
    database.put(b"", b"a\0b").unwrap();
    assert!(database.put_keep(b"", b"a\0c", Meta::NONE).unwrap());
    assert_eq!(database.add_int(b"", 7).unwrap(), 7);
    assert!(!database.remove(b"").unwrap());
    assert_eq!(database.keys_with_prefix(b"", None).unwrap(), [&b"1"[..], b"2", b"3", b"p3"]);
    assert_eq!(database.keys_with_prefix(b"p", None).unwrap(), [b"p3"]);
    assert!(database.remove(b"p3").unwrap());
    assert_eq!(database.len(), 3);
    assert_eq!(database.table().unwrap().len(), 3);
    database.clear().unwrap();
    assert!(database.is_empty());
}

#[test]
fn batches_and_transactions_change_rows_and_indices_together() {
    let table = Arc::new(in_memory());
    table.set_index(b"a", IndexChange::Set(IndexKind::Lexical)).unwrap();
    let database = Database::from(Arc::clone(&table));
    let found = |value: &[u8]| {
        table.search(&Query::new().with(b"a", Operator::StringEqual, value)).unwrap().0
    };
    let mut batch = Batch::new();
    batch.put(b"k1", b"a\0x", Meta::NONE);
    batch.put(b"k2", b"a\0x", Meta::NONE);
    batch.remove(b"k3");
    database.write(&batch).unwrap();
    assert_eq!(found(b"x"), [b"k1", b"k2"]);
    let transaction = database.transaction();
    assert_eq!(transaction.get(b"k1").unwrap().as_deref(), Some(&b"a\0x"[..]));
    transaction.put(b"k1", b"a\0y").unwrap();
    transaction.remove(b"k2").unwrap();
    assert_eq!(found(b"x"), [b"k1", b"k2"]);
    transaction.commit().unwrap();
    assert_eq!(found(b"x"), [b""; 0]);
    assert_eq!(found(b"y"), [b"k1"]);
    let conflicting = database.transaction();
    conflicting.get(b"k1").unwrap();
    conflicting.put(b"k5", b"a\0z").unwrap();
    database.put(b"k1", b"a\0z").unwrap();
    assert!(matches!(conflicting.commit(), Err(Error::Conflict)));
    assert_eq!(found(b"z"), [b"k1"]);
    assert_eq!(table.len(), 1);
}

#[test]
fn a_table_opened_for_reading_only_refuses_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tct");
    let table = Table::open(&path, &Options::default()).unwrap();
    table.put(b"p", &row("a=1")).unwrap();
    drop(table);
    let mut options = Options::default();
    options.read_only = true;
    let table = Table::open(&path, &options).unwrap();
    assert_eq!(table.len(), 1);
    assert!(table.put(b"p", &row("a=2")).is_err());
    assert!(table.generate_uid().is_err());
    assert!(table.clear_rows().is_err());
    assert!(table.set_index(b"a", IndexChange::Set(IndexKind::Lexical)).is_err());
    assert_eq!(table.get(b"p").unwrap(), Some(row("a=1")));
}

#[test]
fn memory_of_queries_is_an_option() {
    let mut options = Options::default();
    assert_eq!(options.query_memory_bytes, 64 << 20);
    options.query_memory_bytes = 0;
    let table = in_memory_with(&options);
    table.put(b"p", &row("a=1")).unwrap();
    let query = Query::new().order_by(b"a", cabinet::table::SortKind::StringAscending);
    assert_eq!(table.search(&query).unwrap().0, [b"p"]);
}
