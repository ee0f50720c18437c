//! Embedded stores behind one small interface.

mod batch;
#[cfg(feature = "cabinet")]
mod cabinet;
mod fjall;
mod lmdb;
mod none;
mod redb;
mod rocksdb;
mod tokyo_cabinet;
mod tokyo_cabinet_fixed;
mod tokyo_cabinet_tree;

use anyhow::{Result, bail};
use std::path::Path;

/// Writes of LMDB and redb per transaction, and reads per snapshot, unless writes must be durable.
/// With a transaction for each, only the commit would be measured.
const TRANSACTION_OPERATIONS: usize = 100;

/// Bytes of the block caches of RocksDB and fjall, far above their defaults.
const CACHE_BYTES: usize = 256 << 20;

/// An open store. Threads share it, each through a session of its own.
pub trait Store: Sync {
    /// Returns a session for one thread.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Makes everything written durable.
    fn sync(&self) -> Result<()>;

    /// Closes the store cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Use of a store by one thread.
pub trait Session {
    /// Stores a record; it may be batched with the following ones until [`Session::finish`].
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Calls `visit` with a value. Returns whether there is one.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Visits all records in the store's own order.
    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Writes the batched records.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Purpose for which a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// Records it will hold.
    pub records: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Threads that will use it.
    pub threads: usize,
    /// Whether each put waits for the disk.
    pub durable: bool,
    /// Whether keys are ids from 1 to `records`.
    pub numbered: bool,
}

impl Purpose {
    /// Returns the bytes of all keys and values.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.records * (self.key_bytes + self.value_bytes) as u64
    }

    /// Returns more bytes than all slots need in Tokyo Cabinet's fixed-length file.
    fn slot_bytes(&self) -> u64 {
        (self.records + 1) * (self.value_bytes as u64 + 4) + (1 << 20)
    }
}

/// Names of all stores for [`open`].
pub const NAMES: &[&str] = &[
    "cabinet",
    "cabinet-tree",
    "cabinet-tree-tenth",
    "cabinet-fixed",
    "tc",
    "tc-mapped",
    "tc-default",
    "tc-tree",
    "tc-tree-tenth",
    "tc-fixed",
    "lmdb",
    "rocksdb",
    "redb",
    "fjall",
    "none",
];

/// Returns whether the keys of a store are ids, as from [`crate::records::fill_id`].
#[must_use]
pub fn is_numbered(name: &str) -> bool {
    name.ends_with("-fixed")
}

/// Opens the store of this name in a folder, or creates it.
pub fn open(name: &str, folder: &Path, purpose: &Purpose) -> Result<Box<dyn Store>> {
    Ok(match name {
        #[cfg(feature = "cabinet")]
        "cabinet" | "cabinet-tree" | "cabinet-tree-tenth" | "cabinet-fixed" => {
            Box::new(cabinet::Cabinet::open(name, folder, purpose)?)
        }
        "tc" | "tc-mapped" | "tc-default" => {
            Box::new(tokyo_cabinet::TokyoCabinet::open(name, folder, purpose)?)
        }
        "tc-tree" | "tc-tree-tenth" => {
            Box::new(tokyo_cabinet_tree::TokyoCabinetTree::open(name, folder, purpose)?)
        }
        "tc-fixed" => Box::new(tokyo_cabinet_fixed::TokyoCabinetFixed::open(folder, purpose)?),
        "lmdb" => Box::new(lmdb::Lmdb::open(folder, purpose)?),
        "rocksdb" => Box::new(rocksdb::RocksDb::open(folder, purpose)?),
        "redb" => Box::new(redb::Redb::open(folder, purpose)?),
        "fjall" => Box::new(fjall::Fjall::open(folder, purpose)?),
        "none" => Box::new(none::None),
        unknown => bail!("no store is called {unknown}; there are {}", NAMES.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Records, fill_id, fill_key};

    fn works(name: &str, durable: bool) {
        let folder = tempfile::tempdir().unwrap();
        let numbered = is_numbered(name);
        let purpose = Purpose {
            records: 250,
            key_bytes: 16,
            value_bytes: 100,
            threads: 2,
            durable,
            numbered,
        };
        let records = Records::new();
        let key = |number| {
            let mut key = vec![0; 16];
            if numbered {
                fill_id(number, 251, &mut key);
            } else {
                fill_key(number, &mut key);
            }
            key
        };
        let store = open(name, folder.path(), &purpose).unwrap();
        let mut session = store.session().unwrap();
        for number in 0..250 {
            session.put(&key(number), records.value(number, 0, 100)).unwrap();
        }
        session.finish().unwrap();
        drop(session);
        store.sync().unwrap();
        store.close().unwrap();
        let store = open(name, folder.path(), &purpose).unwrap();
        let mut session = store.session().unwrap();
        for number in 0..250 {
            let mut right = false;
            let found = session.get(&key(number), &mut |value| {
                right = value == records.value(number, 0, 100);
            });
            assert!(found.unwrap() && right, "record {number}");
        }
        assert!(!session.get(&key(250), &mut |_| {}).unwrap());
        let mut count = 0;
        session
            .scan(&mut |key, value| {
                let is_whole = (key.len() == 16 || numbered) && value.len() == 100;
                count += usize::from(is_whole);
            })
            .unwrap();
        assert_eq!(count, 250);
    }

    #[test]
    fn every_store_returns_its_records() {
        let others = |name: &&&str| **name != "none" && !name.starts_with("cabinet");
        for name in NAMES.iter().filter(others) {
            works(name, false);
            works(name, true);
        }
    }

    #[cfg(feature = "cabinet")]
    #[test]
    fn cabinet_returns_its_records() {
        works("cabinet", false);
        works("cabinet", true);
        works("cabinet-fixed", false);
        works("cabinet-fixed", true);
        works("cabinet-tree", false);
        works("cabinet-tree", true);
    }
}
