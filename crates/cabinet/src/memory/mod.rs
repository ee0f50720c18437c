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
