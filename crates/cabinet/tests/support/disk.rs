//! Disk databases of every kind, on a storage of the test's own.

use cabinet::table::Table;
use cabinet::testing::Storage;
use cabinet::{Database, Engine, FixedDatabase, HashDatabase, Options, Result, TreeDatabase};
use std::path::Path;
use std::sync::Arc;

/// A database without threads of its own, so small that compaction, eviction and the like happen
/// constantly.
pub(crate) trait DiskEngine: Sized {
    /// Path of the database.
    const PATH: &str;

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self>;

    fn engine(&self) -> Arc<dyn Engine>;

    fn database(&self) -> Database {
        Database::from_engine(self.engine())
    }

    /// Does the work of its threads once.
    fn run_maintenance(&self) -> Result<()>;

    fn checkpoint(&self) -> Result<()>;
}

impl DiskEngine for Arc<HashDatabase> {
    const PATH: &str = "casket.tch";

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        HashDatabase::open_on(storage, Path::new(Self::PATH), options, false).map(Self::new)
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Self::clone(self)
    }

    fn run_maintenance(&self) -> Result<()> {
        HashDatabase::run_maintenance(self)
    }

    fn checkpoint(&self) -> Result<()> {
        HashDatabase::checkpoint(self)
    }
}

impl DiskEngine for Arc<FixedDatabase> {
    const PATH: &str = "casket.tcf";

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let mut options = options.clone();
        // Wider than any test value, with ids for all keys.
        options.width = Some(4 << 20);
        options.limit_bytes = Some(u64::MAX);
        FixedDatabase::open_on(storage, Path::new(Self::PATH), &options, false).map(Self::new)
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Self::clone(self)
    }

    fn run_maintenance(&self) -> Result<()> {
        FixedDatabase::run_maintenance(self)
    }

    fn checkpoint(&self) -> Result<()> {
        FixedDatabase::checkpoint(self)
    }
}

impl DiskEngine for Arc<TreeDatabase> {
    const PATH: &str = "casket.tcb";

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let options = small_leaves(options, 256, 2000);
        TreeDatabase::open_on(storage, Path::new(Self::PATH), &options, false).map(Arc::new)
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Self::clone(self)
    }

    fn run_maintenance(&self) -> Result<()> {
        // A checkpoint is due only after many bytes.
        TreeDatabase::run_maintenance(self).and_then(|()| TreeDatabase::checkpoint(self))
    }

    fn checkpoint(&self) -> Result<()> {
        TreeDatabase::checkpoint(self)
    }
}

fn small_leaves(options: &Options, leaf_bytes: u32, cache_bytes: u64) -> Options {
    let mut options = options.clone();
    options.leaf_bytes = options.leaf_bytes.or(Some(leaf_bytes));
    options.cache_bytes = options.cache_bytes.or(Some(cache_bytes));
    options
}

/// A table, and the tree that it consists of.
pub(crate) struct TableDatabase {
    pub(crate) table: Arc<Table>,
    tree: Arc<TreeDatabase>,
}

impl DiskEngine for TableDatabase {
    const PATH: &str = "casket.tct";

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let small = small_leaves(options, 512, 16 << 10);
        let tree = TreeDatabase::open_table_on(storage, Path::new(Self::PATH), &small, false);
        let tree = Arc::new(tree?);
        let table = Table::new(Arc::clone(&tree) as _, options)?;
        Ok(Self { table: Arc::new(table), tree })
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.table) as _
    }

    fn database(&self) -> Database {
        Database::from(Arc::clone(&self.table))
    }

    fn run_maintenance(&self) -> Result<()> {
        DiskEngine::run_maintenance(&self.tree)
    }

    fn checkpoint(&self) -> Result<()> {
        self.tree.checkpoint()
    }
}
