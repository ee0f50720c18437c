//! Maintenance: the operations on a database as a whole.

use crate::log::record::stored_bytes;
use crate::{Batch, KeyReports, Medium, Options, Persistence, RecordRef, Result, Wait};

/// Size, settings and upkeep of an open database. All methods may be called from several threads at
/// once.
pub trait Maintenance: Send + Sync {
    /// Returns the number of records. Expired ones count until they are removed.
    fn len(&self) -> u64;

    /// Returns whether there is no record.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the database was opened for reading only. A [`Database`](crate::Database)
    /// asks once, and refuses writes itself.
    fn is_read_only(&self) -> bool;

    /// Returns whether there is a cap, above which records are evicted.
    fn evicts(&self) -> bool {
        false
    }

    /// Returns the stats: names and values, for `stat`.
    fn stats(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns the bytes that a record takes: of memory in an on-memory database, otherwise of the
    /// log, before it is compressed.
    fn record_bytes(&self, record: &RecordRef<'_>) -> u64 {
        stored_bytes(record.key, record.value, record.meta) as u64
    }

    /// Reclaims all dead space, and returns when that is done.
    ///
    /// With options, first applies those that an open database can change. Options that are not
    /// given stay unchanged, including the cap on bytes of a disk database. A cap of an on-memory
    /// database that is not given is lifted. If the cap of a disk database is given, records are
    /// evicted down to it in the background, and nothing is optimized.
    fn optimize(&self, options: Option<&Options>) -> Result<()>;

    /// Removes all records, and stores those that the batch puts. A tree does both or neither, also
    /// across a crash.
    fn replace_all(&self, batch: &Batch) -> Result<()>;

    /// Removes the records of a key that have expired. Returns whether there were any. Rows do not
    /// expire.
    fn remove_expired(&self, _key: &[u8], _wait: Wait) -> Result<bool> {
        Ok(false)
    }

    /// Looks for expired records, in an engine that otherwise does so only while writing.
    fn find_expired(&self) {}

    /// Returns the lists for the keys of expired records, which the caller must remove, and of
    /// evicted ones, if there may be any.
    fn reports(&self) -> Option<&KeyReports> {
        None
    }

    /// Removes the record of a key if it is damaged, so that [`crate::Engine::update`] cannot read
    /// it. Returns whether it was. A record that shares a page with others stays, because they are
    /// damaged together.
    fn remove_damaged(&self, _key: &[u8], _wait: Wait) -> Result<bool> {
        Ok(false)
    }

    /// Returns the medium that the records are stored on.
    fn medium(&self) -> &dyn Medium;

    /// Returns the log on the disk; `None` if the records are in memory.
    fn persistence(&self) -> Option<&dyn Persistence> {
        None
    }
}
