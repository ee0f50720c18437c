//! Tokyo Cabinet's fixed-length database, with room for the records.

use super::{Purpose, Session, Store};
use crate::ffi::tokyo_cabinet_fixed::{FixedDatabase, User};
use crate::records::VALUE_BYTES_MAX;
use anyhow::Result;
use std::path::Path;

pub(super) struct TokyoCabinetFixed {
    database: FixedDatabase,
    durable: bool,
}

impl TokyoCabinetFixed {
    pub(super) fn open(folder: &Path, purpose: &Purpose) -> Result<Self> {
        let (width, bytes) = (purpose.value_bytes, purpose.slot_bytes());
        let path = folder.join("casket.tcf");
        let database = FixedDatabase::open(&path, width, bytes, purpose.threads > 1)?;
        Ok(Self { database, durable: purpose.durable })
    }
}

impl Store for TokyoCabinetFixed {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let buffer = vec![0; VALUE_BYTES_MAX];
        let user = self.database.user()?;
        Ok(Box::new(FixedSession { user, durable: self.durable, buffer }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.user()?.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

struct FixedSession<'a> {
    user: User<'a>,
    durable: bool,
    buffer: Vec<u8>,
}

impl Session for FixedSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.user.put(key, value)?;
        if self.durable {
            self.user.sync()?;
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(size) = self.user.get(key, &mut self.buffer)? else { return Ok(false) };
        visit(&self.buffer[..size]);
        Ok(true)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Ok(self.user.for_each(&mut self.buffer, visit)?)
    }
}
