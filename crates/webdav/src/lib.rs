//! A database as a folder: WebDAV, class 1 and 2, over the records of a [`server`].
//!
//! A file `a/b.txt` is the record with that key. A folder is a record whose key ends in a slash, or
//! exists because of the keys below it. Locks are in memory. Properties that clients give to a file
//! are in internal records of the server. `docs/protocols/webdav.md` has the details.
//!
//! ```no_run
//! # fn open() -> cabinet::Database { unimplemented!() }
//! use server::{Config, Server};
//!
//! let server = Server::bind(Config::default(), open())?;
//! webdav::serve(&server)?;
//! server.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`dav_server`] implements the protocol, except for the responses about properties, on
//! [`hyper`]. One thread serves all connections. Operations that wait for the disk run on a few
//! other threads, started on demand. Without a call of [`serve`] none of this runs.

#![forbid(unsafe_code)]

mod body;
mod connection;
mod destination;
mod document;
mod failure;
mod file;
mod find;
mod folder;
mod fragment;
mod heads;
mod listing;
mod live;
mod locks;
mod names;
mod path;
mod properties;
mod request;
mod service;
mod system;
mod transport;
mod update;
mod work;

pub use document::{LEVELS_MAX, NAMESPACES_MAX};
pub use folder::{ENTRIES_MAX, MEMBERS_MAX, UNSORTED_MAX};
pub use locks::LOCKS_MAX;
pub use path::DEPTH_MAX;
pub use service::{CONNECTIONS_MAX, serve};
pub use update::PROPERTIES_BYTES_MAX;
