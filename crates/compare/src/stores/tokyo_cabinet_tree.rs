//! Tokyo Cabinet's B+ tree: with its defaults, or with a tenth of the data in memory.

use super::{Purpose, Session, Store};
use crate::ffi::tokyo_cabinet_tree::{TreeDatabase, User};
use anyhow::Result;
use std::path::Path;

pub(super) struct TokyoCabinetTree {
    database: TreeDatabase,
    durable: bool,
}

/// Records of a leaf by default, and bytes of memory of each besides key and value.
const LEAF_RECORDS: u64 = 128;
const RECORD_OVERHEAD_BYTES: u64 = 24;

impl TokyoCabinetTree {
    pub(super) fn open(name: &str, folder: &Path, purpose: &Purpose) -> Result<Self> {
        let record = (purpose.key_bytes + purpose.value_bytes) as u64 + RECORD_OVERHEAD_BYTES;
        let leaves = (purpose.live_bytes() / 10 / (LEAF_RECORDS * record)).max(1);
        let cached = (name == "tc-tree-tenth").then_some(leaves.try_into()?);
        let path = folder.join("casket.tcb");
        let database = TreeDatabase::open(&path, purpose.threads > 1, cached)?;
        Ok(Self { database, durable: purpose.durable })
    }
}

impl Store for TokyoCabinetTree {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(TokyoCabinetTreeSession { user: self.database.user()?, durable: self.durable }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.user()?.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

struct TokyoCabinetTreeSession<'a> {
    user: User<'a>,
    durable: bool,
}

impl Session for TokyoCabinetTreeSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.user.put(key, value)?;
        if self.durable {
            self.user.sync()?;
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.user.get(key, visit)?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Ok(self.user.for_each(visit)?)
    }
}
