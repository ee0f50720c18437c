//! An embedded, persistent key-value library: several kinds of database behind one API.

mod batch;
mod database;
mod engine;
mod error;
pub mod limits;
mod memory;
pub mod name;
mod options;
mod pattern;

pub use batch::{Batch, BatchChange};
pub use database::{Database, Swap};
pub use engine::{
    Change, Durability, DurableListener, Engine, Entry, LogPosition, Meta, Position, Version, Wait,
};
pub use error::{Error, Result};
pub use options::{Compression, Options};
