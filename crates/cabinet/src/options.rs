//! How a database is opened.

use crate::Durability;

/// Settings of a database. The defaults serve; none of them has to be guessed from the data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Create the database if it does not exist.
    pub create: bool,
    /// Remove all records on opening.
    pub truncate: bool,
    /// When a write counts as acknowledged.
    pub durability: Durability,
    /// How values are stored. Applies to new records; old ones stay readable.
    pub compression: Compression,
    /// Dead bytes, in percent of a database's files, above which compaction works (10 to 90).
    pub dead_percent_max: u8,
    /// Most bytes a second that compaction reads while there is no hurry.
    pub compaction_bytes_per_second: u64,
    /// On-memory kinds: most records, the oldest go first; 0 is unlimited.
    pub capacity_records: u64,
    /// On-memory kinds: most bytes in memory, the oldest records go first; 0 is unlimited.
    pub capacity_bytes: u64,
}

/// How values are stored. A value that does not shrink is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4 block format: fast.
    Lz4,
    /// Zstandard: small.
    Zstd,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            truncate: false,
            durability: Durability::None,
            compression: Compression::None,
            dead_percent_max: 40,
            compaction_bytes_per_second: 64 << 20,
            capacity_records: 0,
            capacity_bytes: 0,
        }
    }
}
