//! Model test: one set of promises for all engines.
//!
//! An engine takes part by a [`subject::Subject`] and a line in [`for_each_engine`].

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod concurrency;
#[path = "../support/disk.rs"]
mod disk;
mod in_runs;
mod mapped;
mod model;
mod operation;
mod possible;
mod scan;
mod subject;

use cabinet::{FixedDatabase, HashDatabase, TreeDatabase};
use std::sync::Arc;

type Hash = Arc<HashDatabase>;
type Runs = in_runs::HashInRuns;
type Fixed = Arc<FixedDatabase>;
type Tree = Arc<TreeDatabase>;
type Table = disk::TableDatabase;

/// Makes one test per engine of each function over any [`subject::Subject`].
macro_rules! for_each_engine {
    ($($promise:ident),* $(,)?) => {
        $(mod $promise {
            #[test]
            fn memory_hash() {
                super::$promise::<crate::subject::MemoryHash>();
            }

            #[test]
            fn memory_tree() {
                super::$promise::<crate::subject::MemoryTree>();
            }

            #[test]
            fn hash_killed() {
                super::$promise::<crate::subject::Killed<crate::Hash>>();
            }

            #[test]
            fn hash_power_lost() {
                super::$promise::<crate::subject::PowerLost<crate::Hash>>();
            }

            #[test]
            fn hash_in_runs_killed() {
                super::$promise::<crate::subject::Killed<crate::Runs>>();
            }

            #[test]
            fn hash_in_runs_power_lost() {
                super::$promise::<crate::subject::PowerLost<crate::Runs>>();
            }

            #[test]
            fn fixed_killed() {
                super::$promise::<crate::subject::Killed<crate::Fixed>>();
            }

            #[test]
            fn fixed_power_lost() {
                super::$promise::<crate::subject::PowerLost<crate::Fixed>>();
            }

            #[test]
            fn tree_killed() {
                super::$promise::<crate::subject::Killed<crate::Tree>>();
            }

            #[test]
            fn tree_power_lost() {
                super::$promise::<crate::subject::PowerLost<crate::Tree>>();
            }

            #[test]
            fn table_killed() {
                super::$promise::<crate::subject::Killed<crate::Table>>();
            }

            #[test]
            fn table_power_lost() {
                super::$promise::<crate::subject::PowerLost<crate::Table>>();
            }
        })*
    };
}

pub(crate) use for_each_engine;
