//! Records of a hash database: reads, changes under a condition, scans.

use crate::error::Result;
use crate::name::{Kind, Mode, Name};
use crate::order::Order;
use crate::schema;
use crate::session::{Cluster, Failure};
use crate::version;
use cabinet::{Entry, Meta};
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use server::FoundRecord;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout_at};

/// First byte of each key in the cluster.
const KEY_PREFIX: u8 = 0;

/// Longest key of a partition, in bytes.
const PARTITION_KEY_BYTES_MAX: usize = 65_535;

/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = PARTITION_KEY_BYTES_MAX - 1;

/// Time by which cells outlive their record, so that clocks may differ, in seconds.
const TTL_SLACK_SECONDS: u64 = 60;

/// Longest time to live that the cluster is given, in seconds; Cassandra refuses much longer ones.
/// Records that expire later do so nevertheless, and stay in the tables.
const TTL_SECONDS_MAX: u64 = 5 * 365 * 24 * 60 * 60;

/// Columns of a record.
type Columns = (Vec<u8>, i64, i32, i64, Option<i64>);

/// Result of a scan: keys, and whether none is missing but for their number.
pub(crate) type Listed = (Vec<Vec<u8>>, bool);

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) version: i64,
    expires_at_ms: u64,
    /// Name of its entry in the order of the keys, if the database has one.
    entry: Option<i64>,
    /// The record, unless it has expired.
    pub(crate) record: Option<FoundRecord>,
}

/// Condition of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// None: the row may be as it is.
    Any,
    /// The row has this version; without one, there is no row.
    Version(Option<i64>),
}

/// Result of a change under a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// It was made.
    Done,
    /// It was not made, and will not be; the row may have another version.
    Conflict,
    /// It was not made, since the cluster is not available.
    NotDone,
    /// It may have been made, or may be made later.
    Unknown,
}

/// Prepared statements on the table of records.
#[derive(Debug)]
pub(crate) struct Records {
    mode: Mode,
    get: PreparedStatement,
    /// Sees each change that was made, also one that is not finished.
    get_serially: PreparedStatement,
    put_if: PreparedStatement,
    put_any: PreparedStatement,
    remove_if: PreparedStatement,
    remove_any: PreparedStatement,
    expiry: PreparedStatement,
    scan: PreparedStatement,
    scan_after: PreparedStatement,
    clear: PreparedStatement,
    /// The order of the keys, in a B+ tree.
    order: Option<Arc<Order>>,
}

impl Records {
    /// Prepares the statements.
    pub(crate) async fn prepare(cluster: &Cluster, name: &Name) -> Result<Self> {
        let table = format!("{}.records", schema::quoted(name));
        let select = format!("SELECT v, ver, f, e, c FROM {table} WHERE k = ?");
        let put = format!(
            "UPDATE {table} USING TTL ? SET v = ?, ver = ?, f = ?, e = ?, c = ? WHERE k = ?"
        );
        let remove = format!("DELETE FROM {table} WHERE k = ?");
        let mut get_serially = cluster.prepare(&select).await?;
        get_serially.set_consistency(Consistency::Serial);
        let (put_any, remove_any) = match name.mode {
            Mode::Strict => (
                cluster.prepare_once(&format!("{put} IF g = null")).await?,
                cluster.prepare_once(&format!("{remove} IF g = null")).await?,
            ),
            Mode::Plain => (cluster.prepare(&put).await?, cluster.prepare(&remove).await?),
        };
        let scan = format!("SELECT k, e FROM {table}");
        let after = format!("{scan} WHERE token(k) > token(?)");
        Ok(Self {
            mode: name.mode,
            get: cluster.prepare(&select).await?,
            get_serially,
            put_if: cluster.prepare_once(&format!("{put} IF ver = ?")).await?,
            put_any,
            remove_if: cluster.prepare_once(&format!("{remove} IF ver = ?")).await?,
            remove_any,
            expiry: cluster.prepare(&format!("SELECT e FROM {table} WHERE k = ?")).await?,
            scan: cluster.prepare_scan(&scan).await?,
            scan_after: cluster.prepare_scan(&after).await?,
            clear: cluster.prepare_truncate(&table).await?,
            order: match name.kind {
                Kind::Hash => None,
                Kind::Tree => Some(Arc::new(Order::prepare(cluster, name).await?)),
            },
        })
    }

    /// Returns the order of the keys, if there is one.
    pub(crate) fn order(&self) -> Option<&Arc<Order>> {
        self.order.as_ref()
    }

    /// Reads a row; `None` stands for none.
    pub(crate) async fn get(
        &self,
        cluster: &Cluster,
        key: &[u8],
    ) -> Result<Option<Present>, Failure> {
        present(cluster.execute(&self.get, (prefixed(key),)).await?)
    }

    /// Returns whether there is a record.
    pub(crate) async fn exists(&self, cluster: &Cluster, key: &[u8]) -> Result<bool, Failure> {
        let result = cluster.execute(&self.expiry, (prefixed(key),)).await?;
        let rows = result.into_rows_result().map_err(|_| Failure::Lost)?;
        let row = rows.maybe_first_row::<(i64,)>().map_err(|_| Failure::Lost)?;
        Ok(row.is_some_and(|(expiry,)| {
            let meta = Meta { flags: 0, expires_at_ms: expiry.cast_unsigned() };
            !meta.is_expired(now_ms())
        }))
    }

    /// Puts a record, or removes it, if the row is as it was read. No change begins later than
    /// `until`. Without `read` the row may be as it is; a database with an order of keys cannot do
    /// that.
    ///
    /// In an order of keys, a record has an entry of its own name while it exists. It is there
    /// before the record, and is removed after it. No other record and no other life of this one
    /// has an entry of that name, so a slow removal removes no entry of a newer record. An entry
    /// without its record is skipped by readers. The entry changes with the expiry, since it
    /// expires with the record.
    pub(crate) async fn change(
        &self,
        cluster: &Cluster,
        until: Instant,
        key: &[u8],
        read: Option<Option<&Present>>,
        record: Option<&FoundRecord>,
    ) -> Changed {
        let (Some(order), Some(row)) = (&self.order, read) else {
            return self.change_row(cluster, until, key, read, record, None).await;
        };
        let old = row.and_then(|row| row.entry);
        let kept = row.filter(|row| {
            row.record.is_some()
                && record.is_some_and(|record| record.meta.expires_at_ms == row.expires_at_ms)
        });
        let new = match record {
            None => None,
            Some(_) if kept.is_some() && old.is_some() => old,
            Some(record) => {
                let entry = record.version.cast_signed();
                let ttl = ttl_seconds(record.meta.expires_at_ms, now_ms());
                let own = prefixed(key);
                let added = timeout_at(until, order.add(cluster, &own, entry, ttl)).await;
                if !matches!(added, Ok(Ok(()))) {
                    return Changed::NotDone;
                }
                Some(entry)
            }
        };
        let changed = self.change_row(cluster, until, key, read, record, new).await;
        let useless = match changed {
            Changed::Done => old,
            Changed::Conflict | Changed::NotDone => new,
            Changed::Unknown => None,
        };
        let is_used = if changed == Changed::Done { new } else { old };
        if let Some(entry) = useless.filter(|entry| Some(*entry) != is_used) {
            order.remove(cluster, &prefixed(key), entry).await;
        }
        changed
    }

    /// Changes the row of a record.
    async fn change_row(
        &self,
        cluster: &Cluster,
        until: Instant,
        key: &[u8],
        read: Option<Option<&Present>>,
        record: Option<&FoundRecord>,
        entry: Option<i64>,
    ) -> Changed {
        let own = prefixed(key);
        let condition = match (read, self.mode) {
            (Some(row), Mode::Strict) => Condition::Version(row.map(|row| row.version)),
            _ => Condition::Any,
        };
        let executed = match (record, condition) {
            (Some(record), condition) => {
                let Meta { flags, expires_at_ms } = record.meta;
                let (value, version) = (&record.value, record.version.cast_signed());
                let (flags, expiry) = (flags.cast_signed(), expires_at_ms.cast_signed());
                let ttl = ttl_seconds(expires_at_ms, now_ms());
                match condition {
                    Condition::Any => {
                        let values = (ttl, value, version, flags, expiry, entry, own);
                        cluster.execute_until(until, &self.put_any, values).await
                    }
                    Condition::Version(found) => {
                        let values = (ttl, value, version, flags, expiry, entry, own, found);
                        cluster.execute_until(until, &self.put_if, values).await
                    }
                }
            }
            (None, Condition::Any) => cluster.execute_until(until, &self.remove_any, (own,)).await,
            (None, Condition::Version(found)) => {
                cluster.execute_until(until, &self.remove_if, (own, found)).await
            }
        };
        match executed {
            Ok(_) if self.mode == Mode::Plain => Changed::Done,
            Ok(result) => match is_applied(result) {
                Some(true) => Changed::Done,
                Some(false) => Changed::Conflict,
                None => Changed::Unknown,
            },
            Err(Failure::NotDone) => Changed::NotDone,
            Err(_) if self.mode == Mode::Plain => Changed::Unknown,
            Err(failure) => self.resolve(cluster, key, condition, record, failure).await,
        }
    }

    /// Finds out whether a change was made whose statement has failed. A serial read finishes what
    /// a majority of the replicas has accepted.
    async fn resolve(
        &self,
        cluster: &Cluster,
        key: &[u8],
        condition: Condition,
        record: Option<&FoundRecord>,
        failure: Failure,
    ) -> Changed {
        let own = record.map(|record| record.version.cast_signed());
        let read = cluster.execute(&self.get_serially, (prefixed(key),)).await;
        let Ok(row) = read.and_then(present) else { return Changed::Unknown };
        resolved(own, condition, row.map(|row| row.version), failure)
    }

    /// Calls `visit` with each key after `after`, in the order of the cluster, until it breaks.
    pub(crate) async fn scan(
        &self,
        cluster: &Cluster,
        after: Option<&[u8]>,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let mut state = PagingState::start();
        loop {
            let (page, next) = match after {
                None => cluster.page(&self.scan, (), state).await?,
                Some(after) => cluster.page(&self.scan_after, (prefixed(after),), state).await?,
            };
            let rows = page.into_rows_result().map_err(|_| Failure::Lost)?;
            for row in rows.rows::<(Vec<u8>, i64)>().map_err(|_| Failure::Lost)? {
                let (key, expiry) = row.map_err(|_| Failure::Lost)?;
                let meta = Meta { flags: 0, expires_at_ms: expiry.cast_unsigned() };
                let is_visited = !meta.is_expired(now_ms());
                if is_visited && visit(key.get(1..).unwrap_or_default()).is_break() {
                    return Ok(());
                }
            }
            match next {
                PagingStateResponse::HasMorePages { state: next } => state = next,
                PagingStateResponse::NoMorePages => return Ok(()),
            }
        }
    }

    /// Returns keys with a prefix, in the order of the cluster.
    pub(crate) async fn keys(
        &self,
        cluster: &Cluster,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
        bytes_max: usize,
    ) -> Result<Listed, Failure> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let visit = |key: &[u8]| {
            if keys.len() == max || bytes > bytes_max {
                return ControlFlow::Break(());
            }
            if key.starts_with(prefix) {
                bytes += key.len();
                if bytes <= bytes_max {
                    keys.push(key.to_vec());
                }
            }
            ControlFlow::Continue(())
        };
        self.scan(cluster, after, visit).await?;
        Ok((keys, bytes <= bytes_max))
    }

    /// Removes all records. Needs all nodes.
    pub(crate) async fn clear(&self, cluster: &Cluster) -> Result<(), Failure> {
        cluster.execute(&self.clear, ()).await?;
        // Readers skip entries without records, but miss records without entries: those go last.
        match &self.order {
            Some(order) => order.clear(cluster).await.map_err(|_| Failure::GivenUp),
            None => Ok(()),
        }
    }
}

/// Returns a new record with a version of its own, above `last`.
pub(crate) fn new_record(value: Vec<u8>, meta: Meta, last: i64) -> FoundRecord {
    FoundRecord { value, meta, version: version::next(last, now_ms()).cast_unsigned() }
}

/// Returns a record as the executor of the server sees it.
pub(crate) fn entry<'a>(key: &'a [u8], record: &'a FoundRecord) -> Entry<'a> {
    Entry { key, value: &record.value, meta: record.meta, version: record.version }
}

pub(crate) fn prefixed(key: &[u8]) -> Vec<u8> {
    [&[KEY_PREFIX], key].concat()
}

fn present(result: QueryResult) -> Result<Option<Present>, Failure> {
    let rows = result.into_rows_result().map_err(|_| Failure::Lost)?;
    let row = rows.maybe_first_row::<Columns>().map_err(|_| Failure::Lost)?;
    Ok(row.map(|(value, version, flags, expiry, entry)| {
        let meta = Meta { flags: flags.cast_unsigned(), expires_at_ms: expiry.cast_unsigned() };
        let record = FoundRecord { value, meta, version: version.cast_unsigned() };
        let record = (!meta.is_expired(now_ms())).then_some(record);
        Present { version, expires_at_ms: meta.expires_at_ms, entry, record }
    }))
}

/// Returns whether the condition of a statement was met.
fn is_applied(result: QueryResult) -> Option<bool> {
    let rows = result.into_rows_result().ok()?;
    match rows.first_row::<Row>().ok()?.columns.first()? {
        Some(CqlValue::Boolean(is_applied)) => Some(*is_applied),
        _ => None,
    }
}

/// Returns the time to live of the cells of a record, in seconds; 0 is without end.
fn ttl_seconds(expires_at_ms: u64, now_ms: u64) -> i32 {
    let seconds = expires_at_ms.saturating_sub(now_ms).div_ceil(1000) + TTL_SLACK_SECONDS;
    if expires_at_ms == 0 || seconds > TTL_SECONDS_MAX {
        return 0;
    }
    i32::try_from(seconds).unwrap_or(0)
}

/// Returns what a serial read tells of a change that has failed, by the versions of the change, of
/// the row that it was for, and of the row that was found.
///
/// The own version tells that the change was made. The old one tells that it was not; and it will
/// not be if the node that made it has given up. Another one, or no row, may have come before the
/// change or after it: absence has no version, and a row that was put may be removed again.
fn resolved(
    own: Option<i64>,
    condition: Condition,
    found: Option<i64>,
    failure: Failure,
) -> Changed {
    match condition {
        _ if own.is_some() && found == own => Changed::Done,
        Condition::Version(Some(old)) if failure == Failure::GivenUp && found == Some(old) => {
            Changed::Conflict
        }
        _ => Changed::Unknown,
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Bound;

    #[test]
    fn cells_outlive_their_record_by_a_minute_unless_it_expires_in_years() {
        for (expires_at_ms, seconds) in [
            (0, 0),
            (1, 60),
            (10_000, 60),
            (10_001, 61),
            (10_000 + (TTL_SECONDS_MAX - 60) * 1000, TTL_SECONDS_MAX),
            (10_001 + (TTL_SECONDS_MAX - 60) * 1000, 0),
            (u64::MAX, 0),
        ] {
            let found = ttl_seconds(expires_at_ms, 10_000);
            assert_eq!(u64::try_from(found), Ok(seconds), "{expires_at_ms}");
        }
    }

    #[test]
    fn a_failed_change_was_not_made_only_if_the_version_before_it_is_still_there() {
        use {Changed::*, Condition::*, Failure::*};
        for (own, condition, found, failure, expected) in [
            (Some(2), Version(Some(1)), Some(2), Lost, Done),
            (Some(2), Version(None), Some(2), GivenUp, Done),
            (Some(2), Any, Some(2), Lost, Done),
            (Some(2), Version(Some(1)), Some(1), GivenUp, Conflict),
            (None, Version(Some(1)), Some(1), GivenUp, Conflict),
            // It may be executed still.
            (Some(2), Version(Some(1)), Some(1), Lost, Unknown),
            (Some(2), Version(Some(1)), Some(3), GivenUp, Unknown),
            (Some(2), Version(Some(1)), None, GivenUp, Unknown),
            (None, Version(Some(1)), None, GivenUp, Unknown),
            // It may have been made, and removed by another one.
            (Some(2), Version(None), None, GivenUp, Unknown),
            (None, Version(None), None, GivenUp, Unknown),
            (Some(2), Any, Some(1), GivenUp, Unknown),
            (None, Any, None, GivenUp, Unknown),
        ] {
            let case = format!("{own:?} {condition:?} {found:?} {failure:?}");
            assert_eq!(resolved(own, condition, found, failure), expected, "{case}");
        }
    }

    #[test]
    #[ignore = "needs Cassandra: cargo xtask cluster-test"]
    fn a_slow_removal_leaves_the_entry_of_a_record_that_was_put_meanwhile() {
        let hosts = std::env::var("TYRANT_CASSANDRA").unwrap();
        let options = "#kind=tcb#buckets=1#timeout=60000";
        let name = Name::parse(&format!("cassandra://{hosts}/slow_removal{options}")).unwrap();
        crate::store::init(&name, 1).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let cluster = Arc::new(Cluster::connect(&name).await.unwrap());
            let records = Records::prepare(&cluster, &name).await.unwrap();
            let order = records.order().unwrap();
            let until = Instant::now() + name.timeout;
            let (key, record) = (b"k", || new_record(b"v".to_vec(), Meta::NONE, 0));
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
}
