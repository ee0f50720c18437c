//! Records: the interface for front ends.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::{Database, Durability, Meta, Side};
use server::{Config, Records, RecordsError, Saying, Server};
use std::sync::Arc;
use support::{ManualEngine, config, hash, memory, tree};

fn records(database: &Database) -> Records {
    Server::bind(config(), database.clone()).unwrap().records()
}

fn value(database: &Database, key: &str) -> Option<String> {
    database.get(key.as_bytes()).unwrap().map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn a_value_stored_during_a_move_is_moved_too() {
    let engine = ManualEngine::new("", Durability::None);
    let database = Database::from_engine(Arc::<ManualEngine>::clone(&engine));
    let records = records(&database);
    database.put(b"from", b"one").unwrap();
    engine.put_after(b"to", (b"from", b"two"));
    assert!(records.rename(b"from", b"to").unwrap());
    assert_eq!(value(&database, "from"), None);
    assert_eq!(value(&database, "to").as_deref(), Some("two"));
    assert!(!records.rename(b"from", b"to").unwrap());
}

#[test]
fn a_record_of_the_front_end_that_is_made_while_none_is_to_be_removed_stays() {
    let server = Server::bind(config(), memory()).unwrap();
    let (records, other) = (server.records(), server.records());
    let mut is_first = true;
    let keep = records.change_own(b"name", |stored| {
        if std::mem::take(&mut is_first) {
            assert_eq!(stored, None);
            other.change_own(b"name", |_| (Some(b"value".to_vec()), ())).unwrap();
        }
        (None, ())
    });
    keep.unwrap();
    assert_eq!(records.own(b"name").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_write_of_a_part_fails_if_the_value_changed_meanwhile() {
    let database = memory();
    let records = records(&database);
    let meta = Meta { flags: 0xc702_0000, expires_at_ms: 4_000_000_000_000 };
    database.put_with(b"k", b"0123", meta).unwrap();
    let change = || {
        let mut draft = records.draft_of(b"k").unwrap().unwrap();
        draft.write(1, b"xy").unwrap();
        draft
    };
    let saying = Saying { media_type: b"text/html".to_vec(), ..Saying::default() };
    let facts = records.put(b"k", change(), &saying).unwrap();
    assert_eq!(value(&database, "k").as_deref(), Some("0xy3"));
    assert_eq!(facts.expires_at_ms, meta.expires_at_ms);
    assert_eq!(facts.media_type.as_deref(), Some("text/plain"));
    let draft = change();
    database.put(b"k", b"other").unwrap();
    assert!(matches!(records.put(b"k", draft, &saying), Err(RecordsError::Unmet)));
    assert_eq!(value(&database, "k").as_deref(), Some("other"));
    let draft = change();
    let other = Saying { matching: Some(facts.tag.into_bytes()), ..Saying::default() };
    assert!(matches!(records.put(b"k", draft, &other), Err(RecordsError::Unmet)));
    let draft = change();
    database.remove(b"k").unwrap();
    assert!(matches!(records.put(b"k", draft, &saying), Err(RecordsError::Unmet)));
    assert!(records.draft_of(b"k").unwrap().is_none());
}

#[test]
fn changing_a_part_of_a_large_value_is_charged_to_the_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let buffer_bytes_max = 2 << 20;
    let config = Config { buffer_bytes_max, ..config() };
    let records = Server::bind(config, database.clone()).unwrap().records();
    for length in [buffer_bytes_max - 1, buffer_bytes_max, buffer_bytes_max + 1] {
        database.put(b"k", &vec![b'v'; length]).unwrap();
        let mut draft = records.draft_of(b"k").unwrap().unwrap();
        draft.write(0, b"w").unwrap();
        let put = records.put(b"k", draft, &Saying::default());
        let is_room = length <= buffer_bytes_max;
        assert_eq!(put.is_ok(), is_room, "{put:?}");
        assert!(is_room || matches!(put, Err(RecordsError::NoRoom)));
        let first = if is_room { b'w' } else { b'v' };
        assert_eq!(database.get(b"k").unwrap().unwrap()[0], first);
    }
}

#[test]
fn a_removal_takes_all_values_of_a_key_and_a_move_takes_one() {
    let folder = tempfile::tempdir().unwrap();
    let database = tree(folder.path());
    let records = records(&database);
    for value in [b"a", b"b", b"c"] {
        database.put_duplicate(b"k", value, Side::After).unwrap();
    }
    assert!(matches!(records.rename(b"k", b"to"), Err(RecordsError::Several)));
    assert_eq!(database.count(b"k").unwrap(), 3);
    assert!(records.copy(b"k", b"to").unwrap());
    assert_eq!(value(&database, "to").as_deref(), Some("a"));
    assert!(records.remove(b"k").unwrap());
    assert_eq!(database.count(b"k").unwrap(), 0);
    assert!(!records.remove(b"k").unwrap());
    assert!(records.rename(b"to", b"k").unwrap());
    assert_eq!(value(&database, "k").as_deref(), Some("a"));
}
