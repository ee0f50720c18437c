//! Opening.

use crate::border::run;
use crate::handle::cabinet_database;
use crate::options::cabinet_open_options;
use crate::status::{CABINET_OK, Failure, Result, cabinet_error, cabinet_status};
use cabinet_rs::{Compression, Database, Durability, KeyOrder, Kind, Options};
use std::ffi::c_char;

/// The kind that the suffix of the path names.
pub const CABINET_KIND_BY_NAME: i32 = 0;
/// `.tch`: hash, an index in memory over a log on disk.
pub const CABINET_KIND_HASH: i32 = 1;
/// `.tcb`: B+ tree, keys in order, with duplicates and cursors.
pub const CABINET_KIND_TREE: i32 = 2;
/// `.tcf`: fixed-length, values under ids.
pub const CABINET_KIND_FIXED: i32 = 3;
/// `.tct`: table, rows of columns with indices and queries.
pub const CABINET_KIND_TABLE: i32 = 4;
/// `*`: hash in memory.
pub const CABINET_KIND_MEMORY_HASH: i32 = 5;
/// `+`: ordered map in memory.
pub const CABINET_KIND_MEMORY_TREE: i32 = 6;

/// Kinds by number.
const KINDS: [(i32, Kind); 6] = [
    (CABINET_KIND_HASH, Kind::Hash),
    (CABINET_KIND_TREE, Kind::Tree),
    (CABINET_KIND_FIXED, Kind::Fixed),
    (CABINET_KIND_TABLE, Kind::Table),
    (CABINET_KIND_MEMORY_HASH, Kind::MemoryHash),
    (CABINET_KIND_MEMORY_TREE, Kind::MemoryTree),
];

/// Returns the number of a kind.
pub(crate) fn number_of(kind: Option<Kind>) -> i32 {
    let known = KINDS.iter().find(|(_, known)| Some(*known) == kind);
    known.map_or(CABINET_KIND_BY_NAME, |(number, _)| *number)
}

/// A write returns when the operating system has it. It survives a killed process, but not a loss
/// of power.
pub const CABINET_DURABILITY_NONE: i32 = 0;
/// The same, but a loss of power loses at most the writes of one interval.
pub const CABINET_DURABILITY_INTERVAL: i32 = 1;
/// A write returns when it is on the disk. Concurrent writers share one sync.
pub const CABINET_DURABILITY_ALWAYS: i32 = 2;

/// Values are stored as they are.
pub const CABINET_COMPRESSION_NONE: i32 = 0;
/// Values are compressed with LZ4.
pub const CABINET_COMPRESSION_LZ4: i32 = 1;
/// Values are compressed with Zstandard.
pub const CABINET_COMPRESSION_ZSTD: i32 = 2;

/// The order that the tree has; lexical for a new one.
pub const CABINET_ORDER_KEPT: i32 = 0;
/// Keys in the order of their bytes.
pub const CABINET_ORDER_LEXICAL: i32 = 1;
/// Keys in the order of decimal numbers.
pub const CABINET_ORDER_DECIMAL: i32 = 2;
/// Keys in the order of little-endian 32-bit integers.
pub const CABINET_ORDER_INT32: i32 = 3;
/// Keys in the order of little-endian 64-bit integers.
pub const CABINET_ORDER_INT64: i32 = 4;

/// Refuse writes.
pub const CABINET_OPEN_READ_ONLY: u32 = 1;
/// Fail if the database does not exist.
pub const CABINET_OPEN_NO_CREATE: u32 = 2;
/// Remove all records.
pub const CABINET_OPEN_TRUNCATE: u32 = 4;

impl cabinet_open_options {
    fn options(&self) -> Result<Options> {
        let unknown = |what: &str, number: i64| {
            Failure::invalid(format!("{what} {number} is unknown: pass one of the header"))
        };
        let mut options = Options::new();
        options.kind = match self.kind {
            CABINET_KIND_BY_NAME => None,
            kind => {
                let known = KINDS.iter().find(|(number, _)| *number == kind);
                Some(known.ok_or_else(|| unknown("kind", kind.into()))?.1)
            }
        };
        const FLAGS: u32 = CABINET_OPEN_READ_ONLY | CABINET_OPEN_NO_CREATE | CABINET_OPEN_TRUNCATE;
        if self.flags & !FLAGS != 0 {
            return Err(unknown("the flags", self.flags.into()));
        }
        options.read_only = self.flags & CABINET_OPEN_READ_ONLY != 0;
        options.create = self.flags & CABINET_OPEN_NO_CREATE == 0 && !options.read_only;
        options.truncate = self.flags & CABINET_OPEN_TRUNCATE != 0;
        options.durability = match self.durability {
            CABINET_DURABILITY_NONE => Durability::None,
            CABINET_DURABILITY_INTERVAL => Durability::Interval(self.durability_interval_ms),
            CABINET_DURABILITY_ALWAYS => Durability::Always,
            other => return Err(unknown("durability", other.into())),
        };
        options.compression = match self.compression {
            CABINET_COMPRESSION_NONE => Compression::None,
            CABINET_COMPRESSION_LZ4 => Compression::Lz4,
            CABINET_COMPRESSION_ZSTD => Compression::Zstd,
            other => return Err(unknown("compression", other.into())),
        };
        options.order = match self.order {
            CABINET_ORDER_KEPT => None,
            CABINET_ORDER_LEXICAL => Some(KeyOrder::Lexical),
            CABINET_ORDER_DECIMAL => Some(KeyOrder::Decimal),
            CABINET_ORDER_INT32 => Some(KeyOrder::Int32),
            CABINET_ORDER_INT64 => Some(KeyOrder::Int64),
            other => return Err(unknown("order", other.into())),
        };
        if self.dead_percent_max != 0 {
            options.dead_percent_max = u8::try_from(self.dead_percent_max)
                .map_err(|_| unknown("dead_percent_max", self.dead_percent_max.into()))?;
        }
        let given = |number: u64| Some(number).filter(|number| *number != 0);
        options.cache_bytes = given(self.cache_bytes);
        options.index_bytes = given(self.index_bytes);
        options.capacity_records = self.capacity_records;
        options.capacity_bytes = self.capacity_bytes;
        options.memory_bytes = given(self.memory_bytes).or(options.memory_bytes);
        if let Some(bytes) = given(self.query_memory_bytes) {
            options.query_memory_bytes = bytes;
        }
        if let Some(bytes) = given(self.compaction_bytes_per_second) {
            options.compaction_bytes_per_second = bytes;
        }
        options.width = given(self.width);
        options.limit_bytes = given(self.limit_bytes);
        Ok(options)
    }
}

/// Opens the database with a name, and creates it if it does not exist. The name has its path, its
/// kind and its settings: "casket.tch", "prices.tcb#durability=always#cache=64m", "*" for a hash
/// in memory, "+" for an ordered map in memory. docs/databases.md lists the settings. A database
/// on disk is a folder, and is open once at a time, or several times for reading (mode=r).
///
/// @param name The name: UTF-8 that ends with a NUL.
/// @param database Set to the handle, which is freed by `cabinet_database_free`. Left as it is
///        after an error.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_IN_USE if it is open already; CABINET_WRONG_KIND; CABINET_INVALID
///         for a wrong name; CABINET_CORRUPTED; CABINET_IO; or another error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_open(
    name: *const c_char,
    database: *mut *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("database", database)?;
        let name = call.text("name", name)?;
        out.share(cabinet_database::of(|| Database::open(name))?);
        Ok(CABINET_OK)
    })
}

/// Opens the database at a path with options. The path has no settings, and may be in any
/// encoding.
///
/// @param path The path, which ends with a NUL.
/// @param options The settings; NULL for the defaults.
/// @param database Set to the handle, which is freed by `cabinet_database_free`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return Like `cabinet_open`.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_open_path(
    path: *const c_char,
    options: *const cabinet_open_options,
    database: *mut *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("database", database)?;
        let options = call.options("options", options)?.options()?;
        let path = call.path("path", path)?;
        out.share(cabinet_database::of(|| options.open(path))?);
        Ok(CABINET_OK)
    })
}
