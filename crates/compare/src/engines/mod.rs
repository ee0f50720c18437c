//! Comparison of embedded stores.
//!
//! Each measurement of a store runs in its own process, which is this program with the sub-command
//! `child`. So CPU time, memory and files are those of the store alone. The child prints *stats*,
//! lines of a name and a number. The parent samples the child's memory meanwhile and makes tables
//! of the stats.

pub mod child;
pub mod churn;
pub mod durable;
pub mod parent;
pub mod restart;
pub mod speed;
pub mod stats;
pub mod tables;
mod work;
