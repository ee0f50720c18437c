//! Copies out of a database of a real cluster, from the beginning and from a token.
//!
//! `cargo xtask cluster-test` starts the nodes and runs these tests.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use cabinet::table::{IndexDescription, IndexKind, Row};
use cabinet::{Meta, RecordRef};
use cluster::{ClusterStore, CopiedIndexes, CopiedRecord, CopyIn, CopyOut, CopyState, Name, Stage};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Connects to an empty database, by its keyspace and the options of its name.
fn make(keyspace: &str) -> (Name, std::sync::Arc<ClusterStore>) {
    let hosts = std::env::var("TYRANT_CASSANDRA").unwrap();
    let prefix = std::env::var("TYRANT_CASSANDRA_PREFIX").unwrap_or_default();
    let (keyspace, options) = keyspace.split_once('#').unwrap_or((keyspace, ""));
    let name =
        format!("cassandra://{hosts}/{prefix}{keyspace}#timeout=60000#value=200000#{options}");
    let name = Name::parse(&name).unwrap();
    let replication = std::env::var("TYRANT_CASSANDRA_REPLICATION");
    cluster::init(&name, replication.map_or(1, |number| number.parse().unwrap())).unwrap();
    let store = ClusterStore::connect(&name).unwrap();
    (name, store)
}

fn entry<'e>(key: &'e [u8], value: &'e [u8], meta: Meta) -> RecordRef<'e> {
    RecordRef { key, value, meta, version: 0 }
}

/// Copies rows with a word and a number each.
fn copy_rows(store: &ClusterStore, numbers: std::ops::Range<usize>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut copy = CopyIn::<()>::begin(store, PATIENCE, &|| ());
    let mut rows = BTreeMap::new();
    for number in numbers {
        let key = format!("row-{number}").into_bytes();
        let words = format!("w{} all\0\u{e9}", number % 7);
        let row = Row::new().with(b"words", words.as_bytes()).unwrap();
        let row = row.with(b"n\0", number.to_string().as_bytes()).unwrap().encode().unwrap();
        copy.put(entry(&key, &row, Meta::NONE)).unwrap();
        rows.insert(key, row);
    }
    copy.finish().unwrap();
    rows
}

fn index(column: &[u8], kind: IndexKind) -> IndexDescription {
    IndexDescription { column: column.to_vec(), kind }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn rows_are_copied_with_the_indexes_of_their_table() {
    let (_, store) = make("table_copies#kind=tct#buckets=2");
    let (words, numbers) = (index(b"words", IndexKind::Token), index(b"n\0", IndexKind::Decimal));
    let filled = AtomicU64::new(0);
    let set = |index: &IndexDescription| {
        filled.store(0, Ordering::Relaxed);
        let note = |rows| {
            filled.fetch_add(rows, Ordering::Relaxed);
        };
        store.set_index(index, PATIENCE, &note).unwrap();
        filled.load(Ordering::Relaxed)
    };
    assert_eq!(set(&words), 0);
    let mut expected = copy_rows(&store, 0..300);
    assert_eq!(set(&numbers), 300);
    // It is there already.
    assert_eq!(set(&numbers), 0);
    expected.extend(copy_rows(&store, 200..320));
    let found = store.indexes(PATIENCE).unwrap();
    let all = vec![words.clone(), numbers.clone()];
    assert_eq!(found, CopiedIndexes { ready: all, incomplete: Vec::new() });
    // Another kind takes the place of the first one.
    let lexical = index(b"n\0", IndexKind::Lexical);
    assert_eq!(set(&lexical), 320);
    assert_eq!(store.indexes(PATIENCE).unwrap().ready, [words, lexical]);

    let copied = pages(&store, None);
    let rows = by_key(&copied);
    assert_eq!(rows.len(), expected.len());
    assert!(expected.iter().all(|(key, row)| rows[&key[..]].value == *row));
    let mut comparison = CopyIn::<()>::begin(&store, PATIENCE, &|| ());
    for (key, row) in &expected {
        comparison.compare(entry(key, row, Meta::NONE)).unwrap();
    }
    comparison.compare(entry(b"row-0", b"", Meta::NONE)).unwrap();
    comparison.compare(entry(b"row-x", b"", Meta::NONE)).unwrap();
    comparison.finish().unwrap();
    assert_eq!(comparison.differing(), (2, Some(&b"row-0"[..])));
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn an_index_that_the_cluster_cannot_have_is_an_error_with_its_column() {
    let (_, store) = make("table_index_limit#kind=tct#buckets=1");
    let numbered = |number| index(format!("c{number}").as_bytes(), IndexKind::Lexical);
    for number in 0..64 {
        store.set_index(&numbered(number), PATIENCE, &|_| ()).unwrap();
    }
    store.set_index(&numbered(63), PATIENCE, &|_| ()).unwrap();
    let error = store.set_index(&numbered(64), PATIENCE, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("lexical index of column \"c64\""), "{error}");
    let (_, hash) = make("hash_without_indexes");
    assert!(hash.set_index(&numbered(0), PATIENCE, &|_| ()).is_err());
    assert_eq!(hash.indexes(PATIENCE).unwrap(), CopiedIndexes::default());
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn identifiers_go_on_after_those_of_the_copied_table_and_never_back() {
    const MAX: u64 = 1 << 62;
    let (_, store) = make("table_identifier_copies#kind=tct#buckets=1");
    for (raised, last) in [(0, 0), (7, 7), (5, 7), (MAX - 1, MAX - 1), (MAX, MAX)] {
        store.raise_identifiers(raised, PATIENCE).unwrap();
        assert_eq!(store.last_identifier(PATIENCE).unwrap(), last);
    }
    for beyond in [MAX + 1, u64::MAX] {
        let error = store.raise_identifiers(beyond, PATIENCE).unwrap_err().to_string();
        assert!(error.starts_with(&format!("identifier {beyond} was given out")), "{error}");
    }
    assert_eq!(store.last_identifier(PATIENCE).unwrap(), MAX);
}

fn pages(store: &ClusterStore, from: Option<i64>) -> Vec<(i64, Vec<CopiedRecord>)> {
    let mut copy = CopyOut::begin(store, from, PATIENCE).unwrap();
    std::iter::from_fn(|| copy.page().unwrap()).map(|page| (page.token, page.records)).collect()
}

fn by_key(pages: &[(i64, Vec<CopiedRecord>)]) -> BTreeMap<&[u8], &CopiedRecord> {
    let records = pages.iter().flat_map(|(_, records)| records);
    records.map(|record| (record.key.as_slice(), record)).collect()
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_copy_that_goes_on_from_a_token_has_all_records_after_it() {
    let (_, store) = make("copies");
    let mut expected = BTreeMap::new();
    let mut copy = CopyIn::begin(&store, PATIENCE, &|| ());
    for number in 0..600_u32 {
        let key = number.to_be_bytes();
        // Some values make their pages shorter.
        let value = vec![b'v'; if number % 50 == 0 { 150_000 } else { number as usize }];
        let meta = Meta { flags: number, expires_at_ms: 0 };
        copy.put(entry(&key, &value, meta)).unwrap();
        copy.mark(number);
        expected.insert(key.to_vec(), CopiedRecord { key: key.to_vec(), value, meta });
    }
    copy.finish().unwrap();
    assert_eq!(copy.reached(), Some(599));
    assert_eq!(store.count(PATIENCE).unwrap(), 600);

    let all = pages(&store, None);
    let expected: BTreeMap<&[u8], &CopiedRecord> =
        expected.iter().map(|(key, record)| (key.as_slice(), record)).collect();
    assert_eq!(by_key(&all), expected);
    assert!(all.len() > 3, "{} pages", all.len());
    for stop in 0..all.len() {
        let rest = pages(&store, Some(all[stop].0));
        let mut both = by_key(&all[..=stop]);
        both.append(&mut by_key(&rest));
        assert_eq!(both, expected);
        // The record of the token itself comes again.
        let before: usize = all[..=stop].iter().map(|(_, records)| records.len()).sum();
        let after: usize = rest.iter().map(|(_, records)| records.len()).sum();
        assert_eq!(before + after, 601);
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_comparison_counts_what_differs_and_long_records_are_refused() {
    let (_, store) = make("comparisons");
    let meta = Meta { flags: 1, expires_at_ms: u64::MAX };
    let mut copy = CopyIn::<()>::begin(&store, PATIENCE, &|| ());
    copy.put(entry(b"a", b"1", meta)).unwrap();
    copy.put(entry(b"b", b"2", Meta::NONE)).unwrap();
    copy.finish().unwrap();
    for (key, value, meta, differing) in [
        (&b"a"[..], &b"1"[..], meta, 0),
        (b"a", b"2", meta, 1),
        (b"a", b"1", Meta::NONE, 2),
        (b"b", b"2", Meta::NONE, 2),
        (b"c", b"2", Meta::NONE, 3),
        // It has expired.
        (b"d", b"2", Meta { flags: 0, expires_at_ms: 1 }, 3),
    ] {
        copy.compare(entry(key, value, meta)).unwrap();
        copy.finish().unwrap();
        assert_eq!(copy.differing(), (differing, Some(&b"a"[..]).filter(|_| differing > 0)));
    }
    for (key, value, reason) in
        [(vec![b'k'; 65_535], vec![], "key"), (vec![b'k'; 65_534], vec![0; 200_001], "value")]
    {
        let error = copy.put(entry(&key, &value, meta)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the {reason} of record")), "{error}");
    }
    copy.put(entry(&[b'k'; 65_534], &[0; 200_000], meta)).unwrap();
    copy.finish().unwrap();
}

/// Changes that come after a copy by plain writes win over it, and what came before does not.
#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_copy_in_bulk_is_changed_by_transactions_and_not_hidden_by_earlier_ones() {
    for (keyspace, is_ordered) in [("bulk", false), ("bulk_tree#kind=tcb#buckets=2", true)] {
        let (_, store) = make(keyspace);
        let keys = || (0..300_u32).map(|number| number.to_be_bytes());
        let put_all = |copy: &mut CopyIn<'_, ()>, value: &[u8]| {
            for key in keys() {
                copy.put(entry(&key, value, Meta::NONE)).unwrap();
            }
            copy.finish().unwrap();
        };
        // Records that were put and removed by transactions, a moment ago.
        put_all(&mut CopyIn::begin(&store, PATIENCE, &|| ()), b"earlier");
        store.empty(PATIENCE).unwrap();
        assert_eq!(store.count(PATIENCE).unwrap(), 0);
        // The second copy is one that goes on from an earlier place.
        for value in [&b"interrupted"[..], b"copied"] {
            put_all(&mut CopyIn::begin_in_bulk(&store, PATIENCE, &|| ()).unwrap(), value);
        }
        let copied = |value: &[u8]| {
            let mut comparison = CopyIn::<()>::begin(&store, PATIENCE, &|| ());
            for key in keys() {
                comparison.compare(entry(&key, value, Meta::NONE)).unwrap();
            }
            comparison.finish().unwrap();
            300 - comparison.differing().0
        };
        assert_eq!((copied(b"copied"), store.count(PATIENCE).unwrap()), (300, 300), "{is_ordered}");
        // Transactions on these records.
        put_all(&mut CopyIn::begin(&store, PATIENCE, &|| ()), b"changed");
        assert_eq!((copied(b"changed"), store.count(PATIENCE).unwrap()), (300, 300));
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn records_are_copied_under_their_ids_and_none_is_cut() {
    let (_, store) = make("id_copies#kind=tcf#width=8#limsiz=1k#buckets=3");
    let mut copy = CopyIn::<()>::begin(&store, PATIENCE, &|| ());
    let meta = Meta { flags: 3, expires_at_ms: u64::MAX };
    let mut expected = BTreeMap::new();
    for id in [1, 9, 10, 255, 256, 426] {
        let (key, value) = (id.to_string().into_bytes(), vec![b'v'; id % 9]);
        copy.put(entry(&key, &value, meta)).unwrap();
        expected.insert(key.clone(), CopiedRecord { key, value, meta });
    }
    copy.finish().unwrap();
    for (key, value, reason) in [
        (&b"427"[..], &b""[..], "\"427\" is no id: ids are numbers from 1 to 426"),
        (b"max", b"", "\"max\" is no id"),
        (b"2", b"123456789", "the value of record \"2\" has 9 bytes, and may have 8"),
    ] {
        let error = copy.put(entry(key, value, meta)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    copy.compare(entry(b"10", b"v", meta)).unwrap();
    copy.compare(entry(b"9", b"", meta)).unwrap();
    copy.compare(entry(b"11", b"", meta)).unwrap();
    copy.finish().unwrap();
    assert_eq!(copy.differing(), (1, Some(&b"11"[..])));
    let all = pages(&store, None);
    let expected: BTreeMap<&[u8], &CopiedRecord> =
        expected.iter().map(|(key, record)| (key.as_slice(), record)).collect();
    assert_eq!(by_key(&all), expected);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_database_is_served_only_once_the_copy_into_it_is_complete() {
    let (name, store) = make("stages");
    assert_eq!(store.copy_state(PATIENCE).unwrap(), None);
    for (stage, is_served) in [(Stage::Filling, false), (Stage::Adding, true), (Stage::Done, true)]
    {
        let state = CopyState {
            stage,
            source: "/a/b.tch".to_owned(),
            place: vec![1, 2, 3],
            copied: u64::MAX,
            expiring: 5,
        };
        store.set_copy_state(&state, PATIENCE).unwrap();
        assert_eq!(store.copy_state(PATIENCE).unwrap(), Some(state));
        let connected = ClusterStore::connect(&name);
        assert_eq!(connected.is_ok(), is_served);
        if let Err(error) = connected {
            let text = "keyspace stages has a part of the records of /a/b.tch";
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
