//! redb.

use super::batch::Batch;
use super::{Purpose, Session, Store, TRANSACTION_OPERATIONS};
use ::redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _, TableDefinition,
};
use anyhow::Result;
use std::path::Path;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

pub(super) struct Redb {
    database: Database,
    durable: bool,
}

impl Redb {
    pub(super) fn open(folder: &Path, purpose: &Purpose) -> Result<Self> {
        let database = Database::create(folder.join("casket.redb"))?;
        let store = Self { database, durable: purpose.durable };
        // Reading needs the table to exist.
        store.write(&Batch::default(), Durability::Immediate)?;
        Ok(store)
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in batch.records() {
            table.insert(key, value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn reader(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>> {
        Ok(self.database.begin_read()?.open_table(TABLE)?)
    }
}

impl Store for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { store: self, batch: Batch::default(), reader: None, reads: 0 }))
    }

    fn sync(&self) -> Result<()> {
        self.write(&Batch::default(), Durability::Immediate)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

struct RedbSession<'a> {
    store: &'a Redb,
    batch: Batch,
    reader: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    reads: usize,
}

impl Session for RedbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.push(key, value);
        if self.store.durable || self.batch.is_full() { self.finish() } else { Ok(()) }
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.reads.is_multiple_of(TRANSACTION_OPERATIONS) {
            self.reader = None;
        }
        self.reads += 1;
        let reader = match &self.reader {
            Some(reader) => reader,
            None => self.reader.insert(self.store.reader()?),
        };
        let Some(value) = reader.get(key)? else { return Ok(false) };
        visit(value.value());
        Ok(true)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for record in self.store.reader()?.iter()? {
            let (key, value) = record?;
            visit(key.value(), value.value());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            let durable = self.store.durable;
            let durability = if durable { Durability::Immediate } else { Durability::None };
            self.store.write(&self.batch, durability)?;
            self.batch.clear();
        }
        Ok(())
    }
}
