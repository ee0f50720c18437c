//! LMDB.

use super::batch::Batch;
use super::{Purpose, Session, Store, TRANSACTION_OPERATIONS};
use crate::ffi;
use anyhow::{Context as _, Result};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, RoTxn, WithTls};
use std::path::Path;

pub(super) struct Lmdb {
    environment: Env,
    durable: bool,
}

impl Lmdb {
    pub(super) fn open(folder: &Path, purpose: &Purpose) -> Result<Self> {
        // Pages filled in random order are two thirds full, and snapshots keep some pages. The file
        // grows as it is used, so a large map costs nothing.
        let map_bytes = usize::try_from(purpose.live_bytes())? * 8;
        let map_bytes = (map_bytes + (1 << 30)).next_multiple_of(1 << 20);
        let environment = ffi::lmdb::open(folder, map_bytes, purpose.durable)?;
        Ok(Self { environment, durable: purpose.durable })
    }
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let environment = &self.environment;
        let transaction = environment.write_txn()?;
        let records = environment
            .create_databases_and_commit(transaction, |opener, transaction| {
                opener
                    .create_database::<Bytes, Bytes>(transaction, None)
                    .map(CommitOrAbort::<_, ()>::Commit)
            })?
            .commit()
            .context("the unnamed database is always there")?;
        Ok(Box::new(LmdbSession {
            environment,
            records,
            durable: self.durable,
            batch: Batch::default(),
            reader: None,
            reads: 0,
        }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.environment.force_sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.environment.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbSession<'a> {
    environment: &'a Env,
    records: Database<'a, Bytes, Bytes>,
    durable: bool,
    batch: Batch,
    reader: Option<RoTxn<'a, WithTls>>,
    reads: usize,
}

impl Session for LmdbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.push(key, value);
        if self.durable || self.batch.is_full() { self.finish() } else { Ok(()) }
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.reads.is_multiple_of(TRANSACTION_OPERATIONS) {
            // Ended before the next begins, because a thread has one at a time.
            self.reader = None;
        }
        self.reads += 1;
        let reader = match &self.reader {
            Some(reader) => reader,
            None => self.reader.insert(self.environment.read_txn()?),
        };
        let Some(value) = self.records.get(reader, key)? else { return Ok(false) };
        visit(value);
        Ok(true)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.reader = None;
        let reader = self.environment.read_txn()?;
        for record in self.records.iter(&reader)? {
            let (key, value) = record?;
            visit(key, value);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            let mut transaction = self.environment.write_txn()?;
            for (key, value) in self.batch.records() {
                self.records.put(&mut transaction, key, value)?;
            }
            transaction.commit()?;
            self.batch.clear();
        }
        Ok(())
    }
}
