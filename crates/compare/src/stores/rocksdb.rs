//! RocksDB.

use super::{CACHE_BYTES, Purpose, Session, Store};
use crate::ffi::rocksdb::Database;
use anyhow::Result;
use std::path::Path;

pub(super) struct RocksDb {
    database: Database,
}

impl RocksDb {
    pub(super) fn open(folder: &Path, purpose: &Purpose) -> Result<Self> {
        let database = Database::open(&folder.join("rocksdb"), CACHE_BYTES, purpose.durable)?;
        Ok(Self { database })
    }
}

impl Store for RocksDb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RocksDbSession { database: &self.database }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

struct RocksDbSession<'a> {
    database: &'a Database,
}

impl Session for RocksDbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.database.put(key, value)?)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.database.get(key, visit)?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Ok(self.database.for_each(visit)?)
    }
}
