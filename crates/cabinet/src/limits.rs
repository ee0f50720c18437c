//! Every limit of the library, named in one place. Over a limit, operations return an error and
//! never panic.

/// Longest interval of [`Durability::Interval`](crate::Durability::Interval) between two syncs, in
/// milliseconds.
pub const INTERVAL_MS_MAX: u64 = 60 * 60 * 1000;

/// Bounds of the share of dead bytes above which compaction works, in percent.
pub const DEAD_PERCENT_ALLOWED: std::ops::RangeInclusive<u64> = 10..=90;

/// Bounds of the capacity of a segment of the log, in bytes.
pub const SEGMENT_BYTES_ALLOWED: std::ops::RangeInclusive<u32> = 64 << 10..=64 << 20;

/// Bounds of the length of a tree's leaf above which it is split, in bytes.
pub const LEAF_BYTES_ALLOWED: std::ops::RangeInclusive<u32> = 256..=64 << 10;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest value, in bytes, before compression.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Minimum memory for the pages of a tree that a name may set, in bytes.
pub const CACHE_BYTES_MIN: u64 = 64 << 10;

/// Minimum memory for the index of a hash database that a name may set, in bytes.
pub const INDEX_BYTES_MIN: u64 = 64 << 10;

/// Minimum cap on the files of a database, in bytes.
pub const CAPACITY_BYTES_MIN: u64 = 4 << 20;

/// Longest primary key of a row of a table, in bytes.
pub const PRIMARY_KEY_BYTES_MAX: usize = 32 * 1024;

/// Longest name of a column of a table, in bytes.
pub const COLUMN_NAME_BYTES_MAX: usize = 32 * 1024;

/// Maximum number of bytes of a value that an index of a table holds. For longer values, rows are
/// read.
pub const INDEXED_VALUE_BYTES_MAX: usize = 1024;

/// Maximum number of different tokens of a value that a token index holds. Rows with more are read.
pub const INDEXED_TOKENS_MAX: usize = 16 * 1024;

/// Maximum number of characters of a text that a q-gram index holds. Rows with more are read.
pub const INDEXED_CHARACTERS_MAX: usize = 64 * 1024;

/// Maximum number of bytes of keys and values of the postings that one row has in all indices of a
/// table. A row with more is refused.
pub const ROW_POSTINGS_BYTES_MAX: usize = 32 << 20;

/// Maximum number of snippets that are cut out of one value of a table, however long each is.
pub const SNIPPETS_MAX: usize = 1024;

/// Maximum number of conditions of a full-text expression that count.
pub const EXPRESSION_UNITS_MAX: usize = 32;

/// Maximum number of lists of rows that one query sorts for phrases of one or two letters. For
/// further conditions, rows are read.
pub const SORTED_PHRASES_MAX: usize = 32;

/// Maximum number of bytes of keys and values that one batch or transaction may hold.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Maximum number of bytes that the records of one batch or transaction may take in the log of a
/// disk database, except for the longest one. Each takes up to 44 bytes besides its key and value.
pub const BATCH_LOG_BYTES_MAX: usize = 60 << 20;

/// Longest value of a fixed-length database, in bytes.
pub const FIXED_WIDTH_BYTES_MAX: u64 = 64 << 20;

/// Greatest id of a fixed-length database.
pub const FIXED_ID_MAX: u64 = i64::MAX as u64;
