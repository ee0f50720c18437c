//! Tests of tables on real nodes.

use super::query::{Hit, Take};
use super::tables::{Entries, Tables};
use super::{NewRow, Rows, Stop};
use crate::records::on_nodes::make;
use crate::records::{Changed, now_ms};
use crate::session::Failure;
use crate::store::ClusterStore;
use crate::version;
use cabinet::table::outside::ValueRange;
use cabinet::table::{IndexChange, IndexKind, Query, Row, SortKind};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Rows of a walk: more than two pages of one bucket have.
const ROWS: usize = 1200;

fn key_of(number: usize) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

/// Returns a time after which no statement begins.
fn until() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Puts a row with a value in column `c`, or without the column, as if its server had this time.
async fn put(rows: &Rows, key: &[u8], value: Option<&[u8]>, time_ms: u64) {
    let row = Row::new().with(b"other", b"o").unwrap();
    let row = match value {
        Some(value) => row.with(b"c", value).unwrap(),
        None => row,
    };
    let (value, until) = (row.encode().unwrap(), until());
    // Nodes that are slow refuse some changes, or give them up.
    while Instant::now() < until {
        let read = rows.upkeep.tables.read(key).await.unwrap();
        let last = read.as_ref().map_or(0, |row| row.version);
        let version = version::next(last, time_ms);
        let new = NewRow { version, value: Some(value.clone()) };
        match rows.upkeep.change(until, key, read.as_ref(), &new).await {
            Changed::NotDone | Changed::Conflict => {}
            put => return assert_eq!(put, Changed::Done),
        }
    }
    panic!("the nodes refuse all changes");
}

/// Counts how often a walk meets each row. Changes rows that it has just met.
struct Moving<'r> {
    rows: &'r Rows,
    met: BTreeMap<Vec<u8>, usize>,
}

impl Take for Moving<'_> {
    async fn take(&mut self, hits: Vec<Hit>) -> Result<ControlFlow<()>, Stop> {
        for hit in hits {
            *self.met.entry(hit.key.clone()).or_default() += 1;
            // One moves to the end of the index, and one out of it.
            if hit.key == key_of(3) {
                put(self.rows, &hit.key, Some(b"z"), now_ms()).await;
            } else if hit.key == key_of(5) {
                put(self.rows, &hit.key, None, now_ms()).await;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_row_that_moves_ahead_of_a_search_is_met_once() {
    let store = ClusterStore::connect(&make("moving_rows", "#kind=tct#buckets=1")).unwrap();
    let rows = store.shared().rows.as_ref().unwrap();
    store.runtime().unwrap().block_on(async {
        let set = vec![(b"c".to_vec(), IndexChange::Set(IndexKind::Lexical))];
        rows.set_indexes(set).await.unwrap();
        let hour_ms = 3_600_000;
        for number in 0..ROWS {
            let value = format!("v{number:04}");
            put(rows, &key_of(number), Some(value.as_bytes()), now_ms() - hour_ms).await;
        }
        let definitions = rows.upkeep.fresh().await.unwrap();
        let query = Query::new().order_by(b"c", SortKind::StringAscending).limit(5000);
        let plan = rows.plan(&definitions, &query).await.unwrap();
        assert!(plan.is_in_order && plan.index().is_some(), "{}", plan.hint);
        let mut moving = Moving { rows, met: BTreeMap::new() };
        rows.walk(&plan, &query, &mut moving).await.unwrap();
        let several: Vec<_> = moving.met.iter().filter(|(_, count)| **count != 1).collect();
        assert!(several.is_empty(), "{several:?}");
        assert_eq!(moving.met.len(), ROWS);
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn entries_of_indexes_that_are_gone_are_swept() {
    let store = ClusterStore::connect(&make("swept_entries", "#kind=tct#buckets=2")).unwrap();
    let rows = store.shared().rows.as_ref().unwrap();
    store.runtime().unwrap().block_on(async {
        let tables = &rows.upkeep.tables;
        for change in [IndexChange::Set(IndexKind::Lexical), IndexChange::Remove] {
            rows.set_indexes(vec![(b"gone".to_vec(), change)]).await.unwrap();
        }
        let set = vec![(b"c".to_vec(), IndexChange::Set(IndexKind::Lexical))];
        rows.set_indexes(set).await.unwrap();
        put(rows, b"row", Some(b"v"), now_ms()).await;
        let definitions = rows.upkeep.fresh().await.unwrap();
        let [present] = &definitions.indexes[..] else { panic!("{definitions:?}") };
        let (gone, future) = (1, definitions.number + 1);
        assert!(present.id > gone);
        for index in [gone, future] {
            for number in 0..20 {
                let values = vec![b"value".to_vec()];
                let entries = [Entries { index, name: 1, values }];
                tables.add_entries(until(), &key_of(number), &entries).await.unwrap();
            }
        }
        // Both buckets have some.
        assert_eq!(rows.sweep().await.unwrap(), 2);
        assert_eq!(rows.sweep().await.unwrap(), 0);
        for (index, count) in [(gone, 0), (present.id, 1), (future, 20)] {
            let part = tables.entries(index, &ValueRange::ALL, false, None, 100).await.unwrap();
            assert_eq!(part.entries.len(), count, "{index}");
        }
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn reads_of_rows_wait_for_memory() {
    let name = make("memory_of_rows", "#kind=tct#buckets=1");
    let name = crate::Name { timeout: Duration::from_secs(4), ..name };
    let store = ClusterStore::connect(&name).unwrap();
    let shared = store.shared();
    let tables = &shared.rows.as_ref().unwrap().upkeep.tables;
    store.runtime().unwrap().block_on(async {
        let held = shared.cluster.hold_reads().await;
        assert_eq!(tables.read(b"k").await, Err(Failure::NotDone));
        drop(held);
        assert_eq!(tables.read(b"k").await, Ok(None));
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn reads_of_indexes_wait_for_memory_and_counts_need_none() {
    let name = make("memory_of_indexes", "#kind=tct#buckets=1");
    let store = ClusterStore::connect(&name).unwrap();
    let shared = store.shared();
    let tables = &shared.rows.as_ref().unwrap().upkeep.tables;
    let all = ValueRange::ALL;
    store.runtime().unwrap().block_on(async {
        let entries = [Entries { index: 7, name: 1, values: vec![b"value".to_vec()] }];
        tables.add_entries(until(), b"k", &entries).await.unwrap();
        let held = shared.cluster.hold_parts().await;
        let read = tables.entries(7, &all, false, None, 100);
        assert!(timeout(Duration::from_secs(1), read).await.is_err());
        for max in [1, 2] {
            assert_eq!(tables.count_in_bucket(7, &[ValueRange::ALL], max).await, Ok(1));
        }
        drop(held);
        let part = tables.entries(7, &all, false, None, 100).await.unwrap();
        assert_eq!(part.entries.len(), 1);
    });
}
