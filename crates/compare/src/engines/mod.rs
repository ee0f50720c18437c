//! The comparison of embedded stores.
//!
//! Every measurement of a store is a process of its own, this program again with the
//! sub-command `child`, so that CPU time, memory and files are that store's alone. The child
//! prints *stats*, lines of a name and a number; the parent samples its memory meanwhile and
//! makes tables of them.

pub mod child;
pub mod churn;
pub mod durable;
pub mod parent;
pub mod restart;
pub mod speed;
pub mod stats;
pub mod tables;
mod work;
