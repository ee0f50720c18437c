//! Structures of options, which begin with their size.

use std::ffi::c_void;

/// Settings of `cabinet_open_path`. Set all members to 0, which is the default of each, and `size`
/// to `sizeof(cabinet_open_options)`; then those that differ. Later versions add members at the
/// end.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct cabinet_open_options {
    /// Size of this structure, in bytes.
    pub size: usize,
    /// A CABINET_KIND.
    pub kind: i32,
    /// CABINET_OPEN flags.
    pub flags: u32,
    /// A CABINET_DURABILITY.
    pub durability: i32,
    /// A CABINET_COMPRESSION, for new values.
    pub compression: i32,
    /// Trees: a CABINET_ORDER, chosen when the database is created.
    pub order: i32,
    /// Percent of dead bytes in the files above which compaction works, 10 to 90.
    pub dead_percent_max: u32,
    /// Milliseconds between syncs, with CABINET_DURABILITY_INTERVAL.
    pub durability_interval_ms: u64,
    /// Trees and tables: maximum bytes of pages in memory.
    pub cache_bytes: u64,
    /// Hash: maximum bytes of the index in memory.
    pub index_bytes: u64,
    /// In memory and trees: maximum number of records.
    pub capacity_records: u64,
    /// Maximum bytes, over which records that were not used lately are evicted.
    pub capacity_bytes: u64,
    /// In memory without a capacity: bytes over which writes are refused.
    pub memory_bytes: u64,
    /// Tables: about so many bytes that a query holds in memory.
    pub query_memory_bytes: u64,
    /// Bytes per second that compaction reads while there is no hurry.
    pub compaction_bytes_per_second: u64,
    /// Fixed-length, on creation: bytes of the longest value.
    pub width: u64,
    /// Fixed-length, on creation: bytes of Tokyo Cabinet's file, which limit the ids.
    pub limit_bytes: u64,
}

/// How a record is stored. Set all members to 0, which is the default of each, and `size` to
/// `sizeof(cabinet_put_options)`. Later versions add members at the end.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct cabinet_put_options {
    /// Size of this structure, in bytes.
    pub size: usize,
    /// Milliseconds since the Unix epoch at which the record ceases to exist; 0 is never.
    pub expires_at_ms: u64,
    /// Flags without a meaning for the database.
    pub flags: u32,
    /// A CABINET_PUT.
    pub condition: i32,
}

/// Records of an iteration. Set all members to 0, which is the default of each, and `size` to
/// `sizeof(cabinet_iterate_options)`. Later versions add members at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cabinet_iterate_options {
    /// Size of this structure, in bytes.
    pub size: usize,
    /// CABINET_ITERATE flags.
    pub flags: u32,
    /// Not used, 0.
    pub reserved: u32,
    /// Key at which the range begins, with its record; NULL for the first one. Kinds whose keys
    /// are in order only.
    pub begin: *const c_void,
    /// Bytes of `begin`.
    pub begin_length: usize,
    /// Key at which the range ends, without its record; NULL for the last one. Kinds whose keys
    /// are in order only.
    pub end: *const c_void,
    /// Bytes of `end`.
    pub end_length: usize,
    /// First bytes of all keys; NULL for any. Not together with `begin` or `end`. Reads all keys
    /// unless they are in lexical order.
    pub prefix: *const c_void,
    /// Bytes of `prefix`.
    pub prefix_length: usize,
}

impl Default for cabinet_iterate_options {
    fn default() -> Self {
        Self {
            size: 0,
            flags: 0,
            reserved: 0,
            begin: std::ptr::null(),
            begin_length: 0,
            end: std::ptr::null(),
            end_length: 0,
            prefix: std::ptr::null(),
            prefix_length: 0,
        }
    }
}
