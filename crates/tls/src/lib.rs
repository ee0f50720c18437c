//! TLS 1.2 and 1.3 without a runtime: [`Session`] turns bytes into bytes for an event loop, and
//! [`Stream`] reads and writes a socket for blocking threads. Both ends of a connection, over
//! rustls.
//!
//! Certificates and keys come from files in PEM format, see [`ServerFiles`] and [`ClientSettings`].
//! [`ServerConfig`] is what was read from them; a server that reads its files again gives the new
//! one to the connections that follow, and the older ones keep theirs.
//!
//! rustls refuses what is weak: versions before 1.2, suites without forward secrecy or without
//! authenticated encryption, renegotiation, compression, early data. A peer that sends many key
//! updates, warnings or empty messages is refused, too.

#![forbid(unsafe_code)]

mod client_config;
mod constraints;
mod error;
mod expiry;
mod files;
mod limits;
mod names;
mod outgoing;
mod provider;
mod server_config;
mod session;
mod stream;
mod words;

pub use client_config::{ClientConfig, ClientSettings};
pub use error::{Error, SessionError};
pub use limits::{INCOMING_BYTES_MAX, SESSION_BYTES};
pub use server_config::{ServerConfig, ServerFiles};
pub use session::{FIRST_BYTE, Session};
pub use stream::Stream;
