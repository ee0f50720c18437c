//! Benchmarks that compare cabinet with other stores, and tyrant with other servers.
//!
//! The crate has eight programs. `engines` gives every embedded store the same work in processes of
//! their own. `load` drives network servers over loopback. `cold` drives tyrant with less memory
//! than data. `cache` compares caches of one size, and `queries` loads and queries tables. `words`
//! counts the words of all records, and `mailings` stores mailings by address. `served` measures
//! tyrant alone: tables, replicas and their seeding. All others interleave the compared programs (A
//! B C, A B C, ...) and use ratios within a round, so a change of the machine's speed affects all
//! alike. `docs/benchmarks/method.md` describes the method.

pub mod cgroup;
pub mod disk;
#[cfg(feature = "rivals")]
pub mod engines;
pub mod ffi;
pub mod folder;
pub mod load;
pub mod measurement;
pub mod process;
#[cfg(feature = "cabinet")]
pub mod queries;
pub mod random;
pub mod records;
pub mod report;
#[cfg(feature = "rivals")]
pub mod stores;
