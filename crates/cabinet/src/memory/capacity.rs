//! How much an on-memory engine holds, and how much it may.

use crate::expired::ExpiryStats;
use crate::{Error, Options, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the tables of an engine take for one record, in bytes, as far as the cap is concerned.
pub(super) const TABLE_BYTES_PER_RECORD: u64 = 32;

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
}

impl Capacity {
    pub(super) fn new(options: &Options) -> Self {
        let capacity = Self {
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            expired: ExpiryStats::default(),
            records_max: AtomicU64::new(0),
            bytes_max: AtomicU64::new(0),
        };
        capacity.set(options);
        capacity
    }

    /// Sets the caps. What is over them is for the next eviction.
    pub(super) fn set(&self, options: &Options) {
        let unless_zero = |max: u64| if max == 0 { u64::MAX } else { max };
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

    /// What the engine shows of itself.
    pub(super) fn figures(&self, kind: &str) -> Vec<(&'static str, String)> {
        let limit = Some(self.bytes_max()).filter(|max| *max != u64::MAX).unwrap_or(0);
        let mut figures = vec![
            ("type", kind.into()),
            ("limit_bytes", limit.to_string()),
            ("evicted", self.evicted.load(Ordering::Relaxed).to_string()),
        ];
        figures.extend(self.expired.report());
        figures
    }
}

fn cost(record_bytes: usize) -> u64 {
    record_bytes as u64 + TABLE_BYTES_PER_RECORD
}
