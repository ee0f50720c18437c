//! Load generator: drives key-value servers over loopback and measures their CPU time.
//!
//! A *case* is a workload and a number of connections. In each round every server gets the case
//! for one *slice* of time, one server after the other.

pub mod cache;
pub mod cold;
mod connection;
mod driver;
pub mod mailings;
pub mod protocol;
pub mod server;
pub mod slice;
pub mod suite;
pub mod words;
pub mod workload;
