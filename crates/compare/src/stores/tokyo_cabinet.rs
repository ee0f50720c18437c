//! Tokyo Cabinet's hash database: tuned to its records, fully mapped, or with its defaults.

use super::{Purpose, Session, Store};
use crate::ffi::tokyo_cabinet::{HashDatabase, Tuning, User};
use crate::records::VALUE_BYTES_MAX;
use anyhow::Result;
use std::path::Path;

pub(super) struct TokyoCabinet {
    database: HashDatabase,
    durable: bool,
}

impl TokyoCabinet {
    pub(super) fn open(name: &str, folder: &Path, purpose: &Purpose) -> Result<Self> {
        let buckets = (name != "tc-default").then_some(purpose.records * 2);
        // Buckets use 8 bytes, records their own size and about 32 bytes of header and padding.
        let file_bytes = purpose.live_bytes() + purpose.records * (2 * 8 + 32);
        let mapped_bytes = (name == "tc-mapped").then_some(file_bytes * 2 + (64 << 20));
        let tuning = Tuning { buckets, mapped_bytes, threads: purpose.threads > 1 };
        let database = HashDatabase::open(&folder.join("casket.tch"), tuning)?;
        Ok(Self { database, durable: purpose.durable })
    }
}

impl Store for TokyoCabinet {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let buffer = vec![0; VALUE_BYTES_MAX];
        let user = self.database.user()?;
        Ok(Box::new(TokyoCabinetSession { user, durable: self.durable, buffer }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.user()?.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

struct TokyoCabinetSession<'a> {
    user: User<'a>,
    durable: bool,
    buffer: Vec<u8>,
}

impl Session for TokyoCabinetSession<'_> {
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
        Ok(self.user.for_each(visit)?)
    }
}
