//! On-memory engines, whose records are lost when the last handle is dropped.

mod capacity;
mod copy;
mod expiry;
mod hash;
mod index;
mod record;
mod shard;
mod tree;

pub use hash::MemoryHash;
pub use tree::MemoryTree;

use crate::{
    Batch, BatchChange, Engine, KeyReports, Maintenance, Medium, Meta, Options, RecordRef, Result,
    SnapshotBarrier, Wait,
};
use capacity::{Capacity, cost};
use record::{Record, bytes_of, size_bytes};
use std::path::{Path, PathBuf};

/// Most records that one step of a scan visits while it holds a lock.
const SCAN_RECORDS_MAX: usize = 64;

/// Bytes of records after which one step of a scan ends.
const SCAN_BYTES_MAX: usize = 64 * 1024;

/// Limit of one step of a scan, so that it does not hold its lock for long.
#[derive(Default)]
struct ScanBudget {
    records: usize,
    bytes: usize,
}

impl ScanBudget {
    fn spend(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes;
    }

    fn is_spent(&self) -> bool {
        self.records >= SCAN_RECORDS_MAX || self.bytes >= SCAN_BYTES_MAX
    }
}

/// An on-memory engine: the parts of it that depend on how it finds records.
trait MemoryEngine: Engine {
    fn capacity(&self) -> &Capacity;

    /// Returns the options with which the engine was opened.
    fn options(&self) -> &Options;

    /// Returns the memory of the tables, in bytes.
    fn table_bytes(&self) -> u64;

    /// Copies the live records into the database that `path` names.
    fn copy_to(&self, path: &Path) -> Result<()>;

    /// Evicts down to the caps after they have changed, or returns the memory of removed records to
    /// the allocator.
    fn fit(&self, has_new_caps: bool);

    /// Removes all records.
    fn clear(&self);

    /// Removes the record of a key if it has expired. Returns whether it has.
    fn remove_if_expired(&self, key: &[u8], wait: Wait) -> Result<bool>;

    /// Removes expired records, of which it looks for some in each part of the engine.
    fn sweep_parts(&self);

    fn record(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<Record> {
        let record = Record::new(key, value, meta, self.options().compression);
        self.capacity().check(record.size_bytes())?;
        Ok(record)
    }

    /// Returns the keys that a batch changes, with their new records.
    fn records<'b>(&self, batch: &'b Batch) -> Result<Vec<(&'b [u8], Option<Record>)>> {
        let record = |(key, change): (&'b [u8], BatchChange<'b>)| match change {
            BatchChange::Put(value, meta) => Ok((key, Some(self.record(key, value, meta)?))),
            BatchChange::Remove => Ok((key, None)),
        };
        batch.changes().map(record).collect()
    }

    fn is_live(&self, meta: Meta) -> bool {
        meta.expires_at_ms == 0 || !meta.is_expired(self.options().clock.now_ms())
    }
}

impl<E: MemoryEngine> Maintenance for E {
    fn len(&self) -> u64 {
        self.capacity().records()
    }

    fn is_read_only(&self) -> bool {
        self.options().read_only
    }

    fn evicts(&self) -> bool {
        self.capacity().is_capped()
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        self.capacity().stats()
    }

    fn record_bytes(&self, record: &RecordRef<'_>) -> u64 {
        let RecordRef { key, value, meta, .. } = *record;
        cost(size_bytes(bytes_of(key, value, meta)))
    }

    /// Returns the memory of removed records to the allocator, or sets the caps.
    fn optimize(&self, options: Option<&Options>) -> Result<()> {
        if let Some(options) = options {
            self.capacity().set(options);
        }
        self.fit(options.is_some());
        Ok(())
    }

    fn replace_all(&self, batch: &Batch) -> Result<()> {
        self.clear();
        self.write(batch, Wait::Block)
    }

    fn remove_expired(&self, key: &[u8], wait: Wait) -> Result<bool> {
        self.remove_if_expired(key, wait)
    }

    fn find_expired(&self) {
        self.sweep_parts();
    }

    fn reports(&self) -> Option<&KeyReports> {
        self.options().clock.reports()
    }

    fn medium(&self) -> &dyn Medium {
        self
    }
}

impl<E: MemoryEngine> Medium for E {
    fn path(&self) -> PathBuf {
        self.capacity().path()
    }

    fn size_bytes(&self) -> u64 {
        self.capacity().record_bytes() + self.table_bytes()
    }

    /// Copies the records into the database that `path` names. Writers wait meanwhile.
    fn copy_at(&self, path: &Path, barrier: &mut SnapshotBarrier<'_>) -> Result<()> {
        while !barrier(&mut || self.copy_to(path))? {}
        Ok(())
    }
}
