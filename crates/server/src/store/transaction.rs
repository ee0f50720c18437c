//! Transactions: changes of several records that are made and logged together or not at all.
//!
//! A transaction takes no locks until it is committed. If another client has changed a record that
//! it has read, the commit fails with [`Error::Conflict`] and changes nothing. The update log gets
//! the resulting records as one entry, which replicas execute as a transaction.

use super::Store;
use super::events::Event;
use super::view::View;
use crate::update_log::{Scope, is_relative};
use cabinet::{Batch, BatchChange, Error, Meta, Result, Transaction};
use parking_lot::{RwLock, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Numbers of the transactions that were made, by which a reader of several records knows that it
/// has seen none of them in part.
#[derive(Debug, Default)]
pub(super) struct Commits {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Shared by those that are being made. A reader that is disturbed again and again keeps them
    /// out.
    gate: RwLock<()>,
}

/// State of the transactions when a reader began.
#[derive(Debug)]
pub(crate) struct CommitMark {
    begun: u64,
    ended: u64,
}

/// A transaction, and a store whose changes are those of the transaction.
pub(crate) struct StoreTransaction {
    transaction: Transaction,
    store: Store,
}

impl StoreTransaction {
    /// Returns the store that reads and changes records within the transaction.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

impl Store {
    /// Begins a transaction that may hold this many bytes, if `has_room` returns that there is
    /// memory for them.
    pub(crate) fn transaction(
        &self,
        bytes_max: usize,
        has_room: impl FnMut(usize) -> bool + Send + 'static,
    ) -> StoreTransaction {
        let transaction = self.view.database.transaction_within(bytes_max, has_room);
        let view = View { database: (*transaction).clone() };
        let rows_within = Some(self.has_rows());
        let pending_events = self.raises_events().then(Arc::default);
        let store = Self { view, log: None, rows_within, pending_events, ..self.clone() };
        StoreTransaction { store, transaction }
    }

    /// Fails within a transaction, where rows are changed as a whole.
    pub(crate) fn check_columns_change(&self) -> Result<()> {
        match self.rows_within {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported {
                operation: "changes of the columns of a row",
                kind: "a transaction",
                advice: "put the whole row, or call it before or after",
            }),
        }
    }

    /// Fails if one of some keys cannot be changed within a transaction: it means another record at
    /// each use.
    pub(crate) fn check_transaction_keys<'k>(
        &self,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<()> {
        let (has_ids, has_rows) = (self.as_numbered().is_some(), self.has_rows());
        let is_chosen = |key: &[u8]| has_ids && is_relative(key) || has_rows && key.is_empty();
        if (has_ids || has_rows) && keys.any(is_chosen) {
            return Err(Error::Unsupported {
                operation: "keys that the server chooses",
                kind: "a transaction",
                advice: "give the key itself",
            });
        }
        Ok(())
    }

    /// Makes the changes of a transaction. Returns whether there were any.
    pub(crate) fn commit(&self, transaction: StoreTransaction) -> Result<bool> {
        let StoreTransaction { transaction, store } = transaction;
        let batch = transaction.into_batch();
        if batch.is_empty() {
            // Records that were read must be unchanged nevertheless.
            return self.view.database.write(&batch).map(|()| false);
        }
        self.write(&batch)?;
        if let Some(pending) = store.pending_events {
            pending.send(&self.events);
        }
        Ok(true)
    }

    /// Stores records together, in place of those that their keys have. `count` is their number,
    /// and `bytes` those of their keys and values.
    pub(crate) fn put_together<'k>(
        &self,
        records: impl Iterator<Item = (&'k [u8], &'k [u8])>,
        (count, bytes): (usize, usize),
    ) -> Result<()> {
        let mut batch = Batch::with_capacity(count, bytes);
        records.for_each(|(key, value)| batch.put(key, value, Meta::NONE));
        self.write(&batch)?;
        if self.raises_events() {
            batch.changes().try_for_each(|(key, _)| self.raise(Event::Set, key))?;
        }
        Ok(())
    }

    /// Returns a mark for a reader of several records, which sees them one after the other.
    pub(crate) fn commit_mark(&self) -> CommitMark {
        let ended = self.commits.ended.load(Ordering::Acquire);
        CommitMark { begun: self.commits.begun.load(Ordering::Acquire), ended }
    }

    /// Returns whether a transaction was being made at the mark, or was begun since.
    pub(crate) fn has_commits_since(&self, mark: &CommitMark) -> bool {
        // A record of a transaction that was read was written after the transaction had begun.
        fence(Ordering::Acquire);
        mark.begun != mark.ended || self.commits.begun.load(Ordering::Relaxed) != mark.begun
    }

    /// Keeps transactions out until the guard is dropped.
    pub(crate) fn keep_commits_out(&self) -> RwLockWriteGuard<'_, ()> {
        self.commits.gate.write()
    }

    fn write_marked(&self, batch: &Batch) -> Result<()> {
        let gate = &self.commits.gate;
        let _shared = match self.may_wait {
            true => gate.read(),
            false => gate.try_read().ok_or(Error::WouldBlock)?,
        };
        self.commits.begun.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        let written = self.view.database.write(batch);
        self.commits.ended.fetch_add(1, Ordering::Release);
        written
    }

    fn write(&self, batch: &Batch) -> Result<()> {
        self.pass()?;
        let Some(log) = &self.log else { return self.write_marked(batch) };
        let mut keys = Vec::new();
        for (key, change) in batch.changes() {
            if let BatchChange::Put(value, _) = change {
                log.check_value(value.len())?;
            }
            keys.push(key);
        }
        let guard = self.begin(log, Scope::Several(&keys))?;
        for key in keys {
            self.expire(&guard, key)?;
        }
        self.write_marked(batch)?;
        for (key, change) in batch.changes() {
            match change {
                BatchChange::Put(value, meta) => self.log_put(&guard, key, value, meta),
                // The record may never have been there, and a key may have further values.
                BatchChange::Remove => self.log_whole(&guard, key),
            }
        }
        Ok(())
    }
}
