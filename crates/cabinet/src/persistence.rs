//! Medium of the records of a database, and their persistence if it is a disk.

use crate::{
    Damage, Durability, DurableListener, GoOn, LogPosition, Result, SnapshotBarrier, Verified,
};
use std::path::{Path, PathBuf};

/// Files of an open database, or the memory that holds its records: the operations that make sense
/// on both. All methods may be called from any thread at once.
pub trait Medium: Send + Sync {
    /// Returns the path of the database; `*` or `+` for the on-memory kinds.
    fn path(&self) -> PathBuf;

    /// Returns the size on the disk in bytes; the size in memory of an on-memory database.
    fn size_bytes(&self) -> u64;

    /// Writes a consistent copy to `path`, which must not exist, at a moment that `barrier`
    /// chooses.
    fn copy_at(&self, path: &Path, barrier: &mut SnapshotBarrier<'_>) -> Result<()>;

    /// Makes everything written so far durable. Does nothing for records in memory, which are never
    /// durable.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// Log of an open database on the disk: how far it is durable, and where it is damaged. Records in
/// memory have none. All methods may be called from any thread at once.
pub trait Persistence: Send + Sync {
    /// Returns the damage that opening the database has found, and that which an earlier opening
    /// has set aside.
    fn damages(&self) -> Vec<Damage>;

    /// Verifies every checksum of the files while they are in use, see
    /// [`crate::Database::verify`].
    fn verify<'r>(
        &self,
        go_on: &'r mut GoOn<'r>,
        report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified>;

    /// Returns the durability with which the database was opened.
    fn durability(&self) -> Durability;

    /// Returns the end of the log. It is after each operation that has returned.
    fn appended(&self) -> LogPosition;

    /// Returns the position before which everything is durable.
    fn durable(&self) -> LogPosition;

    /// Blocks until `position` is durable. Fails if the sync failed.
    fn wait_durable(&self, position: LogPosition) -> Result<()>;

    /// Sets a function that is called whenever the durable position moves, and when a sync fails.
    fn on_durable(&self, listener: DurableListener);
}
