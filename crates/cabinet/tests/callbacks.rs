//! Operations that a callback may call: the same in every callback of every kind of database.

use cabinet::table::{IndexChange, IndexDescription, IndexKind, Query, Row, Table};
use cabinet::{
    Batch, Change, CursorPut, Database, Durability, Error, Meta, RecordRef, Result, ScanCursor,
    Side,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

const KINDS: [&str; 6] = ["a.tch", "a.tcb", "a.tcf", "a.tct", "*", "+"];

/// Longest that a test may take: what does not end is a deadlock.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Name of an operation, and the function that calls it.
type Operation<'o> = (&'static str, Box<dyn Fn() -> Result<()> + 'o>);

/// Calls an operation with a callback, which runs what is given.
type Caller<'c> = (&'static str, Box<dyn Fn(&mut dyn FnMut()) -> Result<()> + 'c>);

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

/// Fails instead of waiting for ever.
fn within_time(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match ended.recv_timeout(WAIT_MAX) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a callback waits for ever"),
        _ => thread.join().expect("the test"),
    }
}

/// A database of each kind with the records 1 to 9, as columns in a table.
fn each_kind(test: impl Fn(&str, &Database, &Path)) {
    for kind in KINDS {
        let folder = tempfile::tempdir().expect("a folder");
        let is_memory = kind.len() == 1;
        let path = if is_memory { kind.into() } else { folder.path().join(kind) };
        let database = Database::open(&path.display().to_string()).expect("a database");
        for id in 1..10 {
            database.put(id.to_string().as_bytes(), b"color\0red").expect("a put");
        }
        test(kind, &database, folder.path());
        assert_eq!(database.len(), 9, "{kind}");
    }
}

/// Every operation of a database that may fail.
fn operations<'o>(database: &'o Database, folder: &'o Path) -> Vec<Operation<'o>> {
    let value = b"color\0green";
    let keep = |_: Option<RecordRef<'_>>| (Change::Keep, ());
    let mut batch = Batch::new();
    batch.put(b"1", value, Meta::NONE);
    let copy = folder.join("copy");
    let other = copy.clone();
    let version = database.read(b"1", |entry| entry.version).expect("a read").unwrap_or(0);
    vec![
        ("put", Box::new(move || database.put(b"1", value).map(drop))),
        ("put_with", Box::new(move || database.put_with(b"1", value, Meta::NONE).map(drop))),
        ("put_keep", Box::new(move || database.put_keep(b"10", value, Meta::NONE).map(drop))),
        ("replace", Box::new(move || database.replace(b"1", value, Meta::NONE).map(drop))),
        ("put_cat", Box::new(move || database.put_cat(b"1", value))),
        ("put_shift", Box::new(move || database.put_shift(b"1", value, 3))),
        ("extend", Box::new(move || database.extend(b"1", value, true).map(drop))),
        ("remove", Box::new(move || database.remove(b"1").map(drop))),
        ("get", Box::new(move || database.get(b"1").map(drop))),
        ("read", Box::new(move || database.read(b"2", |_| ()).map(drop))),
        ("large_value", Box::new(move || database.large_value(b"2", 1).map(drop))),
        ("value_size", Box::new(move || database.value_size(b"2").map(drop))),
        ("add_int", Box::new(move || database.add_int(b"1", 1).map(drop))),
        ("add_double", Box::new(move || database.add_double(b"1", 1.0).map(drop))),
        (
            "compare_and_swap",
            Box::new(move || database.compare_and_swap(b"1", version, value, Meta::NONE).map(drop)),
        ),
        ("touch", Box::new(move || database.touch(b"1", 1).map(drop))),
        ("modify", Box::new(move || database.modify(b"3", keep))),
        ("modify_versioned", Box::new(move || database.modify_versioned(b"3", keep).map(drop))),
        ("write", Box::new(move || database.write(&batch))),
        ("for_each", Box::new(move || database.for_each(|_| GO_ON))),
        ("keys_with_prefix", Box::new(move || database.keys_with_prefix(b"", None).map(drop))),
        (
            "for_each_key_with_prefix",
            Box::new(move || database.for_each_key_with_prefix(b"", |_| GO_ON)),
        ),
        ("find", Box::new(move || database.find(b".", None).map(drop))),
        ("for_each_match", Box::new(move || database.for_each_match(b".", |_| GO_ON))),
        ("scan", Box::new(move || database.scan(&ScanCursor::Start, |_| ()).map(drop))),
        ("scan_keys", Box::new(move || database.scan_keys(&ScanCursor::Start, |_| ()).map(drop))),
        ("canonical_key", Box::new(move || database.canonical_key(b"1").map(drop))),
        (
            "put_duplicate",
            Box::new(move || database.put_duplicate(b"1", value, Side::After).map(drop)),
        ),
        ("read_duplicate", Box::new(move || database.read_duplicate(b"1", 0, |_| ()).map(drop))),
        ("get_all", Box::new(move || database.get_all(b"1").map(drop))),
        ("count", Box::new(move || database.count(b"1").map(drop))),
        ("remove_all", Box::new(move || database.remove_all(b"1").map(drop))),
        ("cursor", Box::new(move || database.cursor().map(drop))),
        ("range", Box::new(move || database.range::<&[u8]>(..).map(drop))),
        ("iter", Box::new(move || database.iter().map(drop))),
        ("keys", Box::new(move || database.keys().map(drop))),
        ("prefix", Box::new(move || database.prefix(b"1").map(drop))),
        ("entry", Box::new(move || database.entry(b"1").or_nothing().map(drop))),
        ("sync", Box::new(move || database.sync())),
        ("optimize", Box::new(move || database.optimize())),
        ("retune", Box::new(move || database.retune("capsiz=1"))),
        ("clear", Box::new(move || database.clear())),
        ("copy_to", Box::new(move || database.copy_to(&copy))),
        ("copy_at", Box::new(move || database.copy_at(&other, &mut |take| take().map(|()| true)))),
        ("wait_durable", Box::new(move || database.wait_durable(0))),
        ("verify", Box::new(move || database.verify(&mut |_| None, &mut |_| ()).map(drop))),
        ("on_durable", Box::new(move || database.on_durable(std::sync::Arc::new(|_| ())))),
        ("read_row", Box::new(move || database.read_row(b"1", |_| ()).map(drop))),
        ("a read in a transaction", Box::new(move || database.transaction().get(b"1").map(drop))),
        (
            "a put in a transaction",
            Box::new(move || database.transaction().put(b"1", value).map(drop)),
        ),
        ("a commit", Box::new(move || database.transaction().commit())),
        ("a clone", Box::new(move || database.clone().nonblocking().get(b"1").map(drop))),
    ]
}

/// Every operation of a table that may fail because of a callback that was lent a row.
fn row_operations(table: &Table) -> Vec<Operation<'_>> {
    vec![
        ("put", Box::new(move || table.put(b"1", &Row::new()))),
        ("put_keep", Box::new(move || table.put_keep(b"10", &Row::new()).map(drop))),
        ("put_cat", Box::new(move || table.put_cat(b"1", &Row::new()))),
        ("modify", Box::new(move || table.modify(b"1", |_| false))),
        ("remove", Box::new(move || table.remove(b"1").map(drop))),
        ("get", Box::new(move || table.get(b"1").map(drop))),
        ("read", Box::new(move || table.read(b"1", |_| ()).map(drop))),
        ("add_int", Box::new(move || table.add_int(b"1", 1).map(drop))),
        ("add_double", Box::new(move || table.add_double(b"1", 1.0).map(drop))),
        ("generate_uid", Box::new(move || table.generate_uid().map(drop))),
        ("set_uid_seed", Box::new(move || table.set_uid_seed(1))),
        ("for_each_row", Box::new(move || table.for_each_row(|_, _| GO_ON))),
        ("clear_rows", Box::new(move || table.clear_rows())),
        ("acknowledge", Box::new(move || table.acknowledge())),
        ("search", Box::new(move || table.search(&Query::new()).map(drop))),
        ("count", Box::new(move || table.count(&Query::new()).map(drop))),
        ("search_out", Box::new(move || table.search_out(&Query::new(), |_, _| ()).map(drop))),
        (
            "set_index",
            Box::new(move || table.set_index(b"x", IndexChange::Set(IndexKind::Lexical))),
        ),
        ("check_indices", Box::new(move || table.check_indices())),
    ]
}

/// Every operation of a database of this kind that calls a callback with a record.
fn callers<'c>(kind: &str, database: &'c Database, folder: &'c Path) -> Vec<Caller<'c>> {
    let mut callers: Vec<Caller<'c>> = vec![
        ("read", Box::new(|call| database.read(b"1", |_| call()).map(drop))),
        ("modify", Box::new(|call| database.modify(b"1", |_| (Change::Keep, call())))),
        ("modify of none", Box::new(|call| database.modify(b"50", |_| (Change::Keep, call())))),
        (
            "modify_versioned",
            Box::new(|call| database.modify_versioned(b"1", |_| (Change::Keep, call())).map(drop)),
        ),
        ("for_each", Box::new(|call| database.for_each(|_| once(call)))),
        (
            "entry",
            Box::new(|call| database.entry(b"1").and_modify(|_| call()).or_nothing().map(drop)),
        ),
        (
            "for_each_key_with_prefix",
            Box::new(|call| database.for_each_key_with_prefix(b"1", |_| once(call))),
        ),
        ("for_each_match", Box::new(|call| database.for_each_match(b"1", |_| once(call)))),
        (
            "scan",
            Box::new(|call| database.scan(&database.scan_cursor_of(b"9"), |_| call()).map(drop)),
        ),
        (
            "scan_keys",
            Box::new(|call| {
                database.scan_keys(&database.scan_cursor_of(b"9"), |_| call()).map(drop)
            }),
        ),
    ];
    if kind == "a.tcb" {
        let read = |call: &mut dyn FnMut()| database.read_duplicate(b"1", 0, |_| call()).map(drop);
        callers.push(("read_duplicate", Box::new(read)));
    }
    if let Some(numbered) = database.as_numbered() {
        callers.extend([
            (
                "for_each_in",
                Box::new(|call: &mut dyn FnMut()| numbered.for_each_in(1..=1, &mut |_| once(call)))
                    as Box<_>,
            ),
            (
                "for_each_key_in",
                Box::new(|call: &mut dyn FnMut()| {
                    numbered.for_each_key_in(1..=1, &mut |_| once(call))
                }) as Box<_>,
            ),
        ]);
    }
    if let Some(table) = database.table() {
        callers.extend([
            (
                "read_row",
                Box::new(|call: &mut dyn FnMut()| database.read_row(b"1", |_| call()).map(drop))
                    as Box<dyn Fn(&mut dyn FnMut()) -> Result<()>>,
            ),
            ("Table::read", Box::new(|call| table.read(b"1", |_| call()).map(drop))),
            (
                "Table::modify",
                Box::new(|call| {
                    table.modify(b"1", |_| {
                        call();
                        false
                    })
                }),
            ),
            ("for_each_row", Box::new(|call| table.for_each_row(|_, _| once(call)))),
        ]);
    }
    if kind.len() > 1 {
        let copy = folder.join("copy");
        callers.push((
            "copy_at",
            Box::new(move |call| {
                database.copy_at(&copy, &mut |take| {
                    call();
                    take().map(|()| true)
                })?;
                std::fs::remove_dir_all(&copy).expect("the copy");
                Ok(())
            }),
        ));
    }
    let transaction = database.transaction();
    callers.push((
        "a read in a transaction",
        Box::new(move |call| transaction.read(b"1", |_| call()).map(drop)),
    ));
    let transaction = database.transaction();
    callers.push((
        "modify in a transaction",
        Box::new(move |call| transaction.modify(b"1", |_| (Change::Keep, call()))),
    ));
    callers
}

fn once(call: &mut dyn FnMut()) -> ControlFlow<()> {
    call();
    ControlFlow::Break(())
}

/// Calls every operation, all of which are to be refused.
fn all_are_refused(operations: &[Operation<'_>], kind: &str, caller: &str) {
    for (name, operation) in operations {
        let result = operation();
        assert!(matches!(result, Err(Error::Reentrant)), "{kind}: {name} in {caller}: {result:?}");
    }
}

#[test]
fn no_callback_of_any_kind_may_call_an_operation_of_its_database() {
    within_time(|| {
        each_kind(|kind, database, folder| {
            let operations = operations(database, folder);
            for (caller, call) in callers(kind, database, folder) {
                let mut calls = 0;
                let result = call(&mut || {
                    calls += 1;
                    all_are_refused(&operations, kind, caller);
                    if let Some(table) = database.table() {
                        all_are_refused(&row_operations(table), kind, caller);
                    }
                });
                result.unwrap_or_else(|error| panic!("{kind}: {caller}: {error}"));
                assert!(calls > 0, "{kind}: {caller} calls nothing");
                assert_eq!(database.get(b"1").unwrap().as_deref(), Some(&b"color\0red"[..]));
            }
        });
    });
}

#[test]
fn every_callback_may_ask_for_what_is_known_without_a_lock() {
    within_time(|| {
        each_kind(|kind, database, folder| {
            for (caller, call) in callers(kind, database, folder) {
                let result = call(&mut || {
                    assert_eq!(database.len(), 9, "{kind}: {caller}");
                    assert!(!database.is_empty());
                    assert_eq!(database.durability(), Durability::None);
                    assert!(!database.evicts());
                    assert!(database.durable() <= database.appended());
                    assert!(database.stats().is_empty());
                    database.prefetch(&[b"1", b"2"]);
                    let _ = (database.path(), database.size_bytes(), database.order());
                    let _ = (database.has_duplicates(), database.scan_cursor_of(b"min"));
                    if let Some(numbered) = database.as_numbered() {
                        assert_eq!((numbered.min(), numbered.max()), (None, None));
                        assert_eq!(numbered.id(b"7"), Some(7));
                    }
                    if let Some(table) = database.table() {
                        assert_eq!((table.len(), table.indices().len()), (9, 0));
                    }
                });
                result.unwrap_or_else(|error| panic!("{kind}: {caller}: {error}"));
            }
            assert!(!database.stats().is_empty());
        });
    });
}

#[test]
fn a_get_in_a_modify_is_refused_whatever_the_keys() {
    within_time(|| {
        each_kind(|kind, database, _| {
            for id in 1..3000 {
                let other = (id * 7 % 3000 + 1).to_string();
                let got = database.modify(id.to_string().as_bytes(), |_| {
                    (Change::Keep, database.get(other.as_bytes()))
                });
                assert!(matches!(got, Ok(Err(Error::Reentrant))), "{kind}: {id}: {got:?}");
            }
        });
    });
}

#[test]
fn a_cursor_is_refused_in_a_callback_and_stays_where_it_is() {
    within_time(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.tcb");
        let database = Database::open(&path.display().to_string()).unwrap();
        database.put(b"1", b"one").unwrap();
        database.put(b"2", b"two").unwrap();
        let mut cursor = database.cursor().unwrap();
        assert!(cursor.first().unwrap());
        let refused = |result: Result<bool>| assert!(matches!(result, Err(Error::Reentrant)));
        database
            .read(b"1", |_| {
                refused(cursor.first());
                refused(cursor.last());
                refused(cursor.next());
                refused(cursor.prev());
                refused(cursor.jump(b"2"));
                refused(cursor.jump_back(b"2"));
                refused(cursor.put(b"three", CursorPut::Current));
                refused(cursor.remove());
            })
            .unwrap();
        assert_eq!(cursor.key(), Some(&b"1"[..]));
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.value(), Some(&b"two"[..]));
    });
}

#[test]
fn a_callback_may_call_another_database_whose_callbacks_may_not_call_back() {
    within_time(|| {
        each_kind(|kind, database, _| {
            each_kind(|other_kind, other, _| {
                let read = database.read(b"1", |entry| {
                    other.put(b"1", entry.value).unwrap();
                    let within = other.read(b"1", |_| (database.get(b"2"), other.get(b"2")));
                    let (outer, inner) = within.unwrap().expect("a record");
                    assert!(matches!(outer, Err(Error::Reentrant)), "{kind}, {other_kind}");
                    assert!(matches!(inner, Err(Error::Reentrant)), "{kind}, {other_kind}");
                    other.get(b"2").unwrap();
                    assert!(matches!(database.get(b"2"), Err(Error::Reentrant)));
                });
                read.unwrap().expect("a record");
            });
        });
    });
}

#[test]
fn a_callback_that_panics_leaves_the_database_usable() {
    within_time(|| {
        each_kind(|kind, database, _| {
            let read = || database.read(b"1", |_| panic!("on purpose"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
            assert!(database.get(b"1").unwrap().is_some(), "{kind}");
        });
    });
}

#[test]
fn a_listener_for_durability_is_a_callback() {
    within_time(|| {
        for kind in ["a.tch", "a.tcb"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join(kind).display().to_string();
            let database = Database::open(&format!("{path}#durability=always")).unwrap();
            let (told, results) = mpsc::channel();
            let own = database.clone();
            let listener = std::sync::Arc::new(move |_| {
                let listened = own.on_durable(std::sync::Arc::new(|_| ()));
                assert!(matches!(listened, Err(Error::Reentrant)), "{listened:?}");
                let _ = told.send(own.put(b"from the listener", b"v").map(drop));
            });
            database.on_durable(listener).unwrap();
            database.put(b"key", b"value").unwrap();
            let result = results.recv_timeout(WAIT_MAX / 2).expect("a call");
            assert!(matches!(result, Err(Error::Reentrant)), "{kind}: {result:?}");
            assert_eq!(database.len(), 1);
            // The listener has a handle, and so would keep the database open.
            database.on_durable(std::sync::Arc::new(|_| ())).unwrap();
        }
    });
}

#[test]
fn a_callback_learns_of_indices_and_identifiers_while_another_thread_waits_for_it() {
    within_time(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.tct").display().to_string();
        let database = Database::open(&path).unwrap();
        let table = database.table().expect("a table");
        table.set_index(b"color", IndexChange::Set(IndexKind::Lexical)).unwrap();
        let all = [IndexDescription { column: b"color".to_vec(), kind: IndexKind::Lexical }];
        for waiting in [
            &(|| table.clear_rows().unwrap()) as &(dyn Fn() + Sync),
            // All rows and the note of identifiers are in one leaf.
            &|| table.set_uid_seed(8).unwrap(),
        ] {
            table.put(b"1", &Row::new().with(b"color", b"red").unwrap()).unwrap();
            table.set_uid_seed(7).unwrap();
            std::thread::scope(|scope| {
                let read = table.read(b"1", |_| {
                    scope.spawn(waiting);
                    // Until it waits. A late thread does not wait, which is not refused either.
                    std::thread::sleep(Duration::from_millis(200));
                    (table.indices(), table.last_uid())
                });
                assert_eq!(read.unwrap().expect("a row"), (all.to_vec(), 7));
            });
        }
    });
}

#[test]
fn a_visitor_of_results_may_change_rows_but_not_indices() {
    within_time(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.tct").display().to_string();
        let database = Database::open(&path).unwrap();
        let table = database.table().expect("a table");
        table.set_index(b"color", IndexChange::Set(IndexKind::Lexical)).unwrap();
        for id in 0..20 {
            let row = Row::new().with(b"color", b"red").unwrap();
            table.put(format!("{id:02}").as_bytes(), &row).unwrap();
        }
        let mut met = 0;
        let visit = |primary: &[u8]| {
            met += 1;
            assert!(database.get(primary)?.is_some());
            assert_eq!(table.count(&Query::new())?, 21 - met);
            let remove = table.set_index(b"color", IndexChange::Remove);
            assert!(matches!(remove, Err(Error::Reentrant)));
            let lent = table.read(primary, |_| table.get(b"00"))?;
            assert!(matches!(lent, Some(Err(Error::Reentrant))));
            assert!(database.remove(primary)?);
            Ok(GO_ON)
        };
        assert_eq!(table.for_each_result(&Query::new(), visit).unwrap().count, 20);
        assert!(table.is_empty());
        table.set_index(b"color", IndexChange::Remove).unwrap();
    });
}
