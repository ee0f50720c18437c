//! Databases of the server in a cluster of Apache Cassandra: [`ClusterStore`] is a
//! [`server::RemoteStore`] over the `scylla` driver.
//!
//! A name says which database is meant, and how it is reached:
//! `cassandra://host1,host2:9042/keyspace#kind=tch#mode=strict`, see [`Name`]. A keyspace has one
//! database. [`init`] makes its tables once; [`ClusterStore::connect`] checks that kind and mode
//! are those of the name.
//!
//! In *strict* mode each change is a lightweight transaction under the condition of the version
//! that was read, and gives the record a version that no other change has. So conditions, counters
//! and compare-and-swap are exact with any number of servers over the same database, and after a
//! timeout a serial read tells whether a change was made. In *plain* mode changes are quorum
//! writes, which cost less; changes that depend on the record are refused. Strict and plain writes
//! on one record would lose each other, so the mode is chosen once.
//!
//! The driver runs on threads of its own. The crate knows nothing of sockets and protocols of
//! clients.

#![forbid(unsafe_code)]

mod cell;
mod changes;
mod copy;
mod dead_entries;
mod entry_name;
mod error;
mod guarantees;
mod ids;
mod key_queues;
mod keys;
mod lists;
mod merged;
mod name;
mod order;
mod records;
mod schema;
mod session;
mod shared;
mod store;
mod table;
mod token_pages;
mod token_ranges;
mod version;
mod waiting;

pub use copy::{CopiedIndexes, CopiedRecord, CopyIn, CopyOut, CopyState, Page};
pub use error::{Error, Result};
pub use name::{Kind, Mode, Name, NameError, is_cluster_name};
pub use schema::{REPLICATION_DEFAULT, Stage, statements};
pub use store::{ClusterStore, init};
