//! fjall.

use super::{CACHE_BYTES, Purpose, Session, Store};
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use anyhow::Result;
use std::path::Path;

pub(super) struct Fjall {
    database: Database,
    records: Keyspace,
    durable: bool,
}

impl Fjall {
    pub(super) fn open(folder: &Path, purpose: &Purpose) -> Result<Self> {
        let builder = Database::builder(folder.join("fjall"));
        let database = builder.cache_size(CACHE_BYTES as u64).open()?;
        let records = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Self { database, records, durable: purpose.durable })
    }
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

struct FjallSession<'a> {
    store: &'a Fjall,
}

impl Session for FjallSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.records.insert(key, value)?;
        if self.store.durable {
            self.store.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(value) = self.store.records.get(key)? else { return Ok(false) };
        visit(&value);
        Ok(true)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for record in self.store.records.iter() {
            let (key, value) = record.into_inner()?;
            visit(&key, &value);
        }
        Ok(())
    }
}
