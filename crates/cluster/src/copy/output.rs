//! Copy of records out of a database: pages in the order of the cluster's tokens, read ahead.

use super::repeat;
use crate::cell;
use crate::error::{Error, Result};
use crate::schema;
use crate::shared::Shared;
use crate::store::ClusterStore;
use crate::table::is_there;
use crate::token_pages::{TokenPage, TokenPages};
use cabinet::Meta;
use scylla::response::query_result::QueryResult;
use scylla::statement::prepared::PreparedStatement;
use server::FoundRecord;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;

/// Pages that wait to be taken.
const PAGES_AHEAD: usize = 2;

/// Rows of the first page, and most rows of one.
const PAGE_ROWS: (i32, i32) = (16, 512);

/// Bytes of a page that its number of rows aims at. Rows have no length before they are read, so
/// pages that begin to have longer values are longer.
const PAGE_BYTES: usize = 512 << 10;

/// Token, key, value and expiry of a row.
type Columns = (i64, Vec<u8>, Option<Vec<u8>>, Option<i64>);

/// A record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRecord {
    /// The key.
    pub key: Vec<u8>,
    /// The value, or the encoding of a row ([`cabinet::table::Row::encode`]).
    pub value: Vec<u8>,
    /// Flags and expiry.
    pub meta: Meta,
}

/// Some records, and where the next ones begin.
#[derive(Debug)]
pub struct Page {
    /// Those that have not expired.
    pub records: Vec<CopiedRecord>,
    /// Token of the last one. A copy that goes on from it misses none.
    pub token: i64,
}

/// Pages of a database. The threads of the driver read ahead.
#[derive(Debug)]
pub struct CopyOut<'s> {
    store: &'s ClusterStore,
    pages: Receiver<Result<Page>>,
    reader: JoinHandle<()>,
}

impl<'s> CopyOut<'s> {
    /// Begins at a token, or at the first record. A page is tried again until all attempts have
    /// failed for longer than `patience`.
    pub fn begin(store: &'s ClusterStore, from: Option<i64>, patience: Duration) -> Result<Self> {
        let shared = Arc::clone(store.shared());
        let table = format!("{}.records", schema::quoted(&shared.name));
        let select = format!("SELECT token(k), k, v, e FROM {table}");
        let select = format!("{select} WHERE token(k) >= ? AND token(k) <= ?");
        let statement = store.runtime()?.block_on(shared.cluster.prepare_scan(&select))?;
        let (sender, pages) = mpsc::channel(PAGES_AHEAD);
        let reader = store.runtime()?.spawn(async move {
            let has_rows = shared.rows.is_some();
            let reader = Reader { shared: &shared, statement, has_rows, patience };
            if let Err(error) = reader.read(from.unwrap_or(i64::MIN), &sender).await {
                let _ = sender.send(Err(error)).await;
            }
        });
        Ok(Self { store, pages, reader })
    }

    /// Returns the next page, if there is one.
    pub fn page(&mut self) -> Result<Option<Page>> {
        self.store.runtime()?.block_on(self.pages.recv()).transpose()
    }
}

impl Drop for CopyOut<'_> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

struct Reader<'s> {
    shared: &'s Shared,
    statement: PreparedStatement,
    /// Values are rows of a table.
    has_rows: bool,
    patience: Duration,
}

impl Reader<'_> {
    /// Sends all pages from a token on, until the receiver is gone.
    async fn read(mut self, from: i64, sender: &Sender<Result<Page>>) -> Result<()> {
        let mut pages = TokenPages::from(Some(from));
        let mut rows = PAGE_ROWS.0;
        // Token and key of the last row.
        let mut last = None;
        loop {
            self.statement.set_page_size(rows);
            let next = repeat!(self.patience, pages.next(&self.shared.cluster, &self.statement))?;
            let page = match next {
                TokenPage::Rows(page) => *page,
                TokenPage::Narrower => continue,
                TokenPage::End => return Ok(()),
            };
            if let Some(page) = self.page(page, &mut last)? {
                pages.reach(page.token);
                let bytes = page.records.iter().map(|record| record.key.len() + record.value.len());
                rows = next_rows(rows, bytes.max().unwrap_or(0));
                if sender.send(Ok(page)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    /// Returns the rows of a page after the last one, if there are any.
    fn page(&self, page: QueryResult, last: &mut Option<(i64, Vec<u8>)>) -> Result<Option<Page>> {
        let rows = page.into_rows_result().map_err(|error| unreadable(&error))?;
        let mut records = Vec::new();
        let mut reached = None;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        for row in rows.rows::<Columns>().map_err(|error| unreadable(&error))? {
            let (token, mut key, cell, expiry) = row.map_err(|error| unreadable(&error))?;
            // A narrower range begins with the last token that was read.
            if last.as_ref().is_some_and(|last| (token, &key) <= (last.0, &last.1)) {
                continue;
            }
            reached = Some(token);
            *last = Some((token, key.clone()));
            // Without the cell, the record has expired.
            let Some(cell) = cell else { continue };
            let (value, meta) = if self.has_rows {
                if !expiry.is_some_and(is_there) {
                    continue;
                }
                (cell, Meta::NONE)
            } else {
                let record = cell::decode(cell);
                let FoundRecord { value, meta, .. } =
                    record.ok_or_else(|| unreadable(&format!("the cell at token {token}")))?;
                (Arc::unwrap_or_clone(value), meta)
            };
            if !meta.is_expired(now_ms) {
                // The byte before each key.
                key.drain(..1.min(key.len()));
                let key = self.shared.shown_key(key);
                records.push(CopiedRecord { key, value, meta });
            }
        }
        Ok(reached.map(|token| Page { records, token }))
    }
}

/// Returns the error of a row that is none of this version.
fn unreadable(reason: &dyn std::fmt::Display) -> Error {
    Error::Record { reason: format!("a row has another format: {reason}") }
}

/// Returns the number of rows of the next page, given that of the last one and the bytes of its
/// longest row.
fn next_rows(rows: i32, longest: usize) -> i32 {
    let fitting = i32::try_from(PAGE_BYTES / longest.max(1)).unwrap_or(i32::MAX);
    fitting.clamp(1, PAGE_ROWS.1.min(rows * 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_short_rows_grow_slowly_and_those_of_long_rows_are_short_at_once() {
        assert_eq!(next_rows(16, 100), 32);
        assert_eq!(next_rows(16, 0), 32);
        assert_eq!(next_rows(512, 100), 512);
        assert_eq!(next_rows(512, PAGE_BYTES / 10), 10);
        assert_eq!(next_rows(512, PAGE_BYTES), 1);
        assert_eq!(next_rows(512, PAGE_BYTES + 1), 1);
        assert_eq!(next_rows(1, 100), 2);
    }
}
