//! A hash database whose index is on the disk.

use crate::disk::DiskEngine;
use cabinet::testing::Storage;
use cabinet::{Engine, HashDatabase, Options, Result};
use std::sync::Arc;

/// A hash database with no memory for its index. Changes since the last call of
/// [`DiskEngine::run_maintenance`] are in memory, the rest is in the checkpoint.
pub(crate) struct HashInRuns(pub(crate) Arc<HashDatabase>);

impl DiskEngine for HashInRuns {
    const PATH: &str = "casket.tch";

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let mut options = options.clone();
        options.index_bytes = Some(0);
        DiskEngine::open(storage, &options).map(Self)
    }

    fn engine(&self) -> Arc<dyn Engine> {
        self.0.engine()
    }

    fn run_maintenance(&self) -> Result<()> {
        DiskEngine::run_maintenance(&self.0)
    }

    fn checkpoint(&self) -> Result<()> {
        DiskEngine::checkpoint(&self.0)
    }
}
