//! Tests of statements on real nodes.

use super::*;
use crate::keys::KEY_BYTES_MAX;
use std::collections::HashSet;

/// Makes an empty database.
fn make(keyspace: &str, options: &str) -> Name {
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
