//! Transactions and batches: all or nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::{Batch, Database, Error, Meta, Side, Swap};

fn databases() -> [Database; 2] {
    ["*", "+"].map(|name| Database::open(name).unwrap())
}

#[test]
fn a_transaction_sees_its_own_changes_and_nobody_else_does_before_the_commit() {
    for database in databases() {
        database.put(b"a", b"1").unwrap();
        database.put(b"b", b"2").unwrap();
        let transaction = database.transaction();
        transaction.put_cat(b"a", b"x").unwrap();
        transaction.put(b"c", b"3").unwrap();
        assert!(transaction.remove(b"b").unwrap());
        assert!(!transaction.remove(b"b").unwrap());
        assert!(transaction.put_keep(b"b", b"new", Meta::NONE).unwrap());
        assert!(!transaction.put_keep(b"b", b"newer", Meta::NONE).unwrap());
        assert_eq!(transaction.get(b"a").unwrap().unwrap(), b"1x");
        assert_eq!(transaction.get(b"b").unwrap().unwrap(), b"new");
        assert_eq!(database.get(b"a").unwrap().unwrap(), b"1");
        assert_eq!(database.get(b"c").unwrap(), None);
        transaction.commit().unwrap();
        assert_eq!(database.get(b"a").unwrap().unwrap(), b"1x");
        assert_eq!(database.get(b"b").unwrap().unwrap(), b"new");
        assert_eq!(database.get(b"c").unwrap().unwrap(), b"3");
    }
}

#[test]
fn an_aborted_or_dropped_transaction_changes_nothing() {
    for database in databases() {
        database.put(b"a", b"1").unwrap();
        let transaction = database.transaction();
        transaction.put(b"a", b"2").unwrap();
        transaction.abort();
        database.transaction().remove(b"a").unwrap();
        assert_eq!(database.get(b"a").unwrap().unwrap(), b"1");
    }
}

#[test]
fn a_transaction_fails_whole_if_what_it_read_has_changed() {
    for database in databases() {
        database.put(b"read", b"1").unwrap();
        type Interfere = fn(&Database);
        let interferences: [Interfere; 3] = [
            |database| assert!(database.put(b"read", b"2").unwrap() > 0),
            |database| assert!(database.remove(b"read").unwrap()),
            |database| assert!(database.put(b"missing", b"now there").unwrap() > 0),
        ];
        for interfere in interferences {
            database.put(b"read", b"1").unwrap();
            database.remove(b"missing").unwrap();
            let transaction = database.transaction();
            transaction.get(b"read").unwrap();
            transaction.get(b"missing").unwrap();
            transaction.put(b"written", b"3").unwrap();
            interfere(&database);
            assert!(matches!(transaction.commit(), Err(Error::Conflict)));
            assert_eq!(database.get(b"written").unwrap(), None);
        }
    }
}

#[test]
fn a_blind_write_does_not_conflict() {
    for database in databases() {
        let transaction = database.transaction();
        transaction.put(b"a", b"mine").unwrap();
        database.put(b"a", b"theirs").unwrap();
        transaction.commit().unwrap();
        assert_eq!(database.get(b"a").unwrap().unwrap(), b"mine");
    }
}

#[test]
fn compare_and_swap_works_on_a_record_put_in_the_same_transaction() {
    for database in databases() {
        let transaction = database.transaction();
        let version = transaction.put(b"a", b"1").unwrap();
        let swap = |version| transaction.compare_and_swap(b"a", version, b"2", Meta::NONE);
        assert!(matches!(swap(version).unwrap(), Swap::Stored(_)));
        assert_eq!(swap(version).unwrap(), Swap::Changed);
    }
}

#[test]
fn a_transaction_within_a_transaction_joins_it_on_commit() {
    for database in databases() {
        let outer = database.transaction();
        outer.add_int(b"n", 1).unwrap();
        let inner = outer.transaction();
        inner.add_int(b"n", 1).unwrap();
        let abandoned = outer.transaction();
        abandoned.add_int(b"n", 40).unwrap();
        inner.commit().unwrap();
        assert!(matches!(abandoned.commit(), Err(Error::Conflict)));
        assert_eq!(database.get(b"n").unwrap(), None);
        outer.commit().unwrap();
        assert_eq!(database.add_int(b"n", 0).unwrap(), 2);
    }
}

#[test]
fn concurrent_transfers_keep_the_total() {
    for database in databases() {
        for account in 0..4u8 {
            database.add_int(&[account], 100).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let database = database.clone();
                scope.spawn(move || {
                    for step in 0..200u8 {
                        let (from, to) = (step % 4, (step / 4 + thread) % 4);
                        loop {
                            let transfer = database.transaction();
                            transfer.add_int(&[from], -1).unwrap();
                            transfer.add_int(&[to], 1).unwrap();
                            match transfer.commit() {
                                Ok(()) => break,
                                Err(Error::Conflict) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
            }
        });
        let total: i32 = (0..4u8).map(|account| database.add_int(&[account], 0).unwrap()).sum();
        assert_eq!(total, 400);
    }
}

#[test]
fn a_batch_is_applied_in_order_and_only_if_its_expectations_hold() {
    for database in databases() {
        let version = database.put(b"a", b"1").unwrap();
        let mut batch = Batch::new();
        batch.expect(b"a", Some(version));
        batch.expect(b"b", None);
        batch.put(b"b", b"first", Meta::NONE);
        batch.remove(b"a");
        batch.put(b"b", b"second", Meta::NONE);
        database.write(&batch).unwrap();
        assert_eq!(database.get(b"a").unwrap(), None);
        assert_eq!(database.get(b"b").unwrap().unwrap(), b"second");
        assert!(matches!(database.write(&batch), Err(Error::Conflict)));
        assert_eq!(database.len(), 1);
    }
}

#[test]
fn a_transaction_has_the_order_of_its_tree_and_shows_each_key_once() {
    let folder = tempfile::tempdir().unwrap();
    for (order, all) in [("lexical", ["10", "2", "9"]), ("decimal", ["2", "9", "10"])] {
        let path = folder.path().join(format!("{order}.tcb"));
        let name = format!("{}#order={order}", path.display());
        let tree = Database::open(&name).unwrap();
        for key in all {
            tree.put(key.as_bytes(), b"first").unwrap();
            tree.put_duplicate(key.as_bytes(), b"second", Side::After).unwrap();
        }
        let transaction = tree.transaction();
        assert_eq!(transaction.order(), tree.order());
        assert!(!transaction.has_duplicates());
        let keys = transaction.keys_with_prefix(b"", None).unwrap();
        assert_eq!(keys, all.map(|key| key.as_bytes().to_vec()), "{order}");
        let from = transaction.range("9"..).unwrap().map(|record| record.unwrap().key);
        let mut from: Vec<_> = from.collect();
        from.dedup();
        let expected = &all[all.iter().position(|key| *key == "9").unwrap()..];
        assert!(from.iter().eq(expected.iter().map(|key| key.as_bytes())), "{order}: {from:?}");
    }
}
