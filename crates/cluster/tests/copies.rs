//! Copies out of a database of a real cluster, from the beginning and from a token.
//!
//! `cargo xtask cluster-test` starts the nodes and runs these tests.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use cabinet::{Entry, Meta};
use cluster::{ClusterStore, CopiedRecord, CopyIn, CopyOut, CopyState, Name, Stage};
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Connects to an empty database.
fn make(keyspace: &str) -> (Name, std::sync::Arc<ClusterStore>) {
    let hosts = std::env::var("TYRANT_CASSANDRA").unwrap();
    let name = format!("cassandra://{hosts}/{keyspace}#timeout=60000#value=200000");
    let name = Name::parse(&name).unwrap();
    let replication = std::env::var("TYRANT_CASSANDRA_REPLICATION");
    cluster::init(&name, replication.map_or(1, |number| number.parse().unwrap())).unwrap();
    let store = ClusterStore::connect(&name).unwrap();
    (name, store)
}

fn entry<'e>(key: &'e [u8], value: &'e [u8], meta: Meta) -> Entry<'e> {
    Entry { key, value, meta, version: 0 }
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
