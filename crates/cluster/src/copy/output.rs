//! Copy of records out of a database: pages in the order of the cluster's tokens, read ahead.

use super::repeat;
use crate::cell;
use crate::error::Result;
use crate::schema;
use crate::session::{Cluster, Failure};
use crate::store::ClusterStore;
use cabinet::Meta;
use scylla::response::{PagingState, PagingStateResponse};
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

/// A record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRecord {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
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
        let select = format!("SELECT token(k), k, v FROM {table} WHERE token(k) >= ?");
        let statement = store.runtime()?.block_on(shared.cluster.prepare_scan(&select))?;
        let (sender, pages) = mpsc::channel(PAGES_AHEAD);
        let reader = store.runtime()?.spawn(async move {
            let reader = Reader { cluster: &shared.cluster, statement, patience };
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

struct Reader<'c> {
    cluster: &'c Cluster,
    statement: PreparedStatement,
    patience: Duration,
}

impl Reader<'_> {
    /// Sends all pages from a token on, until the receiver is gone.
    async fn read(mut self, from: i64, pages: &Sender<Result<Page>>) -> Result<()> {
        let mut state = PagingState::start();
        let mut rows = PAGE_ROWS.0;
        loop {
            self.statement.set_page_size(rows);
            let (page, next) = repeat!(self.patience, self.page(from, state.clone()))?;
            if let Some(page) = page {
                let bytes = page.records.iter().map(|record| record.key.len() + record.value.len());
                rows = next_rows(rows, bytes.max().unwrap_or(0));
                if pages.send(Ok(page)).await.is_err() {
                    return Ok(());
                }
            }
            match next {
                PagingStateResponse::HasMorePages { state: next } => state = next,
                PagingStateResponse::NoMorePages => return Ok(()),
            }
        }
    }

    /// Reads a page, which may have no rows.
    async fn page(
        &self,
        from: i64,
        state: PagingState,
    ) -> Result<(Option<Page>, PagingStateResponse), Failure> {
        let (result, next) = self.cluster.page(&self.statement, (from,), state).await?;
        let rows = result.into_rows_result().map_err(|_| Failure::Lost)?;
        let (mut records, mut last) = (Vec::new(), None);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        for row in rows.rows::<(i64, Vec<u8>, Option<Vec<u8>>)>().map_err(|_| Failure::Lost)? {
            let (token, mut key, cell) = row.map_err(|_| Failure::Lost)?;
            last = Some(token);
            // Without the cell, the record has expired.
            let Some(cell) = cell else { continue };
            let FoundRecord { value, meta, .. } = cell::decode(cell).ok_or(Failure::Lost)?;
            if !meta.is_expired(now_ms) {
                // The byte before each key.
                key.drain(..1.min(key.len()));
                let value = Arc::unwrap_or_clone(value);
                records.push(CopiedRecord { key, value, meta });
            }
        }
        Ok((last.map(|token| Page { records, token }), next))
    }
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
