//! Measures cabinet beside other stores, and tyrant beside other servers.
//!
//! Seven programs stand on it: `engines` gives every embedded store the same work in processes of
//! their own, `load` drives network servers over loopback, `cold` drives tyrant with less memory
//! than data, `cache` compares caches of one size, `queries` loads tables and asks them, `words`
//! counts the words of all records, `mailings` stores mailings by address. All
//! interleave what they compare (A B C, A B C, ...) and judge by ratios within a round, so that a
//! machine that speeds up or slows down does so for everyone. See
//! `docs/benchmarks/method.md` for the method.

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
