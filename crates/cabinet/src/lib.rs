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

mod barrier;
mod batch;
mod batch_plan;
mod check;
mod checksum;
mod clock;
mod column_index;
mod compress;
mod damage;
mod database;
mod deadline;
mod durability;
mod engine;
mod error;
mod expired;
mod expired_keys;
#[cfg(feature = "internals")]
pub mod files;
#[cfg(not(feature = "internals"))]
mod fixed;
#[cfg(feature = "internals")]
pub mod fixed;
mod hash;
mod heap;
mod inventory;
#[cfg_attr(
    all(feature = "internals", not(feature = "testing")),
    expect(unreachable_pub, reason = "`testing` exports it")
)]
mod io;
mod key_order;
mod keyed;
mod kind;
#[cfg(feature = "legacy")]
pub mod legacy;
pub mod limits;
mod locks;
mod log;
mod memory;
pub mod name;
mod open;
mod options;
#[cfg(not(feature = "internals"))]
mod pattern;
#[cfg(feature = "internals")]
pub mod pattern;
mod persistence;
mod record;
mod reentry;
mod salvage;
mod scan;
mod sync;
#[cfg(feature = "table")]
pub mod table;
mod table_keys;
#[cfg(feature = "testing")]
pub mod testing;
mod transaction;
mod tree;
mod usable_memory;
mod varint;
mod wait;

pub use batch::{Batch, BatchChange};
pub use check::check;
pub use clock::Clock;
pub use column_index::{IndexChange, IndexDescription, IndexKind};
pub use compress::Compression;
pub use damage::{Checked, Damage, GoOn, Verified};
pub use database::{Cursor, CursorPut, Database, Keys, RecordEntry, Records, Swap};
pub use deadline::with_deadline;
pub use durability::{Durability, DurableListener, LogPosition};
pub use engine::{Numbered, Side};
pub use error::{Error, Result};
pub use key_order::KeyOrder;
pub use kind::Kind;
pub use log::LargeValue;
pub use options::Options;
pub use record::{Change, Meta, Record, RecordRef, Version};
pub use salvage::{Salvaged, salvage, salvage_as};
pub use scan::ScanCursor;
pub use transaction::Transaction;

/// Items for the workspace's other crates only. No version guarantees them.
#[cfg_attr(
    not(feature = "internals"),
    expect(unused_imports, reason = "the library itself uses a part of them")
)]
mod internals {
    pub use crate::barrier::SnapshotBarrier;
    pub use crate::check::check_those;
    #[cfg(feature = "internals")]
    pub use crate::database::Iteration;
    pub use crate::database::SteppedScan;
    pub use crate::engine::{
        Engine, Eviction, Family, Logged, Maintenance, Ordered, PlaceChange, Seek,
    };
    pub use crate::expired_keys::ExpiredKeys;
    pub use crate::fixed::FixedDatabase;
    pub use crate::hash::HashDatabase;
    pub use crate::inventory::Inventory;
    pub use crate::memory::{MemoryHash, MemoryTree};
    pub use crate::persistence::{Medium, Persistence};
    pub use crate::scan::{FullScan, IterationState, Visitor, Wanted};
    pub use crate::tree::TreeDatabase;
    pub use crate::usable_memory::UsableMemory;
    pub use crate::wait::Wait;
}

#[cfg(feature = "internals")]
pub use internals::*;
#[cfg(not(feature = "internals"))]
use internals::*;
