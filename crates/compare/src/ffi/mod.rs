//! The only unsafe code here: safe interfaces of C libraries, and a clock that no crate wraps.
#![expect(unsafe_code, reason = "foreign functions")]

pub mod clock;
#[cfg(feature = "rivals")]
pub mod lmdb;
#[cfg(feature = "rivals")]
pub mod rocksdb;
#[cfg(feature = "rivals")]
pub mod tokyo_cabinet;
#[cfg(feature = "rivals")]
pub mod tokyo_cabinet_fixed;
#[cfg(feature = "rivals")]
pub mod tokyo_cabinet_table;
#[cfg(feature = "rivals")]
pub mod tokyo_cabinet_tree;
