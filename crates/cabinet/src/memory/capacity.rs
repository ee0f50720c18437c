//! How much an on-memory engine holds, and how much it may.

use crate::expired::ExpiryStats;
use crate::{Error, Options, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the cap counts per record for the tables of an engine.
pub(super) const TABLE_BYTES_PER_RECORD: u64 = 32;

/// Name of an engine, and the memory of its records beyond the bytes that the cap counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) path: &'static str,
    /// Bytes per record that the allocator and the tables take beside the counted ones, at most:
    /// measured with empty values.
    pub(super) overhead_bytes: u64,
}

/// Counters of an engine, and their caps.
#[repr(align(128))] // They are written all the time; what lies beside them should not suffer.
#[derive(Debug)]
pub(super) struct Capacity {
    records: AtomicU64,
    bytes: AtomicU64,
    evicted: AtomicU64,
    pub(super) expired: ExpiryStats,
    records_max: AtomicU64,
    bytes_max: AtomicU64,
    /// Bytes over which nothing more is stored, without a cap on bytes.
    memory_bytes_max: AtomicU64,
    profile: Profile,
}

impl Capacity {
    pub(super) fn new(options: &Options, profile: Profile) -> Self {
        let capacity = Self {
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            expired: ExpiryStats::default(),
            records_max: AtomicU64::new(0),
            bytes_max: AtomicU64::new(0),
            memory_bytes_max: AtomicU64::new(unless_zero(options.memory_bytes_max())),
            profile,
        };
        capacity.set(options);
        capacity
    }

    /// Sets the caps. Excess over them is left to the next eviction. The limit of the memory stays
    /// unless it is given.
    pub(super) fn set(&self, options: &Options) {
        if let Some(max) = options.memory_bytes {
            self.memory_bytes_max.store(unless_zero(max), Ordering::Relaxed);
        }
        self.records_max.store(unless_zero(options.capacity_records), Ordering::Relaxed);
        self.bytes_max.store(unless_zero(options.capacity_bytes), Ordering::Relaxed);
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Whether there is a cap at all.
    pub(super) fn is_capped(&self) -> bool {
        self.records_max() != u64::MAX || self.bytes_max() != u64::MAX
    }

    pub(super) fn records_max(&self) -> u64 {
        self.records_max.load(Ordering::Relaxed)
    }

    /// Refuses a record that would not fit even if it were the only one.
    pub(super) fn check(&self, record_bytes: usize) -> Result<()> {
        let max = self.bytes_max();
        if cost(record_bytes) > max {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            return Err(Error::ValueTooLong { bytes: record_bytes, max });
        }
        Ok(())
    }

    /// Refuses records that would take so many counted bytes more than those they replace, if
    /// nothing is evicted and there is no memory for them.
    pub(super) fn check_memory(&self, added: Added) -> Result<()> {
        let max = self.memory_bytes_max.load(Ordering::Relaxed);
        if added.bytes <= 0 || max == u64::MAX || self.bytes_max() != u64::MAX {
            return Ok(());
        }
        let of_records = |records: u64| records.saturating_mul(self.profile.overhead_bytes);
        let used = self.bytes.load(Ordering::Relaxed).saturating_add(of_records(self.records()));
        let added = added.bytes.unsigned_abs().saturating_add(of_records(added.records));
        if used.saturating_add(added) > max {
            return Err(Error::NoMemory { path: PathBuf::from(self.profile.path), max });
        }
        Ok(())
    }

    pub(super) fn add(&self, record_bytes: usize) {
        self.records.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(cost(record_bytes), Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, record_bytes: usize) {
        self.records.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(cost(record_bytes), Ordering::Relaxed);
    }

    /// One record took the place of another.
    pub(super) fn exchange(&self, old_bytes: usize, new_bytes: usize) {
        if new_bytes > old_bytes {
            self.bytes.fetch_add((new_bytes - old_bytes) as u64, Ordering::Relaxed);
        } else if new_bytes < old_bytes {
            self.bytes.fetch_sub((old_bytes - new_bytes) as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn count_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.records() > self.records_max() || self.bytes.load(Ordering::Relaxed) > self.bytes_max()
    }

    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes of the records, without their share of the tables.
    pub(super) fn record_bytes(&self) -> u64 {
        let tables = self.records().saturating_mul(TABLE_BYTES_PER_RECORD);
        self.bytes.load(Ordering::Relaxed).saturating_sub(tables)
    }

    /// Returns the stats of the engine: names and values.
    pub(super) fn stats(&self, kind: &str) -> Vec<(&'static str, String)> {
        let or_zero = |max: u64| if max == u64::MAX { 0 } else { max };
        let memory = self.memory_bytes_max.load(Ordering::Relaxed);
        let mut stats = vec![
            ("type", kind.into()),
            ("limit_bytes", or_zero(self.bytes_max()).to_string()),
            ("memory_limit_bytes", or_zero(memory).to_string()),
            ("evicted", self.evicted.load(Ordering::Relaxed).to_string()),
        ];
        stats.extend(self.expired.report());
        stats
    }
}

/// Records and bytes that a change adds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    records: u64,
    /// Counted bytes, less those of what is replaced or removed.
    bytes: i64,
}

impl Added {
    /// A record of so many bytes is stored, over one of `old_bytes` if there is one.
    pub(super) fn put(&mut self, old_bytes: Option<usize>, new_bytes: usize) {
        self.records += u64::from(old_bytes.is_none());
        self.bytes += signed(cost(new_bytes)) - old_bytes.map_or(0, |old| signed(cost(old)));
    }

    /// A record of so many bytes is removed.
    pub(super) fn remove(&mut self, old_bytes: usize) {
        self.bytes -= signed(cost(old_bytes));
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A limit, of which 0 is none.
fn unless_zero(max: u64) -> u64 {
    if max == 0 { u64::MAX } else { max }
}

fn cost(record_bytes: usize) -> u64 {
    record_bytes as u64 + TABLE_BYTES_PER_RECORD
}
