//! Script records: what a function of an extension can do with the records.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::{Database, Error};
use server::{Config, PutIf, ScriptError, ScriptRecords, Server};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use support::{config, fixed, hash, logging, memory, memory_tree, records, table, tree};

fn script_records(config: Config, database: &Database) -> Arc<ScriptRecords> {
    Server::bind(config, database.clone()).unwrap().script_records(0, 1)
}

fn of(database: &Database) -> Arc<ScriptRecords> {
    script_records(config(), database)
}

fn value(records: &ScriptRecords, key: &[u8]) -> Option<Vec<u8>> {
    records.get(key, <[u8]>::to_vec).unwrap()
}

#[test]
fn each_operation_has_the_effect_of_its_command() {
    let database = memory();
    let records = of(&database);
    records.put(b"one", b"1", None).unwrap();
    assert!(!records.put_keep(b"one", b"x").unwrap());
    assert!(records.put_keep(b"two", b"2").unwrap());
    records.append(b"one", b"st").unwrap();
    assert_eq!(value(&records, b"one").unwrap(), b"1st");
    assert_eq!(value(&records, b"none"), None);
    assert_eq!(records.value_size(b"one").unwrap(), Some(3));
    assert_eq!(records.value_size(b"none").unwrap(), None);
    assert_eq!(records.add_int(b"n", 5).unwrap(), 5);
    assert_eq!(records.add_int(b"n", -7).unwrap(), -2);
    assert!(matches!(
        records.add_int(b"one", 1),
        Err(ScriptError::Database(Error::NotANumber { width: 4 }))
    ));
    assert_eq!(records.add_double(b"d", 1.5).unwrap(), 1.5);
    assert!(records.remove(b"n").unwrap());
    assert!(!records.remove(b"n").unwrap());
    assert_eq!(records.count(), 3);
    assert_eq!(records.keys_with_prefix(b"t", usize::MAX, &mut |_| true).unwrap(), [b"two"]);
    let got = records.misc(b"get", &[b"two"], true, &mut |_| true).unwrap().unwrap();
    assert_eq!(got, [b"2"]);
    assert_eq!(records.misc(b"get", &[b"none"], true, &mut |_| true).unwrap(), None);
    assert!(matches!(
        records.misc(b"none", &[], true, &mut |_| true),
        Err(ScriptError::Invalid(_))
    ));
    assert!(records.end_call());
    assert!(!records.end_call());
    records.clear().unwrap();
    assert!(records.end_call());
    assert_eq!(database.len(), 0);
}

#[test]
fn the_iterator_of_a_call_ends_with_it() {
    let records = of(&memory_tree());
    for key in [b"a", b"b", b"c"] {
        records.put(key, b"", None).unwrap();
    }
    assert!(records.iter_begin().unwrap());
    assert_eq!(records.iter_next().unwrap().unwrap(), b"a");
    assert_eq!(records.iter_next().unwrap().unwrap(), b"b");
    records.end_call();
    // The iterator that all clients share was started too.
    for key in [b"a", b"b", b"c"] {
        assert_eq!(records.iter_next().unwrap().unwrap(), key);
    }
    assert_eq!(records.iter_next().unwrap(), None);
}

#[test]
fn ranges_need_an_order() {
    let records = of(&memory_tree());
    for key in [b"a", b"b", b"c"] {
        records.put(key, key, None).unwrap();
    }
    assert_eq!(
        records.range(Some(b"b"), 9, None, &mut |_| true).unwrap(),
        [b"b", b"b", b"c", b"c"]
    );
    assert_eq!(records.range(None, 1, None, &mut |_| true).unwrap(), [b"a", b"a"]);
    assert_eq!(records.range(None, 9, Some(b"b"), &mut |_| true).unwrap(), [b"a", b"a"]);
    assert!(records.range(None, 0, None, &mut |_| true).unwrap().is_empty());
    // Without memory for the second element.
    let mut calls = 0;
    let mut charge = |bytes| {
        calls += 1;
        assert!(bytes > 1);
        calls < 2
    };
    let refused = records.range(None, 9, None, &mut charge);
    assert!(matches!(refused, Err(ScriptError::TooLong)));
    assert_eq!(calls, 2);
    let records = of(&memory());
    assert!(!records.is_ordered());
    assert!(matches!(records.range(None, 1, None, &mut |_| true), Err(ScriptError::Invalid(_))));
}

#[test]
fn a_value_is_put_only_over_the_version_that_was_read() {
    let records = of(&memory());
    let version = || records.get_record(b"k", |record| record.version).unwrap().unwrap();
    assert!(matches!(records.put_if_version(b"k", b"1", Some(1), None).unwrap(), PutIf::Missing));
    let PutIf::Stored(first) = records.put_if_version(b"k", b"1", None, None).unwrap() else {
        panic!("not stored")
    };
    assert_eq!(version(), first);
    assert!(matches!(records.put_if_version(b"k", b"2", None, None).unwrap(), PutIf::Missing));
    records.put(b"k", b"3", None).unwrap();
    assert!(matches!(
        records.put_if_version(b"k", b"4", Some(first), None).unwrap(),
        PutIf::Changed
    ));
    let hour = Some(Duration::from_secs(3600));
    let stored = records.put_if_version(b"k", b"5", Some(version()), hour).unwrap();
    assert!(matches!(stored, PutIf::Stored(_)));
    let expiry = records.get_record(b"k", |record| record.expires_at_ms).unwrap().unwrap();
    assert!(expiry > 0);
    assert_eq!(value(&records, b"k").unwrap(), b"5");
}

#[test]
fn an_operation_within_the_closure_of_another_fails_without_waiting() {
    let records = of(&memory());
    records.put(b"k", b"v", None).unwrap();
    let within = records.get(b"k", |_| records.put(b"l", b"v", None)).unwrap().unwrap();
    assert!(matches!(within, Err(ScriptError::Database(Error::Reentrant))));
    assert_eq!(value(&records, b"l"), None);
}

#[test]
fn every_record_is_visited_once_while_the_visitor_changes_records() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let records = of(&database);
        // More than is read ahead.
        let long = vec![b'v'; 300 << 10];
        for number in 0..10 {
            records.put(format!("k{number}").as_bytes(), &long, None).unwrap();
        }
        let mut visited = Vec::new();
        records
            .for_each(|key, value| {
                if key.starts_with(b"k") {
                    assert_eq!(value.len(), long.len());
                    visited.push(key.to_vec());
                    records.put(&[b"new ", key].concat(), b"v", None).unwrap();
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        visited.sort();
        assert_eq!(visited, (0..10).map(|n| format!("k{n}").into_bytes()).collect::<Vec<_>>());
        let mut first = 0;
        records
            .for_each(|_, _| {
                first += 1;
                ControlFlow::Break(())
            })
            .unwrap();
        assert_eq!(first, 1);
    }
}

#[test]
fn records_of_a_hash_database_are_visited_in_the_order_in_which_they_were_stored() {
    let folder = tempfile::tempdir().unwrap();
    let records = of(&hash(folder.path()));
    let keys: Vec<Vec<u8>> =
        (0..1000_u32).map(|n| n.wrapping_mul(7919).to_be_bytes().into()).collect();
    for key in &keys {
        records.put(key, b"v", None).unwrap();
    }
    let mut visited = Vec::new();
    records
        .for_each(|key, _| {
            visited.push(key.to_vec());
            // It goes to the end of the log, and is visited once all the same.
            records.put(key, b"changed", None).unwrap();
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(visited == keys);
}

#[test]
fn ids_are_visited_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let records = of(&fixed(folder.path()));
    let mut ids: Vec<u32> = (1..=1000).map(|n: u32| n * 7919 % 10_007).collect();
    for id in &ids {
        records.put(id.to_string().as_bytes(), b"v", None).unwrap();
    }
    ids.sort_unstable();
    let mut visited = Vec::new();
    records
        .for_each(|key, _| {
            visited.push(String::from_utf8(key.to_vec()).unwrap().parse::<u32>().unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(visited, ids);
}

#[test]
fn each_duplicate_is_visited() {
    let folder = tempfile::tempdir().unwrap();
    let records = of(&tree(folder.path()));
    let values = [vec![b'1'; 700 << 10], vec![b'2'; 700 << 10], b"3".to_vec()];
    for value in &values {
        records.misc(b"putdup", &[b"k", value], true, &mut |_| true).unwrap().unwrap();
    }
    let mut visited = Vec::new();
    records
        .for_each(|_, value| {
            visited.push(value.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(visited, values);
}

#[test]
fn a_transaction_is_made_as_a_whole_or_abandoned() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let records = of(&database);
        records.put(b"a", b"old", None).unwrap();
        records.end_call();
        records.begin_transaction().unwrap();
        records.put(b"a", b"new", None).unwrap();
        records.append(b"b", b"1").unwrap();
        records.append(b"b", b"2").unwrap();
        assert_eq!(value(&records, b"b").unwrap(), b"12");
        assert_eq!(database.get(b"a").unwrap().unwrap(), b"old");
        // The call fails.
        assert!(!records.end_call());
        assert_eq!(database.get(b"a").unwrap().unwrap(), b"old");
        assert_eq!(database.len(), 1);

        records.begin_transaction().unwrap();
        assert!(records.begin_transaction().is_err());
        records.add_int(b"n", 2).unwrap();
        assert!(records.remove(b"a").unwrap());
        records.commit().unwrap();
        assert!(records.commit().is_err());
        assert!(records.end_call());
        assert_eq!(database.get(b"a").unwrap(), None);
        assert_eq!(database.get(b"n").unwrap().unwrap(), 2_i32.to_ne_bytes());
        records.begin_transaction().unwrap();
        assert!(records.abort().unwrap());
        assert!(!records.abort().unwrap());
    }
}

#[test]
fn the_changes_of_a_transaction_need_memory_of_all_requests() {
    let database = memory();
    let config = || Config { buffer_bytes_max: 8 << 20, ..config() };
    let records = script_records(config(), &database);
    records.begin_transaction().unwrap();
    let value = vec![b'v'; 1 << 20];
    records.put(b"a", &value, None).unwrap();
    records.put(b"a", &value, None).unwrap();
    records.put(b"b", &value, None).unwrap();
    let refused = records.put(b"c", &value, None);
    assert!(matches!(refused, Err(ScriptError::Database(Error::NoRoom { .. }))));
    assert!(!records.end_call());
    assert_eq!(database.len(), 0);
    records.begin_transaction().unwrap();
    records.put(b"a", &value, None).unwrap();
    records.commit().unwrap();
    assert_eq!(database.len(), 1);
}

#[test]
fn a_transaction_on_a_record_that_another_client_changes_meanwhile_changes_nothing() {
    let database = memory();
    let records = of(&database);
    database.put(b"a", b"1").unwrap();
    records.begin_transaction().unwrap();
    assert_eq!(value(&records, b"a").unwrap(), b"1");
    records.put(b"b", b"1", None).unwrap();
    database.put(b"a", b"2").unwrap();
    assert!(matches!(records.commit(), Err(ScriptError::Database(Error::Conflict))));
    assert_eq!(database.get(b"b").unwrap(), None);
    // A transaction that only reads conflicts too.
    records.begin_transaction().unwrap();
    value(&records, b"a");
    database.put(b"a", b"3").unwrap();
    assert!(matches!(records.commit(), Err(ScriptError::Database(Error::Conflict))));
}

#[test]
fn operations_that_cannot_be_undone_are_refused_within_a_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |result: Result<(), ScriptError>| {
        assert!(
            matches!(result, Err(ScriptError::Database(Error::Unsupported { .. }))),
            "{result:?}"
        );
    };
    let records = of(&fixed(folder.path()));
    records.begin_transaction().unwrap();
    refused(records.put(b"next", b"v", None));
    refused(records.clear());
    refused(records.misc(b"put", &[b"1", b"v"], true, &mut |_| true).map(drop));
    records.put(b"01", b"v", None).unwrap();
    records.commit().unwrap();
    assert_eq!(value(&records, b"1").unwrap(), b"v");
    let records = of(&table(folder.path()));
    records.begin_transaction().unwrap();
    refused(records.append(b"row", b"a\0b"));
    refused(records.put(b"", b"a\0b", None));
    records.put(b"row", b"a\0b", None).unwrap();
    records.commit().unwrap();
    assert_eq!(value(&records, b"row").unwrap(), b"a\0b");
}

#[test]
fn changes_are_logged_and_those_of_a_transaction_at_its_commit() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let server = Server::bind(logging(1, folder.path()), database.clone()).unwrap();
    let own = server.script_records(0, 1);
    own.put(b"plain", b"v", None).unwrap();
    own.misc(b"put", &[b"unlogged", b"v"], false, &mut |_| true).unwrap().unwrap();
    own.begin_transaction().unwrap();
    own.put(b"abandoned", b"v", None).unwrap();
    own.abort().unwrap();
    own.begin_transaction().unwrap();
    own.put(b"expiring", b"v", Some(Duration::from_secs(3600))).unwrap();
    own.append(b"plain", b"w").unwrap();
    own.remove(b"unlogged").unwrap();
    own.put(b"brief", b"v", None).unwrap();
    own.remove(b"brief").unwrap();
    own.commit().unwrap();
    server.handle().stop();
    server.run().unwrap();
    let replica = memory();
    let log = folder.path().join("ulog");
    let replayed =
        server::replay(replica.clone(), &log, &server::CopyPosition::default(), u64::MAX).unwrap();
    assert_eq!(replayed.differing, 0);
    assert_eq!(records(&replica), records(&database));
    assert_eq!(database.len(), 2);
    assert_eq!(replica.get(b"plain").unwrap().unwrap(), b"vw");
    let expiry = |database: &Database| {
        database.read(b"expiring", |entry| entry.meta.expires_at_ms).unwrap().unwrap()
    };
    assert_eq!(expiry(&replica), expiry(&database));
}
