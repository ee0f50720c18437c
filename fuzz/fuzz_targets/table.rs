//! Table with corrupted files.
#![no_main]

mod corruptor;

use cabinet::table::{IndexChange, IndexKind, Operator, Query, Table};
use cabinet::testing::Storage;
use cabinet::{Database, Engine, Options, Result, TreeDatabase};
use corruptor::{Bases, Input, Kind};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;

struct Opened {
    table: Arc<Table>,
    tree: Arc<TreeDatabase>,
}

impl Kind for Opened {
    const PATH: &str = "casket.tct";
    /// The number of the underlying tree.
    const NUMBER: u8 = 2;
    /// The pending-change log is in pages, and its contents determine which of them are read.
    const MEETS_DAMAGE_LATER: bool = true;

    fn open(storage: Arc<dyn Storage>, options: &Options) -> Result<Self> {
        let tree = TreeDatabase::open_on(storage, Path::new(Self::PATH), options, false)?;
        let tree = Arc::new(tree);
        let table = Arc::new(Table::new(Arc::clone(&tree) as _, options)?);
        if table.is_empty() {
            table.set_index(b"column", IndexChange::Set(IndexKind::Lexical))?;
            table.set_index(b"", IndexChange::Set(IndexKind::Gram))?;
        }
        Ok(Self { table, tree })
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.table) as _
    }

    fn database(&self) -> Database {
        Database::from(Arc::clone(&self.table))
    }

    fn run_maintenance(&self) -> Result<()> {
        self.tree.run_maintenance()
    }

    fn checkpoint(&self) -> Result<()> {
        self.tree.checkpoint()
    }

    fn serve(&self) {
        let _ = self.table.generate_uid();
        let _ = self.table.check_indices();
        for query in [
            Query::new().with(b"column", Operator::StringBegins, b"v"),
            Query::new().with(b"", Operator::TextPhrase, b"1"),
        ] {
            let _ = self.table.search(&query);
        }
        let _ = self.table.set_index(b"column", IndexChange::Optimize);
    }
}

static BASES: Bases = Bases::new();

fuzz_target!(|input: Input| corruptor::run::<Opened>(&BASES, &input));
