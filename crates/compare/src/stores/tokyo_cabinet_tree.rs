//! Tokyo Cabinet's B+ tree, as shipped.

use super::{Purpose, Session, Store};
use crate::ffi::tokyo_cabinet_tree::{TreeDatabase, User};
use anyhow::Result;
use std::path::Path;

pub(super) struct TokyoCabinetTree {
    database: TreeDatabase,
    durable: bool,
}

impl TokyoCabinetTree {
    pub(super) fn open(folder: &Path, purpose: &Purpose) -> Result<Self> {
        let database = TreeDatabase::open(&folder.join("casket.tcb"), purpose.threads > 1)?;
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
