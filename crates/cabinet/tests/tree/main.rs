//! Promises of a tree beyond those of all engines.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cap;
mod damage;
mod maintenance;
mod model;
#[path = "../support/observed_storage.rs"]
mod observed_storage;
#[path = "../support/wait.rs"]
mod wait;

use cabinet::testing::FaultyStorage;
use cabinet::{Database, KeyOrder, Options, TreeDatabase};
use std::path::Path;
use std::sync::Arc;

pub(crate) const PATH: &str = "casket.tcb";

/// So small that leaves are divided, joined, written out and read back all the time.
pub(crate) fn small_options(order: KeyOrder) -> Options {
    let mut options = Options::default();
    options.order = Some(order);
    options.segment_bytes = Some(64 << 10);
    options.leaf_bytes = Some(256);
    options.cache_bytes = Some(2000);
    options
}

pub(crate) fn open(storage: &FaultyStorage, options: &Options) -> (Arc<TreeDatabase>, Database) {
    let storage = Arc::new(storage.clone());
    let engine = Arc::new(TreeDatabase::open_on(storage, Path::new(PATH), options, false).unwrap());
    let database = Database::from_engine(Arc::clone(&engine) as _);
    (engine, database)
}

pub(crate) fn stat(database: &Database, name: &str) -> u64 {
    let stats = database.stats();
    stats.into_iter().find(|(other, _)| *other == name).unwrap().1.parse().unwrap()
}
