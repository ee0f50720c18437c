//! An embedded, persistent key-value library: several kinds of database behind one API.
//!
//! A [`Database`] maps keys to values, both any bytes. It is opened by a name, which holds its
//! path, its kind, and its settings (see [`name`]):
//!
//! | name | kind |
//! | --- | --- |
//! | `casket.tch` | hash: an index in memory over a log on disk |
//! | `casket.tcb` | B+ tree: keys in order, with duplicates and cursors |
//! | `casket.tcf` | fixed-length: values under ids |
//! | `casket.tct` | [`table`]: rows of columns, indices, queries |
//! | `*` | on-memory hash, with optional caps |
//! | `+` | on-memory ordered map, with optional caps |
//!
//! ```
//! # fn main() -> cabinet::Result<()> {
//! use cabinet::{Database, Meta};
//!
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let name = folder.path().join("casket.tch").display().to_string();
//! let database = Database::open(&format!("{name}#compression=lz4"))?;
//! database.put(b"apple", b"red")?;
//! database.put_cat(b"apple", b", or green")?;
//! database.add_int(b"visits", 1)?;
//! assert_eq!(database.get(b"apple")?.as_deref(), Some(&b"red, or green"[..]));
//!
//! // A record may carry flags, and cease to exist at a given time.
//! let in_the_past = Meta { flags: 7, expires_at_ms: 1 };
//! database.put_with(b"fish", b"fresh", in_the_past)?;
//! assert_eq!(database.get(b"fish")?, None);
//!
//! // Changes that belong together are written together or not at all.
//! let transaction = database.transaction();
//! transaction.remove(b"apple")?;
//! transaction.put(b"pear", b"green")?;
//! transaction.commit()?;
//! assert_eq!(database.keys_with_prefix(b"", None)?.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! Handles are cheap to clone, and all operations may be called from any number of threads at once.
//! Writers of different records do not wait for each other.
//!
//! # Settings and features
//!
//! [`Options`] sets everything that a name can set, with types. The features of Cargo `legacy`,
//! `lz4`, `table` and `zstd` are on by default. An operation that needs a missing one fails with
//! [`Error::Unsupported`].
//!
//! # Out of scope
//!
//! The library has no network access (the `server` crate has) and no queries other than by key,
//! prefix and pattern, except in a [`table`]. A database is open in one process at a time. The
//! library understands Tokyo Cabinet's names, and reads its files (see [`legacy`]), but does not
//! write them.

#![cfg_attr(
    not(all(feature = "table", feature = "internals")),
    expect(dead_code, reason = "parts are for tables only, or for the workspace's other crates")
)]
#![cfg_attr(
    not(feature = "internals"),
    expect(unreachable_pub, reason = "`internals` exports it to the workspace's other crates")
)]

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod base;
mod batch;
mod database;
mod durability;
mod engine;
mod error;
mod fixed;
mod hash;
#[cfg_attr(
    all(feature = "internals", not(feature = "testing")),
    expect(unreachable_pub, reason = "`testing` exports it")
)]
mod io;
mod keyed;
mod kind;
#[cfg(feature = "legacy")]
pub mod legacy;
pub mod limits;
mod log;
mod memory;
pub mod name;
mod open;
mod options;
mod persistence;
mod record;
mod scan;
#[cfg(feature = "table")]
pub mod table;
mod transaction;
mod tree;
mod upkeep;

pub use base::clock::Clock;
pub use base::column_index::{IndexChange, IndexDescription, IndexKind};
pub use base::compress::Compression;
pub use base::damage::{Checked, Damage, GoOn, Verified};
pub use base::deadline::{with_deadline, with_interruption};
pub use base::key_order::KeyOrder;
#[cfg(feature = "internals")]
pub use base::{external_sort, pattern};
pub use batch::{Batch, BatchChange};
pub use database::{Cursor, CursorPut, Database, Keys, RecordEntry, Records, Swap};
pub use durability::{Durability, DurableListener, LogPosition};
pub use engine::{Numbered, Side};
pub use error::{Error, Result};
#[cfg(feature = "internals")]
pub use fixed::outside as ids;
#[cfg(feature = "internals")]
pub use io::{Ring, files};
pub use kind::Kind;
pub use log::LargeValue;
pub use options::Options;
pub use record::{Change, Meta, Record, RecordRef, Version};
pub use scan::ScanCursor;
pub use transaction::Transaction;
pub use upkeep::check::check;
pub use upkeep::salvage::{Salvaged, salvage, salvage_as};

/// Parts for tests: storages that fail on purpose, clocks set by hand, openings on such storages.
///
/// The feature `testing` exports them. They are not covered by the version of the crate, and a
/// program that is not a test has no use for them: a file that is written through a
/// [`Storage`](testing::Storage) while a database has it open may change under its readers.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::base::clock::ManualClock;
    pub use crate::io::{
        Faults, FaultyStorage, File, Map, Open, OverlayStorage, RealStorage, Storage,
    };
    pub use crate::upkeep::check::check_on;
    pub use crate::upkeep::salvage::salvage_on;
}

/// Items for the workspace's other crates only. No version guarantees them.
#[cfg_attr(
    not(feature = "internals"),
    expect(unused_imports, reason = "the library itself uses a part of them")
)]
mod internals {
    pub use crate::base::barrier::SnapshotBarrier;
    pub use crate::base::reported_keys::{KeyReports, ReportedKeys};
    pub use crate::base::usable_memory::UsableMemory;
    pub use crate::base::wait::Wait;
    #[cfg(feature = "internals")]
    pub use crate::database::Iteration;
    pub use crate::database::SteppedScan;
    pub use crate::engine::{
        Engine, Eviction, Family, Logged, Maintenance, Ordered, PlaceChange, Seek,
    };
    pub use crate::fixed::FixedDatabase;
    pub use crate::hash::HashDatabase;
    pub use crate::memory::{MemoryHash, MemoryTree};
    pub use crate::persistence::{Medium, Persistence};
    pub use crate::record::{Decide, Visit, VisitKey, VisitMany, VisitPlaced};
    pub use crate::scan::{FullScan, IterationState, Visitor, Wanted};
    pub use crate::tree::TreeDatabase;
    pub use crate::upkeep::check::check_those;
    pub use crate::upkeep::inventory::Inventory;
}

#[cfg(feature = "internals")]
pub use internals::*;
#[cfg(not(feature = "internals"))]
use internals::*;
