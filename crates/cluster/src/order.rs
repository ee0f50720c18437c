//! Order of the keys of all but hash databases: an entry for each record, in buckets.
//!
//! A bucket is a partition with the entries of some keys, in the order of their bytes. A list reads
//! all buckets from the same key on, and merges them. The rows of the records are partitions of
//! their own: transactions on one partition wait for each other, so rows within the buckets would
//! limit the changes of all their keys.

use crate::error::Result;
use crate::keys::{ID_KEY_BYTES, PARTITION_KEY_BYTES_MAX, prefixed};
use crate::merged::Merged;
use crate::name::{Kind, Name};
use crate::schema;
use crate::session::{Cluster, Failure};
use scylla::statement::prepared::PreparedStatement;
use server::KeysBegin;
use std::ops::Bound;
use std::sync::Arc;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

/// Bounds of the entries that are read from each bucket at once.
const STEP: (usize, usize) = (8, 512);

/// Buckets that one list reads at the same time.
pub(crate) const BUCKETS_AT_ONCE: usize = 64;

/// Most names of the entries of a key that are read at once.
const NAMES_MAX: i32 = 100;

/// Memory of the keys of a part, about, in bytes. Long ones beyond it are read again with the next
/// part.
const PART_BYTES: usize = 16 << 20;

/// Prepared statements on the table of entries.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    buckets: i32,
    /// Longest key, in bytes.
    key_bytes_max: usize,
    add: PreparedStatement,
    remove: PreparedStatement,
    names: PreparedStatement,
    range: PreparedStatement,
    range_after: PreparedStatement,
    /// Descending.
    range_before: PreparedStatement,
    /// Names alone.
    count: PreparedStatement,
    clear: PreparedStatement,
}

/// Keys of a part of the order.
#[derive(Debug)]
pub(crate) struct Part {
    /// The keys, each with the byte before it. Some may have no record.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Key after which the next part begins, unless this is the last one.
    pub(crate) next: Option<Vec<u8>>,
}

/// Keys that are read from a bucket, ascending or descending.
#[derive(Clone, Debug)]
enum Wanted {
    From(Bound<Vec<u8>>, Vec<u8>),
    Before(Vec<u8>),
}

impl Order {
    /// Prepares the statements.
    pub(crate) async fn prepare(cluster: &Cluster, name: &Name) -> Result<Self> {
        let table = format!("{}.key_order", schema::quoted(name));
        let one = "s = ? AND k = ? AND c = ?";
        let range =
            |from| format!("SELECT k FROM {table} WHERE s = ? AND k {from} ? AND k < ? LIMIT ?");
        let before = format!("SELECT k FROM {table} WHERE s = ? AND k < ? ORDER BY k DESC LIMIT ?");
        let add = format!("INSERT INTO {table} (s, k, c) VALUES (?, ?, ?) USING TTL ?");
        Ok(Self {
            buckets: name.buckets,
            key_bytes_max: key_bytes_max(name.kind),
            add: cluster.prepare(&add).await?,
            remove: cluster.prepare(&format!("DELETE FROM {table} WHERE {one}")).await?,
            names: cluster
                .prepare(&format!("SELECT c FROM {table} WHERE s = ? AND k = ? LIMIT ?"))
                .await?,
            range: cluster.prepare(&range(">=")).await?,
            range_after: cluster.prepare(&range(">")).await?,
            range_before: cluster.prepare(&before).await?,
            count: cluster
                .prepare(&format!("SELECT c FROM {table} WHERE s = ? AND k >= ? AND k < ? LIMIT ?"))
                .await?,
            clear: cluster.prepare_truncate(&table).await?,
        })
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> i32 {
        self.buckets
    }

    /// Returns the bucket of a key.
    pub(crate) fn bucket(&self, key: &[u8]) -> i32 {
        // The remainder is below the number of buckets.
        (xxh3_64(key) % u64::from(self.buckets.unsigned_abs().max(1))) as i32
    }

    /// Adds the entry of a key with this name.
    pub(crate) async fn add(
        &self,
        cluster: &Cluster,
        key: &[u8],
        entry: i64,
        ttl_seconds: i32,
    ) -> Result<(), Failure> {
        let values = (self.bucket(key), key, entry, ttl_seconds);
        cluster.execute(&self.add, values).await.map(drop)
    }

    /// Removes an entry. One that stays is skipped by readers.
    pub(crate) async fn remove(&self, cluster: &Cluster, key: &[u8], entry: i64) {
        if cluster.execute(&self.remove, (self.bucket(key), key, entry)).await.is_err() {
            tracing::debug!("an entry without a record stays in the order of the keys");
        }
    }

    /// Returns the names of the entries of a key, at most [`NAMES_MAX`].
    pub(crate) async fn names(&self, cluster: &Cluster, key: &[u8]) -> Result<Vec<i64>, Failure> {
        let read = cluster.execute(&self.names, (self.bucket(key), key, NAMES_MAX)).await?;
        let rows = read.into_rows_result().map_err(|_| Failure::Lost)?;
        let names = rows.rows::<(i64,)>().map_err(|_| Failure::Lost)?;
        names.map(|row| row.map(|(name,)| name).map_err(|_| Failure::Lost)).collect()
    }

    /// Returns the number of keys that one bucket has from `begin` until `end`, at most `max`. Keys
    /// are spread evenly over the buckets.
    pub(crate) async fn count_in_bucket(
        &self,
        cluster: &Cluster,
        begin: Vec<u8>,
        end: Vec<u8>,
        max: i32,
    ) -> Result<usize, Failure> {
        let read = cluster.execute(&self.count, (0, begin, end, max)).await?;
        Ok(read.into_rows_result().map_err(|_| Failure::Lost)?.rows_num())
    }

    /// Returns the keys from `begin` until `end`, or those of a first part with about `wanted` of
    /// them, ascending.
    pub(crate) async fn part(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        begin: &Bound<Vec<u8>>,
        end: &[u8],
        wanted: usize,
    ) -> Result<Part, Failure> {
        let buckets = usize::try_from(self.buckets).unwrap_or(1);
        let step = (wanted / buckets).saturating_add(STEP.0).min(STEP.1);
        self.first_part(cluster, begin, end, step).await
    }

    /// Returns the first keys from `begin` until `end`, ascending, with at most `step` of each
    /// bucket.
    pub(crate) async fn first_part(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        begin: &Bound<Vec<u8>>,
        end: &[u8],
        step: usize,
    ) -> Result<Part, Failure> {
        self.merged(cluster, &Wanted::From(begin.clone(), end.to_vec()), step).await
    }

    /// Returns the last keys before `end`, descending, with at most `step` of each bucket.
    pub(crate) async fn last_part(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        end: &[u8],
        step: usize,
    ) -> Result<Part, Failure> {
        self.merged(cluster, &Wanted::Before(end.to_vec()), step).await
    }

    /// Returns the first keys of each bucket, at most `step`, up to the one after which a bucket
    /// may have further keys.
    async fn merged(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        wanted: &Wanted,
        step: usize,
    ) -> Result<Part, Failure> {
        let mut buckets = 0..self.buckets;
        let mut reads = JoinSet::new();
        let mut merged = Merged::new(matches!(wanted, Wanted::Before(_)), PART_BYTES);
        loop {
            while reads.len() < BUCKETS_AT_ONCE
                && let Some(bucket) = buckets.next()
            {
                let (order, cluster) = (Arc::clone(self), Arc::clone(cluster));
                let wanted = wanted.clone();
                reads.spawn(async move { order.bucket_keys(&cluster, bucket, wanted, step).await });
            }
            let Some(read) = reads.join_next().await else { break };
            let found = read.map_err(|_| Failure::Lost)??;
            let is_all = found.len() < step;
            merged.add(found, is_all);
        }
        let (keys, next) = merged.finish();
        Ok(Part { keys, next })
    }

    /// Reads at most `max` keys of a bucket.
    async fn bucket_keys(
        &self,
        cluster: &Cluster,
        bucket: i32,
        wanted: Wanted,
        max: usize,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let limit = i32::try_from(max).unwrap_or(i32::MAX);
        let bytes_max = max.saturating_mul(self.key_bytes_max);
        let read = match wanted {
            Wanted::Before(end) => {
                cluster.read_part(bytes_max, &self.range_before, (bucket, end, limit)).await?
            }
            Wanted::From(begin, end) => {
                let (statement, begin) = match begin {
                    Bound::Included(begin) => (&self.range, begin),
                    Bound::Excluded(begin) => (&self.range_after, begin),
                    Bound::Unbounded => (&self.range, Vec::new()),
                };
                cluster.read_part(bytes_max, statement, (bucket, begin, end, limit)).await?
            }
        };
        let rows = read.into_rows_result().map_err(|_| Failure::Lost)?;
        let keys = rows.rows::<(Vec<u8>,)>().map_err(|_| Failure::Lost)?;
        keys.map(|row| row.map(|(key,)| key).map_err(|_| Failure::Lost)).collect()
    }

    /// Removes all entries.
    pub(crate) async fn clear(&self, cluster: &Cluster) -> Result<(), Failure> {
        cluster.execute(&self.clear, ()).await.map(drop)
    }
}

/// Returns the length of the longest key of a kind of database, in bytes.
fn key_bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::Fixed => ID_KEY_BYTES,
        Kind::Hash | Kind::Tree | Kind::Table => PARTITION_KEY_BYTES_MAX,
    }
}

/// Returns the bound of a list of the keys with a prefix. The prefix has the byte before it.
pub(crate) fn first(prefix: Vec<u8>, begin: &KeysBegin) -> Bound<Vec<u8>> {
    match begin {
        KeysBegin::At(key) if prefixed(key) > prefix => Bound::Included(prefixed(key)),
        KeysBegin::After(key) if prefixed(key) >= prefix => Bound::Excluded(prefixed(key)),
        _ => Bound::Included(prefix),
    }
}

/// Returns the first key after all keys with a prefix. The prefix has a byte below 255.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_ids_take_room_for_ids_only() {
        assert_eq!(key_bytes_max(Kind::Fixed), prefixed(&crate::keys::of_id(u64::MAX)).len());
        for kind in [Kind::Tree, Kind::Table] {
            assert_eq!(key_bytes_max(kind), PARTITION_KEY_BYTES_MAX);
        }
    }

    #[test]
    fn a_list_begins_at_its_prefix_or_after_a_key_within_it() {
        use {Bound::*, KeysBegin::*};
        for (begin, bound) in [
            (First, Included(b"\0b")),
            (At(b"a".to_vec()), Included(b"\0b")),
            (At(b"b".to_vec()), Included(b"\0b")),
            (At(b"c".to_vec()), Included(b"\0c")),
            (After(b"a".to_vec()), Included(b"\0b")),
            (After(b"b".to_vec()), Excluded(b"\0b")),
            (After(b"c".to_vec()), Excluded(b"\0c")),
        ] {
            assert_eq!(first(b"\0b".to_vec(), &begin), bound.map(|key| key.to_vec()), "{begin:?}");
        }
    }

    #[test]
    fn keys_with_a_prefix_end_before_the_next_prefix() {
        for (prefix, end) in [
            (&b"\0"[..], &b"\x01"[..]),
            (b"\0a", b"\0b"),
            (b"\0a\xff\xff", b"\0b"),
            (b"\0\xff", b"\x01"),
        ] {
            assert_eq!(after_prefix(prefix), end);
            assert!([prefix, &[255; 9]].concat().as_slice() < end);
        }
    }
}
