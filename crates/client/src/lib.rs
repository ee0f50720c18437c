//! Client of a tyrant server, or of Tokyo Tyrant, over the binary protocol: blocking, with a
//! [`Pool`] of connections and a [`Pipeline`] of requests.
//!
//! ```no_run
//! use client::{Client, Pool, Reply, Settings};
//!
//! let client = Client::connect(("127.0.0.1", 1978))?;
//! client.put(b"color", b"blue")?;
//! assert_eq!(client.get(b"color")?, Some(b"blue".to_vec()));
//!
//! // Many requests in few round trips.
//! let mut pipeline = client.pipeline();
//! pipeline.put(b"size", b"10")?;
//! pipeline.get(b"color")?;
//! assert_eq!(pipeline.run()?, [Reply::Done(true), Reply::Value(Some(b"blue".to_vec()))]);
//!
//! // Many threads, at most eight connections.
//! let pool = Pool::new("127.0.0.1:1978".parse()?, Settings::default(), 8);
//! pool.get()?.out(b"color")?;
//! # Ok::<(), client::Error>(())
//! ```
//!
//! The protocol limits the client: the iterator belongs to the database, not to a client, and there
//! is one kind of failure. The client maps it to the [`Error`] that Tokyo Tyrant's client returns.

mod address;
mod client;
mod connection;
mod credentials;
mod error;
mod frames;
mod functions;
pub mod limits;
mod pipeline;
mod pool;
mod redis;
mod replica_link;
mod settings;
mod table;
mod updates;

pub use address::Address;
pub use client::{Client, LOCK_ALL, LOCK_RECORD, Pair};
pub use connection::is_this_machine;
pub use credentials::{CREDENTIAL_BYTES_MAX, Credentials, CredentialsError};
pub use error::{Error, LoginRefusal, Result};
pub use functions::{CheckState, Expiry};
pub use pipeline::{Pipeline, Reply};
pub use pool::{Pool, Pooled};
pub use redis::RedisConnection;
pub use replica_link::{Acknowledger, ReplicaLink, SubscribeRequest};
pub use settings::Settings;
pub use table::{Row, Search, SetOperation};
pub use tls::{ClientConfig as TlsConfig, ClientSettings as TlsSettings};
pub use updates::{Interrupter, UpdateStream};
pub use wire::redis::{Replies, Reply as RedisReply};
