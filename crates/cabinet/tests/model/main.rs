//! One set of promises for all engines.
//!
//! An engine takes part by a [`subject::Subject`] and a line in [`for_each_engine`].

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod concurrency;
mod model;
mod named;
#[path = "../on_disk/mod.rs"]
mod on_disk;
mod operation;
mod scan;
mod subject;

/// Makes a test of each engine out of a function over any [`subject::Subject`].
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
                super::$promise::<crate::subject::HashKilled>();
            }

            #[test]
            fn hash_power_lost() {
                super::$promise::<crate::subject::HashPowerLost>();
            }

            #[test]
            fn fixed_killed() {
                super::$promise::<crate::subject::FixedKilled>();
            }

            #[test]
            fn fixed_power_lost() {
                super::$promise::<crate::subject::FixedPowerLost>();
            }

            #[test]
            fn tree_killed() {
                super::$promise::<crate::subject::TreeKilled>();
            }

            #[test]
            fn tree_power_lost() {
                super::$promise::<crate::subject::TreePowerLost>();
            }
        })*
    };
}

pub(crate) use for_each_engine;
