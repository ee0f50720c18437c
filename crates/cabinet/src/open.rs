//! Opening a database by name.

use crate::memory::{MemoryHash, MemoryTree};
use crate::name::{Kind, NameError, Specification};
use crate::table::Table;
use crate::{Database, Engine, FixedDatabase, HashDatabase, Options, Result, TreeDatabase};
use std::path::Path;
use std::sync::Arc;

impl Database {
    /// Opens the database that a name such as `casket.tch#durability=always` says, see
    /// [`crate::name`].
    pub fn open(name: &str) -> Result<Self> {
        Self::open_specification(&Specification::parse(name)?)
    }

    /// Opens the database at a path, whose suffix says the kind: `casket.tch`, `*`, `+`.
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        let kind = Kind::of_path(path)
            .ok_or_else(|| NameError::UnknownKind(path.display().to_string()))?;
        open(kind, path, options)
    }

    /// Opens the database that was specified. The notices go to the log.
    pub fn open_specification(specification: &Specification) -> Result<Self> {
        for notice in &specification.notices {
            tracing::info!("{notice}");
        }
        open(specification.kind, &specification.path, &specification.options)
    }
}

fn open(kind: Kind, path: &Path, options: &Options) -> Result<Database> {
    if !kind.is_on_memory() && crate::legacy::is_legacy(path) {
        return Err(crate::legacy::refusal(path));
    }
    let mut options = options.clone();
    if options.read_only {
        // Nothing goes because somebody looks at it.
        options.capacity_bytes = 0;
    }
    let options = &options;
    let engine: Arc<dyn Engine> = match kind {
        Kind::MemoryHash => Arc::new(MemoryHash::new(options)),
        Kind::MemoryTree => Arc::new(MemoryTree::new(options)),
        Kind::Hash => Arc::new(HashDatabase::open(path, options)?),
        Kind::Tree => Arc::new(TreeDatabase::open(path, options)?),
        Kind::Fixed => Arc::new(FixedDatabase::open(path, options)?),
        Kind::Table => return Ok(Database::from(Arc::new(Table::open(path, options)?))),
    };
    Ok(Database::from_engine(engine))
}
