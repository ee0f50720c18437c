//! Capacity: the records and bytes of an on-memory engine, and their caps.

use crate::base::expired::ExpiryStats;
use crate::{Clock, Error, Options, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the cap counts per record for the tables of an engine.
pub(super) const TABLE_BYTES_PER_RECORD: u64 = 32;

/// Name of an engine, and the memory of its records beyond the bytes that the cap counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) kind: &'static str,
    pub(super) path: &'static str,
    /// Most bytes per record of the allocator and the tables beyond the counted ones, measured with
    /// empty values.
    pub(super) overhead_bytes: u64,
}

/// Counters of an engine and their caps.
// Written all the time, so aligned to keep neighbours off the same cache lines.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Capacity {
    records: AtomicU64,
    bytes: AtomicU64,
    evicted: AtomicU64,
    pub(super) expired: ExpiryStats,
    records_max: AtomicU64,
    bytes_max: AtomicU64,
    /// Bytes above which no more is stored, if there is no cap on bytes.
    memory_bytes_max: AtomicU64,
    profile: Profile,
    /// Clock with the list of the keys that are evicted, if they are reported.
    clock: Clock,
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
            clock: options.clock.clone(),
        };
        capacity.set(options);
        capacity
    }

    /// Sets the caps. The next eviction removes the excess. The memory limit changes only if it is
    /// given.
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

    /// Returns whether there is any cap.
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

    /// Refuses records that need more counted bytes than those they replace, if nothing is evicted
    /// and the memory limit is reached.
    pub(super) fn check_memory(&self, added: Added) -> Result<()> {
        let max = self.memory_bytes_max.load(Ordering::Relaxed);
        if added.bytes <= 0 || max == u64::MAX || self.bytes_max() != u64::MAX {
            return Ok(());
        }
        let of_records = |records: u64| records.saturating_mul(self.profile.overhead_bytes);
        let used = self.bytes.load(Ordering::Relaxed).saturating_add(of_records(self.records()));
        let added = added.bytes.unsigned_abs().saturating_add(of_records(added.records));
        if used.saturating_add(added) > max {
            return Err(Error::NoMemory { path: self.path(), max });
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

    /// Counts a record that replaced another.
    pub(super) fn exchange(&self, old_bytes: usize, new_bytes: usize) {
        if new_bytes > old_bytes {
            self.bytes.fetch_add((new_bytes - old_bytes) as u64, Ordering::Relaxed);
        } else if new_bytes < old_bytes {
            self.bytes.fetch_sub((old_bytes - new_bytes) as u64, Ordering::Relaxed);
        }
    }

    /// Counts the record of a key that was evicted.
    pub(super) fn note_evicted(&self, key: &[u8]) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.clock.report_evicted(key);
    }

    pub(super) fn is_over(&self) -> bool {
        self.records() > self.records_max() || self.bytes.load(Ordering::Relaxed) > self.bytes_max()
    }

    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(self.profile.path)
    }

    /// Returns the bytes of the records, without their share of the tables.
    pub(super) fn record_bytes(&self) -> u64 {
        let tables = self.records().saturating_mul(TABLE_BYTES_PER_RECORD);
        self.bytes.load(Ordering::Relaxed).saturating_sub(tables)
    }

    /// Returns the stats of the engine as names and values.
    pub(super) fn stats(&self) -> Vec<(&'static str, String)> {
        let or_zero = |max: u64| if max == u64::MAX { 0 } else { max };
        let memory = self.memory_bytes_max.load(Ordering::Relaxed);
        let mut stats = vec![
            ("type", self.profile.kind.into()),
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
    /// Counted bytes, less those of replaced or removed records.
    bytes: i64,
}

impl Added {
    /// Adds a change of a record of `old` bytes, or of none, to one of `new` bytes, or to none.
    pub(super) fn change(&mut self, old: Option<usize>, new: Option<usize>) {
        let cost_of = |bytes: Option<usize>| bytes.map_or(0, |bytes| signed(cost(bytes)));
        self.records += u64::from(old.is_none() && new.is_some());
        self.bytes += cost_of(new) - cost_of(old);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns a limit, or no limit for 0.
fn unless_zero(max: u64) -> u64 {
    if max == 0 { u64::MAX } else { max }
}

/// Returns the bytes that a record counts, of which it takes so many itself.
pub(super) fn cost(record_bytes: usize) -> u64 {
    record_bytes as u64 + TABLE_BYTES_PER_RECORD
}
