//! Operations on the whole database: size, durability, copies, verification.

use super::Database;
use crate::base::{barrier, reentry};
use crate::name::options_of;
use crate::{
    Damage, Durability, DurableListener, Error, GoOn, Kind, LogPosition, Result, Verified,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Database {
    /// Returns the number of records. Expired ones count until they are removed.
    pub fn len(&self) -> u64 {
        self.engine.len()
    }

    /// Returns whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.engine.is_empty()
    }

    /// Returns the size in bytes: on the disk, or in memory for an on-memory database. In a
    /// callback of an on-memory hash database, its tables are not counted.
    pub fn size_bytes(&self) -> u64 {
        self.engine.medium().size_bytes()
    }

    /// Returns the path of the database; `*` or `+` for the on-memory kinds.
    pub fn path(&self) -> PathBuf {
        self.engine.medium().path()
    }

    /// Returns the kind of the database; `None` for an engine of another crate whose path names no
    /// kind.
    pub fn kind(&self) -> Option<Kind> {
        self.kind.or_else(|| Kind::of_path(&self.path()))
    }

    /// Returns the error of an operation that this kind of database does not have.
    pub(super) fn unsupported(&self, operation: &'static str, advice: &'static str) -> Error {
        let kind = self.kind().map_or("this kind of database", Kind::described);
        Error::Unsupported { operation, kind, advice }
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        self.enter()?;
        self.engine.medium().sync()
    }

    /// Reclaims all dead space, and returns when that is done.
    pub fn optimize(&self) -> Result<()> {
        self.enter_to_write()?;
        self.engine.optimize(None)
    }

    /// Applies tuning such as `width=100#limsiz=1g` (see [`crate::name`]), then reclaims all dead
    /// space. If it sets a cap on bytes of a database on disk, records are evicted down to the cap
    /// in the background instead. On-memory databases lose a cap that the tuning does not name.
    /// Unknown settings, and those that an open database cannot change, are ignored, as in Tokyo
    /// Cabinet.
    pub fn retune(&self, tuning: &str) -> Result<()> {
        self.enter_to_write()?;
        let options = self.kind().map(|kind| options_of(kind, tuning));
        self.engine.optimize(options.as_ref())
    }

    /// Writes a consistent copy to `path`, which must not exist, without delaying writers.
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        self.enter()?;
        self.engine.medium().copy_at(path, &mut barrier::at_once)
    }

    /// Verifies every checksum of the database's files while it is in use, and calls `report` with
    /// each damaged place. It delays no other operation. [`crate::check`] does the same for a
    /// database that is not open.
    ///
    /// `go_on` is called every 256 KiB, and every 0.1 s, with the result so far. It returns the
    /// most bytes to read per second from then on, or `None` to stop. A segment with damage found
    /// is never removed. Records that are appended meanwhile may be skipped.
    pub fn verify<'r>(
        &self,
        go_on: &'r mut GoOn<'r>,
        report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified> {
        self.enter()?;
        match self.engine.persistence() {
            Some(log) => log.verify(go_on, report),
            None => Ok(Verified { is_complete: true, ..Verified::default() }),
        }
    }

    /// Returns the durability with which the database was opened.
    pub fn durability(&self) -> Durability {
        self.engine.persistence().map_or(Durability::None, |log| log.durability())
    }

    /// Returns whether the database was opened for reading only. Every method that changes it then
    /// fails with [`ReadOnly`](crate::Error::ReadOnly).
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns the end of the log, which is after each operation that has returned.
    pub fn appended(&self) -> LogPosition {
        self.engine.persistence().map_or(0, |log| log.appended())
    }

    /// Returns the position before which everything is durable.
    pub fn durable(&self) -> LogPosition {
        self.engine.persistence().map_or(0, |log| log.durable())
    }

    /// Blocks until `position` is durable. Fails if the sync fails.
    pub fn wait_durable(&self, position: LogPosition) -> Result<()> {
        self.enter()?;
        self.engine.persistence().map_or(Ok(()), |log| log.wait_durable(position))
    }

    /// Sets a function that is called whenever the durable position moves, and when a sync fails.
    pub fn on_durable(&self, listener: DurableListener) -> Result<()> {
        self.enter()?;
        let engine_id = self.engine_id;
        if let Some(log) = self.engine.persistence() {
            log.on_durable(Arc::new(move |position| {
                reentry::in_record_callback(engine_id, || listener(position));
            }));
        }
        Ok(())
    }

    /// Returns the damaged places found while opening the database, and those that earlier openings
    /// have set aside. If there are any, records may be missing or outdated. [`crate::check`] also
    /// finds damage in files that opening does not read.
    pub fn damages(&self) -> Vec<Damage> {
        self.engine.persistence().map_or_else(Vec::new, |log| log.damages())
    }

    /// Returns the stats as names and values, for `stat`; none in a callback of this database.
    pub fn stats(&self) -> Vec<(&'static str, String)> {
        if reentry::is_within(self.engine_id) {
            return Vec::new();
        }
        self.engine.stats()
    }
}
