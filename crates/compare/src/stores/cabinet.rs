//! cabinet: hash and tree databases without tuning, a tree with a tenth of the data in memory, and
//! a fixed-length database with room for the records.

use super::{Purpose, Session, Store};
use ::cabinet::Database;
use anyhow::Result;
use std::ops::ControlFlow;
use std::path::Path;

pub(super) struct Cabinet {
    database: Database,
}

impl Cabinet {
    pub(super) fn open(name: &str, folder: &Path, purpose: &Purpose) -> Result<Self> {
        let durability = if purpose.durable { "#durability=always" } else { "" };
        let (file, tuning) = match name {
            "cabinet-tree" => ("casket.tcb", String::new()),
            "cabinet-tree-tenth" => {
                ("casket.tcb", format!("#cache={}", (purpose.live_bytes() / 10).max(64 << 10)))
            }
            "cabinet-fixed" => {
                let (width, bytes) = (purpose.value_bytes, purpose.slot_bytes());
                ("casket.tcf", format!("#width={width}#limsiz={bytes}"))
            }
            _ => ("casket.tch", String::new()),
        };
        let name = format!("{}{durability}{tuning}", folder.join(file).display());
        Ok(Self { database: Database::open(&name)? })
    }
}

impl Store for Cabinet {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(CabinetSession { database: &self.database }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Dropping the last handle closes the database.
        drop(self);
        Ok(())
    }
}

struct CabinetSession<'a> {
    database: &'a Database,
}

impl Session for CabinetSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.database.put(key, value)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.database.read(key, |entry| visit(entry.value))?.is_some())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Ok(self.database.for_each(|entry| {
            visit(entry.key, entry.value);
            ControlFlow::Continue(())
        })?)
    }
}
