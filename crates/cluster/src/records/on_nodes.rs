//! Tests of statements on real nodes.

use super::*;
use crate::copy::CopyOut;
use crate::keys::KEY_BYTES_MAX;
use crate::store::ClusterStore;
use scylla::response::PagingState;
use std::collections::HashSet;
use std::time::Duration;

/// Makes an empty database.
pub(crate) fn make(keyspace: &str, options: &str) -> Name {
    let hosts = std::env::var("TYRANT_CASSANDRA").unwrap();
    let prefix = std::env::var("TYRANT_CASSANDRA_PREFIX").unwrap_or_default();
    let name = format!("cassandra://{hosts}/{prefix}{keyspace}#timeout=60000{options}");
    let name = Name::parse(&name).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::connect(&name).await.unwrap();
        for statement in schema::statements(&name, 1) {
            cluster.define(&statement).await.unwrap();
        }
    });
    name
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_slow_removal_leaves_the_entry_of_a_record_that_was_put_meanwhile() {
    let name = make("slow_removal", "#kind=tcb#buckets=1");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Arc::new(Cluster::connect(&name).await.unwrap());
        let records = Records::prepare(&cluster, &name).await.unwrap();
        let order = records.order().unwrap();
        let until = Instant::now() + name.timeout;
        let (key, record) = (b"k", || new_record(Arc::new(b"v".to_vec()), Meta::NONE, 0));
        let put = records.change(&cluster, until, key, Some(None), Some(&record())).await;
        assert_eq!(put, Changed::Done);
        let row = records.get(&cluster, key).await.unwrap().unwrap();

        // The first half of a removal, all of a put, and the second half of the removal.
        let read = Some(Some(&row));
        let removed = records.change_row(&cluster, until, key, read, None, None).await;
        assert_eq!(removed, Changed::Done);
        let put = records.change(&cluster, until, key, Some(None), Some(&record())).await;
        assert_eq!(put, Changed::Done);
        order.remove(&cluster, &prefixed(key), row.entry.unwrap()).await;

        let part = order.part(&cluster, &Bound::Included(vec![0]), &[1], 10).await.unwrap();
        assert_eq!(part.keys, [prefixed(key)]);

        // A list goes on after the longest key.
        let last = Bound::Excluded(prefixed(&vec![b'k'; KEY_BYTES_MAX]));
        let part = order.part(&cluster, &last, &[1], 10).await.unwrap();
        assert!(part.keys.is_empty());
        let own = Bound::Excluded(prefixed(key));
        assert!(order.part(&cluster, &own, &[1], 10).await.unwrap().keys.is_empty());
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn two_plain_writes_of_one_microsecond_do_not_mix() {
    let name = make("one_microsecond", "#mode=plain");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Arc::new(Cluster::connect(&name).await.unwrap());
        let mut records = Records::prepare(&cluster, &name).await.unwrap();
        let until = Instant::now() + name.timeout;
        let later = now_ms() + 1_000_000;
        // Cassandra keeps the greater of two cells.
        let written = [("aaa", 7, 0), ("b", 0, later), ("aab", 9, later)];
        let written = written.map(|(value, flags, expires_at_ms)| {
            let value = Arc::new(value.as_bytes().to_vec());
            new_record(value, Meta { flags, expires_at_ms }, 0)
        });
        for (number, order) in [[0, 1, 2], [2, 1, 0], [1, 2, 0]].iter().enumerate() {
            records.put_any.set_timestamp(Some(1_000_000 + number as i64));
            for place in order {
                let record = Some(&written[*place]);
                let put = records.change(&cluster, until, b"k", None, record).await;
                assert_eq!(put, Changed::Done);
            }
            let found = records.get(&cluster, b"k").await.unwrap().unwrap().record.unwrap();
            assert!(written.contains(&found), "{found:?}");
        }
    });
}

/// Returns keys that have the same token: the first halves differ, and the second ones make up for
/// it.
fn keys_of_one_token(count: u8) -> Vec<Vec<u8>> {
    const FIRST: u64 = 0x87c3_7b91_1142_53d5;
    const SECOND: u64 = 0x4cf5_ad43_2745_937f;
    // The inverses of odd numbers modulo 2^64, by Newton's method.
    let inverse = |odd: u64| {
        (0..6).fold(odd, |inverse: u64, _| {
            inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)))
        })
    };
    // MurmurHash3 mixes each half of a block so.
    let mix = |half: u64, is_first: bool| match is_first {
        true => half.wrapping_mul(FIRST).rotate_left(31).wrapping_mul(SECOND),
        false => half.wrapping_mul(SECOND).rotate_left(33).wrapping_mul(FIRST),
    };
    let unmix = |mixed: u64, is_first: bool| match is_first {
        true => mixed.wrapping_mul(inverse(SECOND)).rotate_right(31).wrapping_mul(inverse(FIRST)),
        false => mixed.wrapping_mul(inverse(FIRST)).rotate_right(33).wrapping_mul(inverse(SECOND)),
    };
    let after_block = |(mut one, mut two): (u64, u64), mixed: (u64, u64)| {
        one = (one ^ mixed.0).rotate_left(27).wrapping_add(two);
        one = one.wrapping_mul(5).wrapping_add(0x52dc_e729);
        two = (two ^ mixed.1).rotate_left(31).wrapping_add(one);
        (one, two.wrapping_mul(5).wrapping_add(0x3849_5ab5))
    };
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let state = |block: &[u8]| {
        after_block((0, 0), (mix(half(&block[..8]), true), mix(half(&block[8..]), false)))
    };
    let first = |number: u8| {
        let mut block = [b'k'; 16];
        // The byte before each key in the cluster.
        (block[0], block[1]) = (0, number);
        block
    };
    let before = state(&first(0));
    // This state after the second block is aimed at.
    let wanted = after_block(before, (mix(1, true), mix(2, false)));
    (0..count)
        .map(|number| {
            let block = first(number);
            let (one, two) = state(&block);
            let undone = wanted.0.wrapping_sub(0x52dc_e729).wrapping_mul(inverse(5));
            let low = undone.wrapping_sub(two).rotate_right(27) ^ one;
            let undone = wanted.1.wrapping_sub(0x3849_5ab5).wrapping_mul(inverse(5));
            let high = undone.wrapping_sub(wanted.0).rotate_right(31) ^ two;
            let second = [unmix(low, true).to_le_bytes(), unmix(high, false).to_le_bytes()];
            [&block[1..], second.as_flattened()].concat()
        })
        .collect()
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_scan_from_a_key_on_misses_none_with_the_same_token() {
    let name = make("same_token", "");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Arc::new(Cluster::connect(&name).await.unwrap());
        let records = Records::prepare(&cluster, &name).await.unwrap();
        let until = Instant::now() + name.timeout;
        let same = keys_of_one_token(5);
        let token = |key: &[u8]| records.get.calculate_token(&(prefixed(key),)).unwrap().unwrap();
        let tokens: HashSet<i64> = same.iter().map(|key| token(key).value()).collect();
        assert_eq!(tokens.len(), 1);
        let others = (0..20).map(|number: u8| vec![b'x', number]);
        let mut all: Vec<Vec<u8>> = same.iter().cloned().chain(others).collect();
        for key in &all {
            let record = new_record(Arc::default(), Meta::NONE, 0);
            let put = records.change(&cluster, until, key, Some(None), Some(&record)).await;
            assert_eq!(put, Changed::Done);
        }
        all.sort_unstable();
        for page in [1, 2, 3, 100] {
            let mut found: Vec<Vec<u8>> = Vec::new();
            loop {
                let before = found.len();
                let begin = found.last().map(|last| Bound::Excluded(last.clone()));
                let visit = |scanned: Scanned<'_>| {
                    if let Scanned::Key(key) = scanned {
                        found.push(key.to_vec());
                    }
                    match found.len() == before + page {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                };
                records.scan(&cluster, begin, Some(page), visit).await.unwrap();
                if found.len() < before + page {
                    break;
                }
            }
            for key in &same {
                let begin = Some(Bound::Included(key.clone()));
                let mut first = None;
                let visit = |scanned: Scanned<'_>| match scanned {
                    Scanned::Page => ControlFlow::Continue(()),
                    Scanned::Key(key) => {
                        first = Some(key.to_vec());
                        ControlFlow::Break(())
                    }
                };
                records.scan(&cluster, begin, Some(page), visit).await.unwrap();
                assert_eq!(first.as_ref(), Some(key));
            }
            found.sort_unstable();
            assert_eq!(found, all, "{page}");
        }
    });
}

/// Connects to an empty database.
async fn connect(name: &Name) -> (Arc<Cluster>, Records) {
    let cluster = Arc::new(Cluster::connect(name).await.unwrap());
    let records = Records::prepare(&cluster, name).await.unwrap();
    (cluster, records)
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_record_whose_expiry_moves_keeps_its_entry() {
    let name = make("moved_expiry", "#kind=tcb#buckets=1");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (cluster, records) = connect(&name).await;
        let until = Instant::now() + name.timeout;
        let mut entries = Vec::new();
        // In an hour, a minute later, another minute later, and never.
        for expires_at_ms in [60, 61, 62, 0].map(|minutes| match minutes {
            0 => 0,
            minutes => now_ms() + minutes * 60_000,
        }) {
            let row = records.get(&cluster, b"k").await.unwrap();
            let meta = Meta { flags: 0, expires_at_ms };
            let record = new_record(Arc::new(b"v".to_vec()), meta, 0);
            let read = Some(row.as_ref());
            let put = records.change(&cluster, until, b"k", read, Some(&record)).await;
            assert_eq!(put, Changed::Done);
            entries.push(records.get(&cluster, b"k").await.unwrap().unwrap().entry.unwrap());
        }
        assert_eq!(entries[..2], entries[1..3]);
        assert_ne!(entries[2], entries[3]);
        let order = records.order().unwrap();
        let part = order.part(&cluster, &Bound::Included(vec![0]), &[1], 10).await.unwrap();
        assert_eq!(part.keys, [prefixed(b"k")]);
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn changes_that_were_decided_before_entries_are_removed_are_refused() {
    let name = make("forestalled", "#kind=tcb#buckets=3");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (cluster, records) = connect(&name).await;
        let until = Instant::now() + Duration::from_secs(60);
        let record = |expires_at_ms, last| {
            new_record(Arc::new(b"v".to_vec()), Meta { flags: 0, expires_at_ms }, last)
        };
        let change = async |read: Option<&Present>, record: &FoundRecord| {
            records.change(&cluster, until, b"k", Some(read), Some(record)).await
        };
        let get = async || records.get(&cluster, b"k").await.unwrap();

        assert!(get().await.is_none());
        assert!(records.forestall(&cluster, b"k").await.unwrap());
        assert_eq!(change(None, &record(0, 0)).await, Changed::Conflict);
        let row = get().await.unwrap();
        assert!(row.record.is_none());
        assert_eq!(change(Some(&row), &record(0, row.version)).await, Changed::Done);
        assert!(!records.forestall(&cluster, b"k").await.unwrap(), "there is a record");

        let row = get().await.unwrap();
        assert_eq!(change(Some(&row), &record(1, row.version)).await, Changed::Done);
        let expired = get().await.unwrap();
        assert!(expired.record.is_none());
        assert!(records.forestall(&cluster, b"k").await.unwrap());
        let late = record(0, expired.version);
        assert_eq!(change(Some(&expired), &late).await, Changed::Conflict);
    });
}

/// Records that have not expired.
const LIVE: usize = 20;

/// Records of each node that have expired. A node ends a read that meets 100,000 cells of them,
/// and each has three.
const EXPIRED_OF_NODE: usize = 40_000;

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn scans_go_on_over_very_many_expired_records() {
    let name = make("expired_records", "#mode=plain");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (cluster, records) = connect(&name).await;
        let records = Arc::new(records);
        let until = Instant::now() + Duration::from_secs(600);
        let (live, expired) = (LIVE, EXPIRED_OF_NODE * cluster.status().nodes);
        let mut puts = tokio::task::JoinSet::new();
        for number in 0..expired + live {
            while puts.len() >= 200 {
                assert_eq!(puts.join_next().await.unwrap().unwrap(), Changed::Done);
            }
            let (cluster, records) = (Arc::clone(&cluster), Arc::clone(&records));
            puts.spawn(async move {
                let expires_at_ms = if number < expired { 1 } else { 0 };
                let meta = Meta { flags: 0, expires_at_ms };
                let record = new_record(Arc::default(), meta, 0);
                let key = number.to_string().into_bytes();
                // On a busy machine a node may be late. The put has the same effect again.
                loop {
                    let put = records.change(&cluster, until, &key, None, Some(&record)).await;
                    if put != Changed::Unknown || Instant::now() >= until {
                        return put;
                    }
                }
            });
        }
        while let Some(put) = puts.join_next().await {
            assert_eq!(put.unwrap(), Changed::Done);
        }
        // Their cells go a minute after them.
        tokio::time::sleep(Duration::from_secs(TTL_SLACK_SECONDS + 2)).await;
        let all = "SELECT k, e FROM";
        let table = format!("{}.records", schema::quoted(&name));
        let whole = cluster.prepare_scan(&format!("{all} {table}")).await.unwrap();
        let failed = cluster.try_page(&whole, (), PagingState::start()).await.unwrap_err();
        assert!(failed.is_ended_read);

        let mut keys = HashSet::new();
        let visit = |scanned: Scanned<'_>| {
            if let Scanned::Key(key) = scanned {
                assert!(keys.insert(key.to_vec()));
            }
            ControlFlow::Continue(())
        };
        records.scan(&cluster, None, None, visit).await.unwrap();
        assert_eq!(keys.len(), live);
    });

    let store = ClusterStore::connect(&name).unwrap();
    let mut copy = CopyOut::begin(&store, None, Duration::from_secs(5)).unwrap();
    let mut keys = HashSet::new();
    while let Some(page) = copy.page().unwrap() {
        for record in page.records {
            assert!(keys.insert(record.key));
        }
    }
    assert_eq!(keys.len(), LIVE);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn lists_do_not_wait_for_the_memory_of_reads() {
    let name = make("memory_of_lists", "#kind=tcb#buckets=3");
    // A list waits for memory for twelve times as long.
    let name = Name { timeout: Duration::from_secs(4), ..name };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (cluster, records) = connect(&name).await;
        let until = Instant::now() + name.timeout;
        let record = new_record(Arc::default(), Meta::NONE, 0);
        let put = records.change(&cluster, until, b"k", Some(None), Some(&record)).await;
        assert_eq!(put, Changed::Done);
        let _held = cluster.hold_reads().await;
        let order = records.order().unwrap();
        let part = order.part(&cluster, &Bound::Included(vec![0]), &[1], 10).await.unwrap();
        assert_eq!(part.keys, [prefixed(b"k")]);
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn servers_know_the_longest_value_of_each_other() {
    let name = make("value_limit", "#value=4096");
    let with = |value_bytes_max| Name { value_bytes_max, ..name.clone() };
    let connect = |value| ClusterStore::connect_to_copy(&with(value)).unwrap();
    let known = |store: &ClusterStore| store.shared().cluster.value_bytes_max();
    let early = connect(2048);
    assert_eq!(known(&early), 4096);
    assert_eq!([connect(8192), connect(1024)].map(|store| known(&store)), [8192, 8192]);
    // A server that was there before learns it with the first value.
    let runtime = early.runtime().unwrap();
    let (cluster, records) = (&early.shared().cluster, &early.shared().records);
    runtime.block_on(async {
        let record = new_record(Arc::new(vec![b'v'; 5000]), Meta::NONE, 0);
        let until = Instant::now() + name.timeout;
        let put = records.change(cluster, until, b"k", None, Some(&record)).await;
        assert_eq!(put, Changed::Done);
        assert!(records.get(cluster, b"k").await.unwrap().is_some());
    });
    assert_eq!(known(&early), 5000);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_put_of_a_hash_database_removes_no_cell() {
    let name = make("no_removed_cells", "");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (cluster, records) = connect(&name).await;
        let until = Instant::now() + name.timeout;
        for _ in 0..2 {
            let row = records.get(&cluster, b"k").await.unwrap();
            let record = new_record(Arc::default(), Meta::NONE, 0);
            for read in [None, Some(row.as_ref())] {
                let put = records.change(&cluster, until, b"k", read, Some(&record)).await;
                assert!(matches!(put, Changed::Done | Changed::Conflict), "{put:?}");
            }
        }
        let table = format!("{}.records", schema::quoted(&name));
        let mut select = cluster.prepare(&format!("SELECT v, c FROM {table}")).await.unwrap();
        select.set_tracing(true);
        let read = cluster.trace(&select, "tombstone").await;
        assert!(read.iter().all(|event| event.contains(" 0 tombstone cells")), "{read:?}");
    });
}
