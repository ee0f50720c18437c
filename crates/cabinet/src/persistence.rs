//! Persistence: the medium that records are stored on, and how durable they are there.

use crate::{
    Damage, Durability, DurableListener, GoOn, LogPosition, Result, SnapshotBarrier, Verified,
};
use std::path::{Path, PathBuf};

/// Files of an open database, or the memory that holds its records. All methods may be called from
/// any thread at once. The provided methods are those of records in memory, which are never
/// durable.
pub trait Persistence: Send + Sync {
    /// Returns the path of the database; `*` or `+` for the on-memory kinds.
    fn path(&self) -> PathBuf;

    /// Returns the size on the disk in bytes; the size in memory of an on-memory database.
    fn size_bytes(&self) -> u64;

    /// Writes a consistent copy to `path`, which must not exist, at a moment that `barrier`
    /// chooses.
    fn copy_at(&self, path: &Path, barrier: &mut SnapshotBarrier<'_>) -> Result<()>;

    /// Makes everything written so far durable.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the damage that opening the database has found, and that which an earlier opening
    /// has set aside.
    fn damages(&self) -> Vec<Damage> {
        Vec::new()
    }

    /// Verifies every checksum of the files while they are in use, see
    /// [`crate::Database::verify`].
    fn verify<'r>(
        &self,
        _go_on: &'r mut GoOn<'r>,
        _report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified> {
        Ok(Verified { is_complete: true, ..Verified::default() })
    }

    /// Returns the durability with which the database was opened.
    fn durability(&self) -> Durability {
        Durability::None
    }

    /// Returns the end of the log. It is after each operation that has returned.
    fn appended(&self) -> LogPosition {
        0
    }

    /// Returns the position before which everything is durable.
    fn durable(&self) -> LogPosition {
        0
    }

    /// Blocks until `position` is durable. Fails if the sync failed.
    fn wait_durable(&self, _position: LogPosition) -> Result<()> {
        Ok(())
    }

    /// Sets a function that is called whenever the durable position moves, and when a sync fails.
    fn on_durable(&self, _listener: DurableListener) {}
}
