//! Records of a hash database: reads, changes under a condition, scans.

use crate::cell;
use crate::error::Result;
use crate::keys::prefixed;
use crate::name::{Kind, Mode, Name};
use crate::order::Order;
use crate::schema;
use crate::session::{Cluster, Failure};
use crate::version;
use cabinet::Meta;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use server::FoundRecord;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout_at};

/// Time by which cells outlive their record, so that clocks may differ, in seconds.
const TTL_SLACK_SECONDS: u64 = 60;

/// Longest time to live that the cluster is given, in seconds; Cassandra refuses much longer ones.
/// Records that expire later do so nevertheless, and stay in the tables.
const TTL_SECONDS_MAX: u64 = 5 * 365 * 24 * 60 * 60;

/// Columns of a record.
type Columns = (Option<Vec<u8>>, Option<i64>);

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
    remove_if: PreparedStatement,
    remove_any: PreparedStatement,
    expiry: PreparedStatement,
    scan: PreparedStatement,
    scan_from: PreparedStatement,
    clear: PreparedStatement,
    /// The order of the keys, in a B+ tree.
    order: Option<Arc<Order>>,
}

impl Records {
    /// Prepares the statements.
    pub(crate) async fn prepare(cluster: &Cluster, name: &Name) -> Result<Self> {
        let table = format!("{}.records", schema::quoted(name));
        let select = format!("SELECT v, c FROM {table} WHERE k = ?");
        let put =
            format!("UPDATE {table} USING TTL ? SET v = ?, ver = ?, e = ?, c = ? WHERE k = ?");
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
        let scan = format!("SELECT k, e, token(k) FROM {table}");
        let from = format!("{scan} WHERE token(k) >= ?");
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
            scan_from: cluster.prepare_scan(&from).await?,
            clear: cluster.prepare_truncate(&table).await?,
            order: match name.kind {
                Kind::Hash => None,
                Kind::Tree | Kind::Table => Some(Arc::new(Order::prepare(cluster, name).await?)),
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
        let row = rows.maybe_first_row::<(Option<i64>,)>().map_err(|_| Failure::Lost)?;
        Ok(row.is_some_and(|(expiry,)| !is_expired(expiry)))
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
                let expires_at_ms = record.meta.expires_at_ms;
                let (value, version) = (cell::encode(record), record.version.cast_signed());
                let expiry = expires_at_ms.cast_signed();
                let ttl = ttl_seconds(expires_at_ms, now_ms());
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
        let read = cluster.execute(&self.get_serially, (prefixed(key),)).await;
        let Ok(row) = read.and_then(present) else { return Changed::Unknown };
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
        let begin = begin.map(|begin| begin.map(|key| prefixed(&key)));
        let token = match &begin {
            None | Some(Bound::Unbounded) => None,
            Some(Bound::Included(key) | Bound::Excluded(key)) => {
                let token = self.get.calculate_token(&(key,)).ok().flatten();
                Some(token.ok_or(Failure::NotDone)?.value())
            }
        };
        let is_before = |row_token: i64, key: &[u8]| match &begin {
            // Other keys may have the same token.
            Some(Bound::Included(begin)) => Some(row_token) == token && key < &begin[..],
            Some(Bound::Excluded(begin)) => Some(row_token) == token && key <= &begin[..],
            None | Some(Bound::Unbounded) => false,
        };
        let mut statement = if token.is_some() { &self.scan_from } else { &self.scan }.clone();
        if let Some(page) = page {
            let page = i32::try_from(page.saturating_add(1)).unwrap_or(i32::MAX);
            statement.set_page_size(page.min(statement.get_page_size()));
        }
        let mut state = PagingState::start();
        while visit(Scanned::Page).is_continue() {
            let (page, next) = match token {
                None => cluster.page(&statement, (), state).await?,
                Some(token) => cluster.page(&statement, (token,), state).await?,
            };
            let rows = page.into_rows_result().map_err(|_| Failure::Lost)?;
            for row in rows.rows::<(Vec<u8>, Option<i64>, i64)>().map_err(|_| Failure::Lost)? {
                let (key, expiry, row_token) = row.map_err(|_| Failure::Lost)?;
                if is_before(row_token, &key) || is_expired(expiry) {
                    continue;
                }
                if visit(Scanned::Key(key.get(1..).unwrap_or_default())).is_break() {
                    return Ok(());
                }
            }
            match next {
                PagingStateResponse::HasMorePages { state: next } => state = next,
                PagingStateResponse::NoMorePages => return Ok(()),
            }
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

fn present(result: QueryResult) -> Result<Option<Present>, Failure> {
    let rows = result.into_rows_result().map_err(|_| Failure::Lost)?;
    let row = rows.maybe_first_row::<Columns>().map_err(|_| Failure::Lost)?;
    // The cell may expire before the others of its row.
    let Some((Some(cell), entry)) = row else { return Ok(None) };
    let record = cell::decode(cell).ok_or(Failure::Lost)?;
    let (version, meta) = (record.version.cast_signed(), record.meta);
    let record = (!meta.is_expired(now_ms())).then_some(record);
    Ok(Some(Present { version, expires_at_ms: meta.expires_at_ms, entry, record }))
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
mod on_nodes;

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
