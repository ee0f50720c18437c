//! Engines that live on a disk, for tests that open them on a storage of their own.

use cabinet::io::Storage;
use cabinet::{Engine, FixedDatabase, HashDatabase, Options, Result, TreeDatabase};
use std::path::Path;
use std::sync::Arc;

/// An engine without threads of its own.
pub(crate) trait OnDisk: Engine + Sized + 'static {
    /// Where it is.
    const PATH: &str;

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self>;

    /// Does what its threads would do.
    fn tend(&self) -> Result<()>;

    fn checkpoint(&self) -> Result<()>;
}

macro_rules! on_disk {
    ($engine:ty, $path:literal, $adapt:expr, $tend:expr) => {
        impl OnDisk for $engine {
            const PATH: &str = $path;

            fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
                let mut options = options.clone();
                $adapt(&mut options);
                Self::open_on(storage, Path::new(Self::PATH), &options, false)
            }

            fn tend(&self) -> Result<()> {
                $tend(self)
            }

            fn checkpoint(&self) -> Result<()> {
                self.checkpoint()
            }
        }
    };
}

on_disk!(HashDatabase, "casket.tch", |_: &mut Options| (), Self::tend);
on_disk!(
    TreeDatabase,
    "casket.tcb",
    |options: &mut Options| {
        // So small that leaves are divided, joined, written out and read back all the time.
        options.leaf_bytes = Some(256);
        options.cache_bytes = Some(2000);
    },
    |engine: &Self| {
        // A checkpoint is due only after many bytes.
        engine.tend().and_then(|()| engine.checkpoint())
    }
);
on_disk!(
    FixedDatabase,
    "casket.tcf",
    |options: &mut Options| {
        // More than a test stores in one value, and ids for all keys.
        options.width = Some(4 << 20);
        options.limit_bytes = Some(u64::MAX);
    },
    Self::tend
);
