//! The tables of a table database in the cluster.
//!
//! `records` has further columns in it: `d`, the number of the definitions, and `n`, the names of
//! entries; `v` is the row as `cabinet` encodes it. A row that was removed has the expiry 1.
//! `index_entries` has the entries of all indexes:
//!
//! | column | content |
//! | --- | --- |
//! | `i` | the index |
//! | `s` | bucket of the key, as in the order of the keys |
//! | `val` | the value, encoded so that bytes are in the order of the index |
//! | `k` | the key |
//! | `ver` | the name of the entry |
//!
//! `definitions` has one row with the indexes. Row 0 of `identifiers` has the number up to which
//! identifiers are reserved, and row 1 the last one that a copy has brought.

use super::definitions::{Definition, Definitions, INDEXES_MAX};
use super::tables::{Entries, NAME_BYTES, Names, StoredRow, Tables};
use crate::error::Result;
use crate::keys::{PARTITION_KEY_BYTES_MAX, prefixed};
use crate::merged::{Item, Merged};
use crate::name::Name;
use crate::order::{BUCKETS_AT_ONCE, Order, Part};
use crate::records::{Changed, is_applied};
use crate::schema;
use crate::session::{Cluster, Failure};
use crate::token_pages::{TokenPage, TokenPages};
use cabinet::limits::INDEXED_VALUE_BYTES_MAX;
use cabinet::table::outside::ValueRange;
use cabinet::table::{IndexChange, IndexKind};
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use std::ops::Bound;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Time for which a removed row keeps its version, in seconds.
const REMOVED_SECONDS: i32 = 24 * 60 * 60;

/// Expiry of rows, in milliseconds: of those that are there, and of those that were removed.
const THERE: i64 = 0;
const REMOVED: i64 = 1;

/// Entries that are written in one statement.
const BATCH_ENTRIES: usize = 256;

/// Bounds of the entries that are read from each bucket at once.
const STEP: (usize, usize) = (8, 512);

/// Most entries that are read from all buckets at once, if these are few.
const PART_ENTRIES: usize = 8192;

/// Memory of the entries of a part, about, in bytes. Long ones beyond it are read again with the
/// next part.
const PART_BYTES: usize = 16 << 20;

/// Longest entry, in bytes, about: a value is cut, and its encoding has two bytes for some.
const ENTRY_BYTES_MAX: usize = 2 * INDEXED_VALUE_BYTES_MAX + PARTITION_KEY_BYTES_MAX;

/// Names of the entries of a row, at most, in bytes.
const NAMES_BYTES_MAX: usize = INDEXES_MAX * 2 * NAME_BYTES;

/// Batches of entries of one row that are written at the same time.
const BATCHES_AT_ONCE: usize = 8;

/// Keys of one part of the order of the keys.
const KEYS_AT_ONCE: usize = 256;

/// Columns of a row.
type Columns = (Vec<u8>, i64, i64, Option<i64>, Option<i32>, Option<Vec<u8>>);

/// Values of an entry: index, bucket, value, key, name.
type EntryValues = (i32, i32, Vec<u8>, Vec<u8>, i64);

/// Columns of the definitions.
type ListedIndex = (i32, Vec<u8>, String, bool);

/// An entry of an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) value: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) name: i64,
}

impl Item for Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.value.len() + self.key.len()
    }
}

/// Entries of a part of an index, in their order or in reverse.
#[derive(Debug)]
pub(crate) struct EntryPart {
    pub(crate) entries: Vec<Entry>,
    /// Entry after which the next part begins, unless this is the last one.
    pub(crate) next: Option<Entry>,
}

/// Statement on entries, by its bounds.
#[derive(Clone, Debug)]
struct Ranges {
    /// From a value on, or after an entry; to a value or to the last one.
    ascending: [PreparedStatement; 4],
    /// From a value on, in reverse: from the last one, from before a value, or before an entry.
    descending: [PreparedStatement; 3],
    /// Names alone, from a value on: to a value or to the last one.
    counting: [PreparedStatement; 2],
}

/// Tables of a table database.
#[derive(Debug)]
pub(crate) struct ClusterTables {
    pub(crate) cluster: Arc<Cluster>,
    order: Arc<Order>,
    get: PreparedStatement,
    get_serially: PreparedStatement,
    swap: PreparedStatement,
    add_entry: PreparedStatement,
    remove_entry: PreparedStatement,
    remove_index: PreparedStatement,
    partitions: PreparedStatement,
    ranges: Arc<Ranges>,
    definitions: PreparedStatement,
    swap_definitions: PreparedStatement,
    reserved: PreparedStatement,
    reserve: PreparedStatement,
    copied: PreparedStatement,
    set_copied: PreparedStatement,
    clear: PreparedStatement,
}

impl ClusterTables {
    /// Prepares the statements.
    pub(crate) async fn prepare(
        cluster: &Arc<Cluster>,
        order: &Arc<Order>,
        name: &Name,
    ) -> Result<Self> {
        let table = |table: &str| format!("{}.{table}", schema::quoted(name));
        let [records, entries] = ["records", "index_entries"].map(table);
        let select = format!("SELECT v, ver, e, c, d, n FROM {records} WHERE k = ?");
        let mut get_serially = cluster.prepare(&select).await?;
        get_serially.set_consistency(Consistency::Serial);
        let swap = format!(
            "UPDATE {records} USING TTL ? SET v = ?, ver = ?, e = ?, c = ?, d = ?, n = ? \
             WHERE k = ? IF ver = ? AND d = ?"
        );
        let select_range = |columns: &str, lower: &str, upper: &str, order: &str| {
            format!(
                "SELECT {columns} FROM {entries} \
                 WHERE i = ? AND s = ?{lower}{upper}{order} LIMIT ?"
            )
        };
        let range = |lower: &str, upper: &str, order: &str| {
            select_range("val, k, ver", lower, upper, order)
        };
        let ([from, after], [to, all]) =
            ([" AND (val) >= (?)", " AND (val, k, ver) > (?, ?, ?)"], [" AND (val) < (?)", ""]);
        let (before, reverse) =
            (" AND (val, k, ver) < (?, ?, ?)", " ORDER BY val DESC, k DESC, ver DESC");
        let ranges = Ranges {
            ascending: [
                cluster.prepare(&range(from, to, "")).await?,
                cluster.prepare(&range(from, all, "")).await?,
                cluster.prepare(&range(after, to, "")).await?,
                cluster.prepare(&range(after, all, "")).await?,
            ],
            descending: [
                cluster.prepare(&range(from, all, reverse)).await?,
                cluster.prepare(&range(from, to, reverse)).await?,
                cluster.prepare(&range(from, before, reverse)).await?,
            ],
            counting: [
                cluster.prepare(&select_range("ver", from, to, "")).await?,
                cluster.prepare(&select_range("ver", from, all, "")).await?,
            ],
        };
        let one = "i = ? AND s = ?";
        let entry = format!("{one} AND val = ? AND k = ? AND ver = ?");
        let [definitions, identifiers] = ["definitions", "identifiers"].map(table);
        Ok(Self {
            cluster: Arc::clone(cluster),
            order: Arc::clone(order),
            get: cluster.prepare(&select).await?,
            get_serially,
            swap: cluster.prepare_once(&swap).await?,
            add_entry: cluster
                .prepare(&format!(
                    "INSERT INTO {entries} (i, s, val, k, ver) VALUES (?, ?, ?, ?, ?)"
                ))
                .await?,
            remove_entry: cluster.prepare(&format!("DELETE FROM {entries} WHERE {entry}")).await?,
            remove_index: cluster.prepare(&format!("DELETE FROM {entries} WHERE {one}")).await?,
            partitions: cluster
                .prepare_scan(&format!(
                    "SELECT DISTINCT i, s, token(i, s) FROM {entries} \
                     WHERE token(i, s) >= ? AND token(i, s) <= ?"
                ))
                .await?,
            ranges: Arc::new(ranges),
            definitions: cluster
                .prepare(&format!("SELECT number, indexes FROM {definitions} WHERE id = 0"))
                .await?,
            swap_definitions: cluster
                .prepare_once(&format!(
                    "UPDATE {definitions} SET number = ?, indexes = ? WHERE id = 0 IF number = ?"
                ))
                .await?,
            reserved: cluster
                .prepare(&format!("SELECT reserved FROM {identifiers} WHERE id = 0"))
                .await?,
            reserve: cluster
                .prepare_once(&format!(
                    "UPDATE {identifiers} SET reserved = ? WHERE id = 0 IF reserved = ?"
                ))
                .await?,
            copied: cluster
                .prepare(&format!("SELECT reserved FROM {identifiers} WHERE id = 1"))
                .await?,
            set_copied: cluster
                .prepare(&format!(
                    "INSERT INTO {identifiers} (id, reserved) VALUES (1, ?) USING TIMESTAMP ?"
                ))
                .await?,
            clear: cluster.prepare_truncate(&entries).await?,
        })
    }

    /// Reads a part of a range of an index. `last` is the last entry of the part before.
    pub(crate) async fn entries(
        &self,
        index: i32,
        range: &ValueRange,
        is_descending: bool,
        last: Option<&Entry>,
        wanted: usize,
    ) -> Result<EntryPart, Failure> {
        let mut buckets = 0..self.order.buckets();
        let count = self.buckets();
        let max = (PART_ENTRIES / count).clamp(STEP.0, STEP.1);
        let step = (wanted / count).saturating_add(STEP.0).min(max);
        let mut reads = JoinSet::new();
        let mut merged = Merged::new(is_descending, PART_BYTES);
        loop {
            while reads.len() < BUCKETS_AT_ONCE
                && let Some(bucket) = buckets.next()
            {
                let (cluster, ranges) = (Arc::clone(&self.cluster), Arc::clone(&self.ranges));
                let (range, last) = (range.clone(), last.cloned());
                reads.spawn(async move {
                    let bounds = Bounds { index, bucket, range: &range, limit: step };
                    bounds.read(&cluster, &ranges, is_descending, last.as_ref()).await
                });
            }
            let Some(read) = reads.join_next().await else { break };
            let found = read.map_err(|_| Failure::Lost)??;
            let is_all = found.len() < step;
            merged.add(found, is_all);
        }
        let (entries, next) = merged.finish();
        Ok(EntryPart { entries, next })
    }

    /// Returns the number of entries that one bucket has in some ranges, at most `max`. Keys are
    /// spread evenly over the buckets.
    pub(crate) async fn count_in_bucket(
        &self,
        index: i32,
        ranges: &[ValueRange],
        max: usize,
    ) -> Result<usize, Failure> {
        let mut count = 0;
        for ValueRange { start, end } in ranges {
            let (limit, [ended, endless]) = (limit(max - count), &self.ranges.counting);
            let read = match end {
                Some(end) => self.cluster.execute(ended, (index, 0, start, end, limit)).await?,
                None => self.cluster.execute(endless, (index, 0, start, limit)).await?,
            };
            count += read.into_rows_result().map_err(|_| Failure::Lost)?.rows_num();
            if count >= max {
                break;
            }
        }
        Ok(count)
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> usize {
        self.order.buckets().unsigned_abs() as usize
    }

    /// Returns the order of the keys.
    pub(crate) fn order(&self) -> &Arc<Order> {
        &self.order
    }

    /// Reserves identifiers. Returns the last one that was reserved before, or `None` if another
    /// server came between. If the outcome is unknown, they are lost.
    pub(crate) async fn reserve(&self, count: i64) -> Result<Option<i64>, Failure> {
        let before = self.reserved().await?;
        let next = before.checked_add(count).ok_or(Failure::NotDone)?;
        Ok(self.swap_reserved(before, next).await?.then_some(before))
    }

    /// Returns the last identifier that is reserved.
    pub(crate) async fn reserved(&self) -> Result<i64, Failure> {
        let read = self.cluster.execute(&self.reserved, ()).await?;
        let rows = read.into_rows_result().map_err(|_| Failure::Lost)?;
        Ok(rows.first_row::<(i64,)>().map_err(|_| Failure::Lost)?.0)
    }

    /// Returns the last identifier that a copy has brought, or 0.
    pub(crate) async fn copied_identifier(&self) -> Result<i64, Failure> {
        let read = self.cluster.execute(&self.copied, ()).await?;
        let rows = read.into_rows_result().map_err(|_| Failure::Lost)?;
        let row = rows.maybe_first_row::<(Option<i64>,)>().map_err(|_| Failure::Lost)?;
        Ok(row.and_then(|(last,)| last).unwrap_or(0))
    }

    /// Records the last identifier that a copy has brought, unless an earlier one has brought
    /// later ones.
    pub(crate) async fn set_copied_identifier(&self, last: i64) -> Result<(), Failure> {
        // The time of the write is the identifier, so the greatest one wins.
        self.cluster.execute(&self.set_copied, (last, last)).await.map(drop)
    }

    /// Replaces the last identifier that is reserved, if it is `old`. Returns whether it was.
    pub(crate) async fn swap_reserved(&self, old: i64, new: i64) -> Result<bool, Failure> {
        is_applied(self.cluster.execute(&self.reserve, (new, old)).await?).ok_or(Failure::Lost)
    }

    /// Removes the entries of indexes that are there no more, given definitions that were read
    /// before. Returns the number of partitions that had some.
    ///
    /// No index has the number of another one, so those that are not in the definitions are gone
    /// for good, if their number is not above that of the definitions.
    pub(crate) async fn sweep(&self, definitions: &Definitions) -> Result<usize, Failure> {
        let mut pages = TokenPages::from(None);
        let mut count = 0;
        loop {
            let page = match pages.next(&self.cluster, &self.partitions).await? {
                TokenPage::Rows(page) => *page,
                TokenPage::Narrower => continue,
                TokenPage::End => return Ok(count),
            };
            let page = page.into_rows_result().map_err(|_| Failure::Lost)?;
            for row in page.rows::<(i32, i32, i64)>().map_err(|_| Failure::Lost)? {
                let (index, bucket, token) = row.map_err(|_| Failure::Lost)?;
                pages.reach(token);
                if definitions.is_gone(index) {
                    self.cluster.execute(&self.remove_index, (index, bucket)).await?;
                    count += 1;
                }
            }
        }
    }

    fn stored(&self, result: QueryResult) -> Result<Option<StoredRow>, Failure> {
        let rows = result.into_rows_result().map_err(|_| Failure::Lost)?;
        let row = rows.maybe_first_row::<Columns>().map_err(|_| Failure::Lost)?;
        Ok(row.map(|(value, version, expiry, entry, number, names)| {
            self.cluster.note_value(value.len());
            StoredRow {
                version,
                number: number.unwrap_or(0),
                names: Names::decode(&names.unwrap_or_default()),
                entry,
                value: is_there(expiry).then_some(value),
            }
        }))
    }

    /// Removes all entries.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        self.cluster.execute(&self.clear, ()).await.map(drop)
    }

    /// Returns the values of statements that write entries of a row, some in each.
    fn batches(&self, key: &[u8], entries: &[Entries]) -> Vec<Vec<EntryValues>> {
        let bucket = self.order.bucket(&prefixed(key));
        let mut batches = Vec::new();
        for Entries { index, name, values } in entries {
            for values in values.chunks(BATCH_ENTRIES) {
                let each = |value: &Vec<u8>| (*index, bucket, value.clone(), key.to_vec(), *name);
                batches.push(values.iter().map(each).collect());
            }
        }
        batches
    }
}

/// Executes a statement with all values, some batches at the same time.
async fn write_entries(
    cluster: &Arc<Cluster>,
    statement: &PreparedStatement,
    batches: Vec<Vec<EntryValues>>,
) -> Result<(), Failure> {
    let mut batches = batches.into_iter();
    let mut writes = JoinSet::new();
    let mut result = Ok(());
    // Each is tried, so that an attempt to remove them leaves few.
    loop {
        while writes.len() < BATCHES_AT_ONCE
            && let Some(values) = batches.next()
        {
            let (cluster, statement) = (Arc::clone(cluster), statement.clone());
            writes.spawn(async move {
                match &values[..] {
                    [one] => cluster.execute(&statement, one).await.map(drop),
                    values => cluster.execute_together(&statement, values).await,
                }
            });
        }
        match writes.join_next().await {
            None => return result,
            Some(written) => result = result.and(written.unwrap_or(Err(Failure::Lost))),
        }
    }
}

/// Part of a bucket of an index.
struct Bounds<'r> {
    index: i32,
    bucket: i32,
    range: &'r ValueRange,
    /// Most entries.
    limit: usize,
}

impl Bounds<'_> {
    async fn read(
        &self,
        cluster: &Cluster,
        ranges: &Ranges,
        is_descending: bool,
        last: Option<&Entry>,
    ) -> Result<Vec<Entry>, Failure> {
        let Self { index, bucket, range, .. } = *self;
        let (bytes_max, limit) = (self.limit.saturating_mul(ENTRY_BYTES_MAX), limit(self.limit));
        let (start, end) = (&range.start, range.end.as_ref());
        let read = match (is_descending, last, end) {
            (false, None, Some(end)) => {
                let values = (index, bucket, start, end, limit);
                cluster.read_part(bytes_max, &ranges.ascending[0], values).await
            }
            (false, None, None) => {
                let values = (index, bucket, start, limit);
                cluster.read_part(bytes_max, &ranges.ascending[1], values).await
            }
            (false, Some(Entry { value, key, name }), Some(end)) => {
                let values = (index, bucket, value, key, name, end, limit);
                cluster.read_part(bytes_max, &ranges.ascending[2], values).await
            }
            (false, Some(Entry { value, key, name }), None) => {
                let values = (index, bucket, value, key, name, limit);
                cluster.read_part(bytes_max, &ranges.ascending[3], values).await
            }
            (true, None, None) => {
                let values = (index, bucket, start, limit);
                cluster.read_part(bytes_max, &ranges.descending[0], values).await
            }
            (true, None, Some(end)) => {
                let values = (index, bucket, start, end, limit);
                cluster.read_part(bytes_max, &ranges.descending[1], values).await
            }
            (true, Some(Entry { value, key, name }), _) => {
                let values = (index, bucket, start, value, key, name, limit);
                cluster.read_part(bytes_max, &ranges.descending[2], values).await
            }
        }?;
        let rows = read.into_rows_result().map_err(|_| Failure::Lost)?;
        let rows = rows.rows::<(Vec<u8>, Vec<u8>, i64)>().map_err(|_| Failure::Lost)?;
        let entry = |(value, key, name)| Entry { value, key, name };
        rows.map(|row| row.map(entry).map_err(|_| Failure::Lost)).collect()
    }
}

impl Tables for ClusterTables {
    async fn read(&self, key: &[u8]) -> Result<Option<StoredRow>, Failure> {
        let read = self.cluster.read(NAMES_BYTES_MAX, &self.get, (prefixed(key),)).await?;
        self.stored(read)
    }

    async fn swap(
        &self,
        until: Instant,
        key: &[u8],
        read: Option<&StoredRow>,
        new: &StoredRow,
    ) -> Changed {
        let (ttl, expiry) =
            if new.value.is_some() { (0, THERE) } else { (REMOVED_SECONDS, REMOVED) };
        let value = new.value.as_deref().unwrap_or_default();
        let old = read.map(|row| (row.version, row.number));
        let (old_version, old_number) = old.unzip();
        let (version, number, names) = (new.version, new.number, new.names.encode());
        // A missing value would be a tombstone.
        let (entry, own) = (new.entry.unwrap_or(0), prefixed(key));
        let values =
            (ttl, value, version, expiry, entry, number, names, &own, old_version, old_number);
        let failure = match self.cluster.execute_until(until, &self.swap, values).await {
            Ok(result) => return applied(result),
            Err(Failure::NotDone) => return Changed::NotDone,
            Err(failure) => failure,
        };
        let read = self.cluster.read(NAMES_BYTES_MAX, &self.get_serially, (own,)).await;
        let found = match read.and_then(|read| self.stored(read)) {
            Ok(found) => found.map(|row| (row.version, row.number)),
            Err(_) => return Changed::Unknown,
        };
        resolved((version, number), old, found, failure)
    }

    async fn add_key(&self, until: Instant, key: &[u8], name: i64) -> Result<(), Failure> {
        let own = prefixed(key);
        let added = timeout_at(until, self.order.add(&self.cluster, &own, name, 0)).await;
        added.unwrap_or(Err(Failure::NotDone))
    }

    async fn remove_key(&self, key: &[u8], name: i64) {
        self.order.remove(&self.cluster, &prefixed(key), name).await;
    }

    async fn keys(&self, after: Option<&[u8]>) -> Result<Part, Failure> {
        let all = prefixed(b"");
        let begin = match after {
            None => Bound::Included(all.clone()),
            Some(after) => Bound::Excluded(prefixed(after)),
        };
        let end = crate::order::after_prefix(&all);
        let part = self.order.part(&self.cluster, &begin, &end, KEYS_AT_ONCE).await?;
        let own = |mut key: Vec<u8>| key.split_off(1);
        Ok(Part { keys: part.keys.into_iter().map(own).collect(), next: part.next.map(own) })
    }

    async fn add_entries(
        &self,
        until: Instant,
        key: &[u8],
        entries: &[Entries],
    ) -> Result<(), Failure> {
        let batches = self.batches(key, entries);
        let added = timeout_at(until, write_entries(&self.cluster, &self.add_entry, batches)).await;
        added.unwrap_or(Err(Failure::NotDone))
    }

    async fn remove_entries(&self, key: &[u8], entries: &[Entries]) {
        let (cluster, statement) = (Arc::clone(&self.cluster), self.remove_entry.clone());
        let batches = self.batches(key, entries);
        // No client waits for it: the row is changed.
        tokio::spawn(async move {
            if write_entries(&cluster, &statement, batches).await.is_err() {
                tracing::debug!("stale entries of a row stay in the indexes");
            }
        });
    }

    async fn remove_index(&self, index: i32) {
        for bucket in 0..self.order.buckets() {
            if self.cluster.execute(&self.remove_index, (index, bucket)).await.is_err() {
                tracing::warn!("entries of a removed index stay in bucket {bucket} of {index}");
            }
        }
    }

    async fn definitions(&self) -> Result<Definitions, Failure> {
        let read = self.cluster.execute(&self.definitions, ()).await?;
        let rows = read.into_rows_result().map_err(|_| Failure::Lost)?;
        let row = rows.first_row::<(i32, Option<Vec<ListedIndex>>)>().map_err(|_| Failure::Lost)?;
        let (number, list) = row;
        let index = |(id, column, kind, is_ready): ListedIndex| {
            let kind = kind_of(&kind).ok_or(Failure::Lost)?;
            Ok(Definition { id, column, kind, is_ready })
        };
        let indexes = list.unwrap_or_default().into_iter().map(index);
        Ok(Definitions { number, indexes: indexes.collect::<Result<_, Failure>>()? })
    }

    async fn swap_definitions(&self, old: i32, new: &Definitions) -> Changed {
        let listed = |index: &Definition| {
            (index.id, index.column.clone(), index.kind.name().to_owned(), index.is_ready)
        };
        let list: Vec<ListedIndex> = new.indexes.iter().map(listed).collect();
        match self.cluster.execute(&self.swap_definitions, (new.number, list, old)).await {
            Ok(result) => applied(result),
            Err(Failure::NotDone) => Changed::NotDone,
            Err(_) => Changed::Unknown,
        }
    }
}

/// Returns a number of rows as statements have it.
fn limit(rows: usize) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}

/// Returns whether a row with this expiry is there, and was not removed.
pub(crate) fn is_there(expiry: i64) -> bool {
    expiry == THERE
}

/// Returns the kind of an index of this name.
fn kind_of(name: &str) -> Option<IndexKind> {
    match IndexChange::parse(name.as_bytes()) {
        Some(IndexChange::Set(kind)) => Some(kind),
        _ => None,
    }
}

fn applied(result: QueryResult) -> Changed {
    match is_applied(result) {
        Some(true) => Changed::Done,
        Some(false) => Changed::Conflict,
        None => Changed::Unknown,
    }
}

/// Returns what a serial read tells of a transaction that has failed, by the version and the number
/// of its row, of the row that it was for, and of the row that was found.
fn resolved(
    own: (i64, i32),
    old: Option<(i64, i32)>,
    found: Option<(i64, i32)>,
    failure: Failure,
) -> Changed {
    match found {
        Some(found) if found == own => Changed::Done,
        // It may be executed still, unless the node that had it has given up. A row that was put
        // and removed since would have a version.
        _ if failure == Failure::GivenUp && found == old => Changed::Conflict,
        _ => Changed::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merged::tests::assert_parts_have_all;

    #[test]
    fn a_failed_change_was_not_made_only_if_the_row_before_it_is_still_there() {
        use {Changed::*, Failure::*};
        let (old, own, other) = (Some((1, 1)), (2, 1), Some((3, 1)));
        for (read, found, failure, expected) in [
            (old, Some(own), Lost, Done),
            (None, Some(own), GivenUp, Done),
            (old, old, GivenUp, Conflict),
            // It may be executed still.
            (old, old, Lost, Unknown),
            (old, Some((1, 2)), GivenUp, Unknown),
            (old, other, GivenUp, Unknown),
            (None, None, GivenUp, Conflict),
            (None, None, Lost, Unknown),
            (old, None, GivenUp, Unknown),
        ] {
            let case = format!("{read:?} {found:?} {failure:?}");
            assert_eq!(resolved(own, read, found, failure), expected, "{case}");
        }
        // The number alone may be what a change raises.
        assert_eq!(resolved((1, 2), old, old, GivenUp), Conflict);
        assert_eq!(resolved((1, 2), old, Some((1, 2)), Lost), Done);
    }

    #[test]
    fn parts_of_many_buckets_have_each_entry_once_and_little_memory() {
        let entry = |number: usize| {
            let value = format!("{:05}", number / 3).into_bytes();
            Entry { value, key: number.to_be_bytes().to_vec(), name: 1 }
        };
        let all: Vec<Entry> = (0..1000).map(entry).collect();
        assert_parts_have_all(&all, 4000);
    }

    #[test]
    fn kinds_of_indexes_are_recorded_by_their_names() {
        for kind in [IndexKind::Lexical, IndexKind::Decimal, IndexKind::Token, IndexKind::Gram] {
            assert_eq!(kind_of(kind.name()), Some(kind));
        }
        assert_eq!(kind_of("void"), None);
    }
}
