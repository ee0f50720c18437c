//! Builder methods that set the options one by one.

use super::Options;
use crate::base::column_index::{IndexDescription, IndexKind};
use crate::limits::{
    CACHE_BYTES_MIN, CAPACITY_BYTES_MIN, DEAD_PERCENT_ALLOWED, FIXED_WIDTH_BYTES_MAX,
    INDEX_BYTES_MIN, INTERVAL_MS_MAX, LEAF_BYTES_ALLOWED, SEGMENT_BYTES_ALLOWED,
};
use crate::{Clock, Compression, Durability, Error, KeyOrder, Kind, Result};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// # Methods
///
/// Each method sets one option and returns the options. [`Options::open`] checks them.
///
/// ```
/// # fn main() -> cabinet::Result<()> {
/// use cabinet::{Durability, Kind, Options};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("prices");
/// let database = Options::new()
///     .kind(Kind::Tree)
///     .durability(Durability::Always)
///     .cache_bytes(64 << 20)
///     .open(&path)?;
/// database.put(b"apple", b"120")?;
/// # Ok(())
/// # }
/// ```
///
/// Options that do not apply to the kind of the database have no effect, as in a name.
impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the kind of the database. By default the suffix of the path determines it. A path with
    /// the suffix of another kind is refused.
    pub fn kind(self, kind: Kind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Sets whether the database is created if it does not exist. Default: true.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Sets whether writes through this handle are refused. If so, the database is not created.
    /// Default: false.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, create: self.create && !read_only, ..self }
    }

    /// Sets whether all records are removed on opening. Default: false.
    pub fn truncate(self, truncate: bool) -> Self {
        Self { truncate, ..self }
    }

    /// Sets when a write counts as acknowledged. Default: [`Durability::None`].
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Sets how new values are stored; old ones stay readable. Default: [`Compression::None`].
    pub fn compression(self, compression: Compression) -> Self {
        Self { compression, ..self }
    }

    /// Sets the share of dead bytes in the files, in percent (10 to 90), above which compaction
    /// works. Default: 30.
    pub fn dead_percent_max(self, percent: u8) -> Self {
        Self { dead_percent_max: percent, ..self }
    }

    /// Sets the most bytes per second that compaction reads while it is not urgent. Default: 64
    /// MiB.
    pub fn compaction_bytes_per_second(self, bytes: u64) -> Self {
        Self { compaction_bytes_per_second: bytes, ..self }
    }

    /// Sets the capacity of a segment of the log, in bytes (64 KiB to 64 MiB). Default: it grows
    /// with the database, from 4 MiB on.
    pub fn segment_bytes(self, bytes: u32) -> Self {
        Self { segment_bytes: Some(bytes), ..self }
    }

    /// Trees: sets the order of keys. An existing database must have this order. Default: that of
    /// the database, and lexical for a new one.
    pub fn order(self, order: KeyOrder) -> Self {
        Self { order: Some(order), ..self }
    }

    /// Trees and tables: sets the most bytes of pages in memory, at least 64 KiB. Default: see
    /// the field.
    pub fn cache_bytes(self, bytes: u64) -> Self {
        Self { cache_bytes: Some(bytes), ..self }
    }

    /// Hash kind: sets the most bytes of the index in memory, at least 64 KiB; it uses 12 per
    /// record. A larger index is partly read from the disk. Default: a quarter of the usable
    /// memory.
    pub fn index_bytes(self, bytes: u64) -> Self {
        Self { index_bytes: Some(bytes), ..self }
    }

    /// Trees: sets the bytes of a leaf (256 to 65536) above which it is split. Default: 8192.
    pub fn leaf_bytes(self, bytes: u32) -> Self {
        Self { leaf_bytes: Some(bytes), ..self }
    }

    /// Tables: sets the approximate bytes of memory of a query for sorting and combining. More goes
    /// to a temporary file. Default: a 64th of the usable memory, 1 to 64 MiB.
    pub fn query_memory_bytes(self, bytes: u64) -> Self {
        Self { query_memory_bytes: bytes, ..self }
    }

    /// Tables: builds an index on opening, if the column has none. May be called again for another
    /// column. An empty name is the primary key.
    pub fn column_index(mut self, column: impl Into<Vec<u8>>, kind: IndexKind) -> Self {
        self.indices.push(IndexDescription { column: column.into(), kind });
        self
    }

    /// On-memory kinds and trees: sets the most records. On-memory kinds evict those not used
    /// lately, trees remove those with the smallest keys. Default: 0, which is unlimited.
    pub fn capacity_records(self, records: u64) -> Self {
        Self { capacity_records: records, ..self }
    }

    /// Sets the most bytes: in memory for on-memory kinds; on the disk for hash and fixed-length
    /// kinds; of all pages, before compression, for trees and tables. Records not used lately are
    /// evicted. On the disk at least 4 MiB. Default: 0, which is unlimited.
    pub fn capacity_bytes(self, bytes: u64) -> Self {
        Self { capacity_bytes: bytes, ..self }
    }

    /// On-memory kinds without [`capacity_bytes`](Self::capacity_bytes): sets the most bytes in
    /// memory, above which writes fail with [`Error::NoMemory`]. 0 is unlimited. Default: half of
    /// the usable memory if a control group limits it, else three quarters.
    pub fn memory_bytes(self, bytes: u64) -> Self {
        Self { memory_bytes: Some(bytes), ..self }
    }

    /// Fixed-length kind, on creation: sets the length of the longest value, in bytes (1 to 64
    /// MiB). Longer ones are truncated. Default: 255.
    pub fn width(self, bytes: u64) -> Self {
        Self { width: Some(bytes), ..self }
    }

    /// Fixed-length kind, on creation: sets the bytes that Tokyo Cabinet's file may have, which
    /// determine the greatest id. Default: 256 MiB.
    pub fn limit_bytes(self, bytes: u64) -> Self {
        Self { limit_bytes: Some(bytes), ..self }
    }

    /// Sets the clock for expiry. Default: the system's.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Fails with [`Error::InvalidArgument`] if an option is out of its bounds.
    pub(crate) fn check(&self, kind: Kind) -> Result<()> {
        if let Durability::Interval(milliseconds) = self.durability {
            within("an interval of durability, in ms,", milliseconds, &(1..=INTERVAL_MS_MAX))?;
        }
        within("dead_percent_max", u64::from(self.dead_percent_max), &DEAD_PERCENT_ALLOWED)?;
        within("compaction_bytes_per_second", self.compaction_bytes_per_second, &(1..=u64::MAX))?;
        if let Some(bytes) = self.segment_bytes {
            within("segment_bytes", bytes, &SEGMENT_BYTES_ALLOWED)?;
        }
        if let Some(bytes) = self.cache_bytes {
            within("cache_bytes", bytes, &(CACHE_BYTES_MIN..=u64::MAX))?;
        }
        if let Some(bytes) = self.index_bytes {
            within("index_bytes", bytes, &(INDEX_BYTES_MIN..=u64::MAX))?;
        }
        if let Some(bytes) = self.leaf_bytes {
            within("leaf_bytes", bytes, &LEAF_BYTES_ALLOWED)?;
        }
        if !kind.is_on_memory() && self.capacity_bytes != 0 {
            within("capacity_bytes", self.capacity_bytes, &(CAPACITY_BYTES_MIN..=u64::MAX))?;
        }
        if let Some(bytes) = self.width {
            within("width", bytes, &(1..=FIXED_WIDTH_BYTES_MAX))?;
        }
        Ok(())
    }

    /// Spreads writes over many append blocks from the first write on, as the writes of many
    /// threads are. For hash and fixed-length kinds without durability. Its only use is to make
    /// tests with one thread meaningful.
    #[cfg(feature = "testing")]
    pub fn set_eager_append_blocks(&mut self, is_eager: bool) {
        self.eager_append_blocks = is_eager;
    }
}

fn within<T: PartialOrd + Display>(
    name: &str,
    value: T,
    allowed: &RangeInclusive<T>,
) -> Result<()> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let (min, max) = (allowed.start(), allowed.end());
    Err(Error::InvalidArgument(format!("{name} of {value}: choose from {min} to {max}")))
}
