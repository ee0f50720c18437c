//! Functions in Lua that clients of a [`server`] call by name.
//!
//! Scripts of Tokyo Tyrant run unchanged: the functions that its scripts call are here with the
//! same names, arguments and results. `tyrant.*` has more. `docs/lua.md` lists all of them.
//!
//! ```no_run
//! # fn open() -> cabinet::Database { unimplemented!() }
//! use scripts::{Allowed, Limits, Scripts, Source};
//!
//! let source = Source::from_argument("@function echo(key, value) return value end");
//! let scripts = Scripts::open(source, Limits::default(), Allowed::default())?;
//! # Ok::<(), scripts::Failure>(())
//! ```
//!
//! [`RedisScripts`] executes what clients of Redis's protocol send, in states of its own.
//!
//! Each script thread and each event loop of the server has a Lua state of its own. Limits hold for
//! each call and each state: time by a hook that the interpreter calls, memory by its allocator.
//! Functions of Lua's library that could run long in C are replaced.

#![forbid(unsafe_code)]

mod clock;
mod context;
mod error;
mod functions;
mod hook;
pub mod limits;
mod locks;
mod memory;
mod modern;
mod output;
mod pace;
mod pattern;
mod redis;
mod sandbox;
mod scripts;
mod shared;
mod sorter;
mod source;
mod stash;
mod state;
mod statistics;

pub use error::Failure;
pub use limits::Limits;
pub use redis::RedisScripts;
pub use scripts::Scripts;
pub use shared::Allowed;
pub use source::Source;
