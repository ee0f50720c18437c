//! The network server over [`cabinet`]: one port, every protocol, all cores.
//!
//! Requests of Tokyo Tyrant's binary protocol, of memcached's protocols and of HTTP/1.x come over
//! the same sockets, and may take turns on one connection.
//!
//! ```no_run
//! # fn open() -> cabinet::Database { unimplemented!() }
//! use server::{Config, Endpoint, Server};
//!
//! let listen = vec![Endpoint::Loopback { port: 1978 }];
//! let server = Server::bind(Config { listen, ..Config::default() }, open())?;
//! let handle = server.handle(); // to call `handle.stop()` from elsewhere
//! server.run()?;
//! # Ok::<(), server::Error>(())
//! ```
//!
//! Threads: the one that calls [`Server::run`] accepts connections; event loops, at most
//! [`Config::threads`], read, execute and answer; a pool of [`Config::pool_threads`] executes what
//! has to wait for the disk. A connection belongs to one event loop at a time.

#![forbid(unsafe_code)]

mod acceptor;
mod as_is;
mod balance;
mod budget;
mod cas_numbers;
mod client_paths;
mod config;
mod connection;
mod copy;
mod counters;
mod descriptors;
mod draft;
mod entity_tag;
mod error;
mod event_loop;
mod execute;
mod failure;
mod gate;
mod held;
mod hits;
mod listener;
mod logins;
mod long;
mod look;
mod mask;
mod media_types;
mod pace;
mod pool;
mod port;
mod records;
mod replication;
mod reserved;
mod scrub;
mod server;
mod session;
mod settle;
mod shared;
mod slab;
mod spool;
mod status;
mod store;
mod takeover;
pub mod update_log;
mod users;
mod value;

pub use client_paths::ClientPaths;
pub use config::{
    BUFFER_BYTES_MAX, Config, Endpoint, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, SPOOL_BYTES_MAX,
};
pub use copy::POSITION_FILE;
pub use draft::Draft;
pub use error::{Error, Result};
pub use logins::{Login, Visitor};
pub use long::PIECE_BYTES;
pub use mask::{Command, Mask, Protocol, UnknownName};
pub use pace::{ADVANCE_BYTES_MAX, BYTES_PER_SECOND_MIN, Pace};
pub use records::{Facts, Records, RecordsError, Saying};
pub use replication::{Following, Master, OnTimeout, Replayed, Seeding, SemiSyncSettings, replay};
pub use scrub::{CHECK_BYTES_PER_SECOND, SCRUB_BYTES_PER_SECOND, SCRUB_INTERVAL};
pub use server::{Handle, Server};
pub use takeover::{Counted, Handed, Takeover};
pub use users::{CREDENTIAL_BYTES_MAX, USERS_MAX, Users, UsersError};
pub use value::Value;
pub use wire::memcached::Dialect;
