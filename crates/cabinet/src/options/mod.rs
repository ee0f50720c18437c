//! Options: the settings with which a database is opened.

mod methods;

use crate::base::column_index::IndexDescription;
use crate::{Clock, Compression, Durability, KeyOrder, Kind, UsableMemory};
use std::ops::RangeInclusive;

/// Share of the [usable memory](UsableMemory) of an on-memory database without a cap, in eighths.
/// It is smaller where the memory is limited, because other memory must stay within the limit, too.
const RECORDS_EIGHTHS: u64 = 6;
const RECORDS_EIGHTHS_OF_LIMIT: u64 = 4;

/// Default share of the [usable memory](UsableMemory) for a tree's memory, as a divisor, and its
/// bounds in bytes.
const CACHE_SHARE: u64 = 16;
const CACHE_BYTES_DEFAULT: RangeInclusive<u64> = 1 << 20..=1 << 30;

/// Default share for the index of a hash database, and its bounds in bytes.
const INDEX_SHARE: u64 = 4;
const INDEX_BYTES_DEFAULT: RangeInclusive<u64> = 1 << 20..=u64::MAX;

/// Default share for the memory of one query, and its bounds in bytes. Several queries may run at
/// once.
const QUERY_SHARE: u64 = 64;
const QUERY_BYTES_DEFAULT: RangeInclusive<u64> = 1 << 20..=64 << 20;

/// Settings of a database. The defaults suit most uses, and no setting must be guessed from the
/// data.
///
/// A [name](crate::name) can set the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the methods return the options"]
#[non_exhaustive]
pub struct Options {
    /// Kind of database; `None` takes it from the suffix of the path.
    pub kind: Option<Kind>,
    /// Create the database if it does not exist.
    pub create: bool,
    /// Refuse writes through this handle.
    pub read_only: bool,
    /// Remove all records on opening.
    pub truncate: bool,
    /// When a write counts as acknowledged.
    pub durability: Durability,
    /// How values are stored. Applies to new records; old ones stay readable.
    pub compression: Compression,
    /// Dead bytes, in percent of a database's files, above which compaction works (10 to 90).
    /// In hash and fixed-length databases without a cap and without `segment_bytes`, 16 MiB may be
    /// dead in any case.
    pub dead_percent_max: u8,
    /// Most bytes per second that compaction reads while it is not urgent.
    pub compaction_bytes_per_second: u64,
    /// Capacity of a segment of the log, in bytes (64 KiB to 64 MiB); `None` lets it grow with
    /// the database, from 4 MiB on.
    pub segment_bytes: Option<u32>,
    /// Trees: order of the keys, chosen when the database is created. `None` keeps that order, and
    /// means lexical for a new database.
    pub order: Option<KeyOrder>,
    /// Trees: most bytes of memory for pages, leaves and the directory, besides those in use. Pages
    /// always get at least a quarter of it. `None` is a sixteenth of the [usable
    /// memory](UsableMemory), but at least 1 MiB and at most 1 GiB. Tables also keep index changes
    /// in memory: about an eighth of this or 32 MiB, whichever is less; up to twice that while they
    /// are written to pages.
    pub cache_bytes: Option<u64>,
    /// Hash kind: most bytes of the index in memory, at 12 per record. A larger index stays in the
    /// checkpoint, and only its changes are in memory. A record that is not in memory then costs
    /// two reads of the disk. `None` is a quarter of the [usable memory](UsableMemory), but at
    /// least 1 MiB.
    pub index_bytes: Option<u64>,
    /// Trees: bytes of a leaf above which it is split (256 to 65536); `None` is 8192.
    pub leaf_bytes: Option<u32>,
    /// Tables: approximate bytes of memory of a query for sorting and combining. More goes to a
    /// temporary file. The default is a 64th of the [usable memory](UsableMemory), but at least 1
    /// MiB and at most 64 MiB.
    pub query_memory_bytes: u64,
    /// Tables: indices to build on opening, where the column has none.
    pub indices: Vec<IndexDescription>,
    /// On-memory kinds: most records, above which those not used lately are evicted; 0 is
    /// unlimited. Trees: most records, above which a split of a leaf removes the smallest keys.
    pub capacity_records: u64,
    /// Most bytes: in memory for on-memory kinds; on the disk for hash and fixed-length kinds; of
    /// all pages, before compression, for trees and tables. On the disk at least
    /// [`crate::limits::CAPACITY_BYTES_MIN`]. Records not used lately are evicted; 0 is unlimited.
    pub capacity_bytes: u64,
    /// On-memory kinds without a cap on bytes: most bytes in memory, above which writes that need
    /// more fail with [`crate::Error::NoMemory`]; 0 is unlimited. `None` is half of the [usable
    /// memory](UsableMemory) if a control group limits it, else three quarters.
    pub memory_bytes: Option<u64>,
    /// Fixed-length kind, on creation: bytes of the longest value, at most
    /// [`crate::limits::FIXED_WIDTH_BYTES_MAX`]. Longer values are truncated. `None` is 255.
    pub width: Option<u64>,
    /// Fixed-length kind, on creation: bytes that Tokyo Cabinet's file may have, which determine
    /// the greatest id; `None` is 256 MiB.
    pub limit_bytes: Option<u64>,
    /// Spreads writes over many append blocks of the log from the first one on; for tests.
    pub(crate) eager_append_blocks: bool,
    /// Clock for expiry.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: None,
            create: true,
            read_only: false,
            truncate: false,
            durability: Durability::None,
            compression: Compression::None,
            dead_percent_max: 30,
            compaction_bytes_per_second: 64 << 20,
            segment_bytes: None,
            order: None,
            cache_bytes: None,
            index_bytes: None,
            leaf_bytes: None,
            query_memory_bytes: share_of_memory(QUERY_SHARE, &QUERY_BYTES_DEFAULT),
            indices: Vec::new(),
            capacity_records: 0,
            capacity_bytes: 0,
            memory_bytes: None,
            width: None,
            limit_bytes: None,
            eager_append_blocks: false,
            clock: Clock::real(),
        }
    }
}

impl Options {
    /// Returns the most bytes of a tree's memory.
    pub(crate) fn cache_bytes_max(&self) -> usize {
        let default = || share_of_memory(CACHE_SHARE, &CACHE_BYTES_DEFAULT);
        usize::try_from(self.cache_bytes.unwrap_or_else(default)).unwrap_or(usize::MAX)
    }

    /// Returns the most bytes of memory of a hash database's index.
    pub(crate) fn index_bytes_max(&self) -> u64 {
        self.index_bytes.unwrap_or_else(|| share_of_memory(INDEX_SHARE, &INDEX_BYTES_DEFAULT))
    }

    /// Divides the default memory of a database among `databases` of one process. Sizes that were
    /// set stay.
    #[cfg(feature = "internals")]
    pub fn share_memory(&mut self, databases: u64) {
        let databases = databases.max(1);
        if self.cache_bytes.is_none() {
            let share = self.cache_bytes_max() as u64 / databases;
            self.cache_bytes = Some(share.max(*CACHE_BYTES_DEFAULT.start()));
        }
        if self.index_bytes.is_none() {
            let share = self.index_bytes_max() / databases;
            self.index_bytes = Some(share.max(*INDEX_BYTES_DEFAULT.start()));
        }
        if self.memory_bytes.is_none() {
            self.memory_bytes = Some((self.memory_bytes_max() / databases).max(1));
        }
    }

    /// Returns the most bytes in memory of an on-memory database without a cap on bytes; 0 is
    /// unlimited.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(|| records_share(UsableMemory::of_process()))
    }
}

fn records_share(memory: UsableMemory) -> u64 {
    let eighths = if memory.is_limited { RECORDS_EIGHTHS_OF_LIMIT } else { RECORDS_EIGHTHS };
    memory.bytes / 8 * eighths
}

fn share_of_memory(share: u64, bounds: &RangeInclusive<u64>) -> u64 {
    UsableMemory::of_process().share(share, *bounds.start(), *bounds.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_in_memory_take_half_of_a_limit_and_three_quarters_of_a_machine() {
        let share = |bytes, is_limited| records_share(UsableMemory { bytes, is_limited });
        assert_eq!(share(64 << 20, true), 32 << 20);
        assert_eq!(share(64 << 30, false), 48 << 30);
    }

    #[test]
    fn databases_of_one_process_share_the_defaults_and_keep_what_was_chosen() {
        let alone = Options::default();
        let mut shared = Options::default();
        shared.share_memory(4);
        assert_eq!(shared.memory_bytes_max(), alone.memory_bytes_max() / 4);
        let quarter = (alone.cache_bytes_max() / 4).max(1 << 20);
        assert_eq!(shared.cache_bytes_max(), quarter);

        assert_eq!(shared.index_bytes_max(), (alone.index_bytes_max() / 4).max(1 << 20));

        let chosen = Options {
            memory_bytes: Some(0),
            cache_bytes: Some(1 << 16),
            index_bytes: Some(1 << 17),
            ..alone
        };
        let mut shared = chosen.clone();
        shared.share_memory(4);
        assert_eq!(shared, chosen);
    }
}
