//! Records: reads, changes under a condition, scans.

use crate::cell::{self, TTL_SLACK_SECONDS};
use crate::entry_name;
use crate::error::Result;
use crate::keys::prefixed;
use crate::name::{Kind, Mode, Name};
use crate::order::Order;
use crate::schema;
use crate::session::{Cluster, Failure};
use crate::token_pages::{TokenPage, TokenPages};
use crate::version;
use cabinet::Meta;
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, MaybeUnset, Row};
use server::FoundRecord;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout_at};

/// Longest time to live that the cluster is given, in seconds; Cassandra refuses much longer ones.
/// Records that expire later do so nevertheless, and stay in the tables.
const TTL_SECONDS_MAX: u64 = 5 * 365 * 24 * 60 * 60;

/// Longest time between the entry of a record in the order of the keys and the begin of the
/// transaction that puts the record.
pub(crate) const ENTRY_LEAD: Duration = Duration::from_secs(60);

/// Time by which the clocks of servers may differ so that no entry ends before its record, in
/// seconds.
const CLOCKS_DIFFER_SECONDS: i32 = 10 * 60;

/// Rows of the first page of a scan, and most rows of a page: few enough for the longest keys.
const PAGE_ROWS: (usize, usize) = (250, 1000);

/// Bytes of keys of a page that its number of rows aims at.
const PAGE_BYTES: usize = 2 << 20;

/// Time for which changes of a key are refused that were decided before [`Records::forestall`], in
/// seconds: longer than a server or a node is paused with a change under way.
const FORESTALL_SECONDS: i32 = 24 * 60 * 60;

/// Columns of a record.
type Columns = (Option<Vec<u8>>, Option<i64>);

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) version: i64,
    /// Name of its entry in the order of the keys, if the database has one.
    pub(crate) entry: Option<i64>,
    /// The record, unless it has expired.
    pub(crate) record: Option<FoundRecord>,
}

/// Values of the statements that put a record.
struct PutColumns {
    /// Time to live of the cells, in seconds.
    ttl: i32,
    value: Vec<u8>,
    version: i64,
    /// Expiry, in milliseconds since 1970.
    expiry: i64,
    /// A column that is set to nothing would be one that was removed, for scans.
    entry: MaybeUnset<i64>,
}

impl PutColumns {
    fn of(record: &FoundRecord, entry: Option<i64>) -> Self {
        let expires_at_ms = record.meta.expires_at_ms;
        Self {
            ttl: ttl_seconds(expires_at_ms, now_ms()),
            value: cell::encode(record),
            version: record.version.cast_signed(),
            expiry: expires_at_ms.cast_signed(),
            entry: entry.map_or(MaybeUnset::Unset, MaybeUnset::Set),
        }
    }
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

/// Put of a record by a plain write, in strict mode. It may be repeated.
#[derive(Debug)]
pub(crate) struct BulkPut {
    pub(crate) record: FoundRecord,
    /// Name of its entry in the order of the keys, if the database has one.
    pub(crate) entry: Option<i64>,
    /// Time stamp of the write, in microseconds since 1970.
    pub(crate) timestamp_us: i64,
}

/// Part of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scanned<'a> {
    /// A page has to be read.
    Page,
    /// A key.
    Key(&'a [u8]),
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
    put_in_bulk: PreparedStatement,
    remove_if: PreparedStatement,
    remove_any: PreparedStatement,
    expiry: PreparedStatement,
    /// Reads version and expiry, and finishes a change that some replicas have accepted.
    version_serially: PreparedStatement,
    scan: PreparedStatement,
    clear: PreparedStatement,
    /// The order of the keys, unless this is a hash database.
    order: Option<Arc<Order>>,
}

impl Records {
    /// Prepares the statements.
    pub(crate) async fn prepare(cluster: &Cluster, name: &Name) -> Result<Self> {
        let table = format!("{}.records", schema::quoted(name));
        let select = format!("SELECT v, c FROM {table} WHERE k = ?");
        let set = "SET v = ?, ver = ?, e = ?, c = ? WHERE k = ?";
        let put = format!("UPDATE {table} USING TTL ? {set}");
        let put_in_bulk = format!("UPDATE {table} USING TTL ? AND TIMESTAMP ? {set}");
        let remove = format!("DELETE FROM {table} WHERE k = ?");
        let mut get_serially = cluster.prepare(&select).await?;
        get_serially.set_consistency(Consistency::Serial);
        let version = format!("SELECT ver, e FROM {table} WHERE k = ?");
        let mut version_serially = cluster.prepare(&version).await?;
        version_serially.set_consistency(Consistency::Serial);
        let (put_any, remove_any) = match name.mode {
            Mode::Strict => (
                cluster.prepare_once(&format!("{put} IF g = null")).await?,
                cluster.prepare_once(&format!("{remove} IF g = null")).await?,
            ),
            Mode::Plain => (cluster.prepare(&put).await?, cluster.prepare(&remove).await?),
        };
        let scan = format!("SELECT k, e, token(k) FROM {table}");
        let scan = format!("{scan} WHERE token(k) >= ? AND token(k) <= ?");
        Ok(Self {
            mode: name.mode,
            get: cluster.prepare(&select).await?,
            get_serially,
            put_if: cluster.prepare_once(&format!("{put} IF ver = ?")).await?,
            put_any,
            put_in_bulk: cluster.prepare(&put_in_bulk).await?,
            remove_if: cluster.prepare_once(&format!("{remove} IF ver = ?")).await?,
            remove_any,
            expiry: cluster.prepare(&format!("SELECT e FROM {table} WHERE k = ?")).await?,
            version_serially,
            scan: cluster.prepare_scan(&scan).await?,
            clear: cluster.prepare_truncate(&table).await?,
            order: match name.kind {
                Kind::Hash => None,
                Kind::Tree | Kind::Fixed | Kind::Table => {
                    Some(Arc::new(Order::prepare(cluster, name).await?))
                }
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
        let read = cluster.read(cell::HEAD_BYTES, &self.get, (prefixed(key),)).await?;
        present(cluster, read)
    }

    /// Returns whether there is a record.
    pub(crate) async fn exists(&self, cluster: &Cluster, key: &[u8]) -> Result<bool, Failure> {
        let result = cluster.execute(&self.expiry, (prefixed(key),)).await?;
        let rows = result.into_rows_result().map_err(|_| Failure::Lost)?;
        let row = rows.maybe_first_row::<(Option<i64>,)>().map_err(|_| Failure::Lost)?;
        Ok(row.is_some_and(|(expiry,)| !is_expired(expiry)))
    }

    /// Refuses all changes under way of a key without a record: they were decided on a row that is
    /// replaced by an expired record, and have to be decided again. Returns `false` if there is a
    /// record, or a change has come before.
    pub(crate) async fn forestall(&self, cluster: &Cluster, key: &[u8]) -> Result<bool, Failure> {
        let own = prefixed(key);
        let read = cluster.execute(&self.version_serially, (own.clone(),)).await?;
        let rows = read.into_rows_result().map_err(|_| Failure::Lost)?;
        let row = rows.maybe_first_row::<(Option<i64>, Option<i64>)>();
        let found = match row.map_err(|_| Failure::Lost)? {
            Some((Some(_), expiry)) if !is_expired(expiry) => return Ok(false),
            Some((version, _)) => version,
            None => None,
        };
        let expired = Meta { flags: 0, expires_at_ms: 1 };
        let record = new_record(Arc::default(), expired, found.unwrap_or(0));
        let version = record.version.cast_signed();
        let entry = MaybeUnset::<i64>::Unset;
        let values = (FORESTALL_SECONDS, cell::encode(&record), version, 1_i64, entry, own, found);
        let executed = cluster.execute(&self.put_if, values).await?;
        Ok(is_applied(executed) == Some(true))
    }

    /// Puts a record, or removes it, if the row is as it was read. No change begins later than
    /// `until`. Without `read` the row may be as it is; a database with an order of keys cannot do
    /// that.
    ///
    /// In an order of keys, a record has an entry of its own name while it exists. It is there
    /// before the record, and is removed after it. No other record and no other life of this one
    /// has an entry of that name, so a slow removal removes no entry of a newer record. An entry
    /// without its record is skipped by readers. It lives longer than the record, and stays while
    /// the expiry moves, see [`entry_name`].
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
        let until = until.min(Instant::now() + ENTRY_LEAD);
        let old = row.and_then(|row| row.entry);
        let kept = old.filter(|entry| {
            let stays = |record: &FoundRecord| {
                entry_name::may_stay(*entry, record.meta.expires_at_ms, now_ms())
            };
            row.is_some_and(|row| row.record.is_some()) && record.is_some_and(stays)
        });
        let new = match record {
            None => None,
            Some(_) if kept.is_some() => kept,
            Some(record) => {
                let entry = entry_name::new(now_ms(), record.meta.expires_at_ms);
                let added = timeout_at(until, self.add_entry(cluster, key, entry)).await;
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
            // The answer must not be late for it.
            let own = prefixed(key);
            if timeout_at(until, order.remove(cluster, &own, entry)).await.is_err() {
                tracing::debug!("there is no time to remove an entry without a record");
            }
        }
        changed
    }

    /// Puts a record whose row no other client changes.
    pub(crate) async fn put_in_bulk(
        &self,
        cluster: &Cluster,
        key: &[u8],
        put: &BulkPut,
    ) -> Result<(), Failure> {
        if let Some(entry) = put.entry {
            self.add_entry(cluster, key, entry).await?;
        }
        let BulkPut { record, timestamp_us, .. } = put;
        let columns = PutColumns::of(record, put.entry);
        let PutColumns { ttl, value, version, expiry, entry } = columns;
        let values = (ttl, *timestamp_us, value, version, expiry, entry, prefixed(key));
        cluster.execute(&self.put_in_bulk, values).await.map(drop)
    }

    /// Adds the entry of a record to the order of the keys. The name of the entry tells how long it
    /// lives, by this server's clock. Servers whose clocks are behind keep the record for longer,
    /// so the entry stays for [`CLOCKS_DIFFER_SECONDS`] more.
    pub(crate) async fn add_entry(
        &self,
        cluster: &Cluster,
        key: &[u8],
        entry: i64,
    ) -> Result<(), Failure> {
        let Some(order) = &self.order else { return Ok(()) };
        let ttl = entry_ttl_seconds(entry, now_ms());
        order.add(cluster, &prefixed(key), entry, ttl).await
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
                let PutColumns { ttl, value, version, expiry, entry } =
                    PutColumns::of(record, entry);
                match condition {
                    Condition::Any => {
                        let values = (ttl, value, version, expiry, entry, own);
                        cluster.execute_until(until, &self.put_any, values).await
                    }
                    Condition::Version(found) => {
                        let values = (ttl, value, version, expiry, entry, own, found);
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
        let values = (prefixed(key),);
        let read = cluster.read(cell::HEAD_BYTES, &self.get_serially, values).await;
        let Ok(row) = read.and_then(|read| present(cluster, read)) else { return Changed::Unknown };
        resolved(own, condition, row.map(|row| row.version), failure)
    }

    /// Calls `visit` with the keys from `begin` on, in the order of the cluster, until it breaks:
    /// by token, and then by key. Reads `page` rows at once, if it is given.
    pub(crate) async fn scan(
        &self,
        cluster: &Cluster,
        begin: Option<Bound<Vec<u8>>>,
        page: Option<usize>,
        mut visit: impl FnMut(Scanned<'_>) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        // Token and key before which the scan begins, or at which it is.
        let mut place = match begin.map(|begin| begin.map(|key| prefixed(&key))) {
            None | Some(Bound::Unbounded) => None,
            Some(begin @ (Bound::Included(_) | Bound::Excluded(_))) => {
                let key = match &begin {
                    Bound::Included(key) | Bound::Excluded(key) => &key[..],
                    Bound::Unbounded => &[],
                };
                let token = self.get.calculate_token(&(key,)).ok().flatten();
                Some((token.ok_or(Failure::NotDone)?.value(), begin))
            }
        };
        let rows_max = page.map_or(PAGE_ROWS.1, |page| page.saturating_add(1).min(PAGE_ROWS.1));
        let mut rows_wanted = PAGE_ROWS.0.min(rows_max);
        let mut statement = self.scan.clone();
        let mut pages = TokenPages::from(place.as_ref().map(|(token, _)| *token));
        while visit(Scanned::Page).is_continue() {
            statement.set_page_size(i32::try_from(rows_wanted).unwrap_or(1));
            let page = match pages.next(cluster, &statement).await? {
                TokenPage::Rows(page) => *page,
                TokenPage::Narrower => continue,
                TokenPage::End => return Ok(()),
            };
            let rows = page.into_rows_result().map_err(|_| Failure::Lost)?;
            let (mut last, mut longest) = (None, 1);
            for row in rows.rows::<(Vec<u8>, Option<i64>, i64)>().map_err(|_| Failure::Lost)? {
                let (key, expiry, token) = row.map_err(|_| Failure::Lost)?;
                longest = longest.max(key.len());
                let is_before = match &place {
                    // Other keys may have the same token.
                    Some((other, Bound::Included(begin))) => token == *other && key < *begin,
                    Some((other, Bound::Excluded(begin))) => token == *other && key <= *begin,
                    None | Some((_, Bound::Unbounded)) => false,
                };
                if is_before {
                    continue;
                }
                if !is_expired(expiry)
                    && visit(Scanned::Key(key.get(1..).unwrap_or_default())).is_break()
                {
                    return Ok(());
                }
                last = Some((token, key));
            }
            if let Some((token, key)) = last {
                pages.reach(token);
                place = Some((token, Bound::Excluded(key)));
            }
            rows_wanted = (2 * rows_wanted).min(PAGE_BYTES / longest).clamp(1, rows_max);
        }
        Ok(())
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
pub(crate) fn new_record(value: Arc<Vec<u8>>, meta: Meta, last: i64) -> FoundRecord {
    FoundRecord { value, meta, version: version::next(last, now_ms()).cast_unsigned() }
}

fn present(cluster: &Cluster, result: QueryResult) -> Result<Option<Present>, Failure> {
    let rows = result.into_rows_result().map_err(|_| Failure::Lost)?;
    let row = rows.maybe_first_row::<Columns>().map_err(|_| Failure::Lost)?;
    // The cell may expire before the others of its row.
    let Some((Some(cell), entry)) = row else { return Ok(None) };
    let record = cell::decode(cell).ok_or(Failure::Lost)?;
    cluster.note_value(record.value.len());
    let (version, meta) = (record.version.cast_signed(), record.meta);
    let record = (!meta.is_expired(now_ms())).then_some(record);
    Ok(Some(Present { version, entry, record }))
}

/// Returns whether a record with this copy of its expiry is to be left out of lists.
fn is_expired(expiry: Option<i64>) -> bool {
    let expires_at_ms = expiry.unwrap_or(0).cast_unsigned();
    Meta { flags: 0, expires_at_ms }.is_expired(now_ms())
}

/// Returns whether the condition of a statement was met.
pub(crate) fn is_applied(result: QueryResult) -> Option<bool> {
    let rows = result.into_rows_result().ok()?;
    match rows.first_row::<Row>().ok()?.columns.first()? {
        Some(CqlValue::Boolean(is_applied)) => Some(*is_applied),
        _ => None,
    }
}

/// Returns the time to live of an entry of this name, in seconds; 0 is without end.
fn entry_ttl_seconds(entry: i64, now_ms: u64) -> i32 {
    match ttl_seconds(entry_name::ends_at_ms(entry), now_ms) {
        0 => 0,
        seconds => seconds.saturating_add(CLOCKS_DIFFER_SECONDS),
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

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(crate) mod on_nodes;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_entry_outlives_its_record_by_the_difference_of_clocks() {
        const NOW_MS: u64 = 1_790_000_000_000;
        assert_eq!(entry_ttl_seconds(entry_name::new(NOW_MS, 0), NOW_MS), 0);
        for minutes in [0, 1, 60, 10_000] {
            let expires_at_ms = NOW_MS + minutes * 60_000;
            let entry = entry_name::new(NOW_MS, expires_at_ms);
            // The server with the record is behind this one.
            let behind_ms = u64::from(CLOCKS_DIFFER_SECONDS.unsigned_abs()) * 1000;
            let entry_lives_ms = 1000 * u64::from(entry_ttl_seconds(entry, NOW_MS).unsigned_abs());
            assert!(entry_lives_ms >= expires_at_ms - NOW_MS + behind_ms, "{minutes}");
            // So it is if the record came later to an entry that may stay.
            let later_ms = expires_at_ms + 10 * 60_000;
            let stays = entry_name::may_stay(entry, later_ms, NOW_MS);
            assert!(!stays || entry_lives_ms >= later_ms - NOW_MS + behind_ms, "{minutes}");
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
}
