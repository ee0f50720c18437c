//! Database opening, by name or by path and options.

use crate::base::compress;
use crate::memory::{MemoryHash, MemoryTree};
use crate::name::{NameError, Specification};
#[cfg(feature = "table")]
use crate::table::Table;
use crate::{
    Database, Engine, Error, FixedDatabase, HashDatabase, Kind, Options, Result, TreeDatabase,
};
use std::path::Path;
use std::sync::Arc;

impl Database {
    /// Opens the database with a name such as `casket.tch#durability=always`, see [`crate::name`].
    pub fn open(name: &str) -> Result<Self> {
        open_specified(&Specification::parse(name)?)
    }

    /// Opens the database of a parsed name. Its notices are logged.
    #[cfg(feature = "internals")]
    pub fn open_specification(specification: &Specification) -> Result<Self> {
        open_specified(specification)
    }
}

impl Options {
    /// Opens the database at a path with these options. Without a [kind](Self::kind), the suffix of
    /// the path names it: `casket.tch`, `*`, `+`. Fails with [`Error::InvalidArgument`] if an
    /// option is out of its bounds.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        let path = path.as_ref();
        open(kind_of(path, self.kind)?, path, self)
    }
}

#[cfg(feature = "table")]
impl Table {
    /// Opens the table at a path, or creates it there, and builds the indices that the options ask
    /// for where the column has none. Fails with [`Error::InvalidArgument`] if an option is out of
    /// its bounds, or if the path or the options name another kind.
    ///
    /// [`Options::open`] opens it as a [`Database`], of which it is the [table](Database::table).
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        match kind_of(path, options.kind.or(Some(Kind::Table)))? {
            Kind::Table => Self::open_checked(path, &checked(Kind::Table, path, options)?),
            other => Err(Error::InvalidArgument(format!(
                "the options ask for a {} database, not for a table: leave the kind out",
                other.title()
            ))),
        }
    }
}

fn open_specified(specification: &Specification) -> Result<Database> {
    for notice in &specification.notices {
        tracing::info!("{notice}");
    }
    open(specification.kind, &specification.path, &specification.options)
}

/// Returns the requested kind, or else that of the path. They may not contradict. Fails if the path
/// is a name with settings, which would have no effect.
fn kind_of(path: &Path, asked: Option<Kind>) -> Result<Kind> {
    if path.file_name().is_some_and(|name| name.as_encoded_bytes().contains(&b'#')) {
        return Err(Error::InvalidArgument(format!(
            "{} is a path, and settings behind # have no effect here: set them by the methods of \
             Options, or open the name with Database::open",
            path.display()
        )));
    }
    let named = Kind::of_path(path);
    match (asked, named) {
        (Some(asked), Some(named)) if asked != named => Err(Error::InvalidArgument(format!(
            "the name {} is that of a {} database, not of a {} one: choose one of them",
            path.display(),
            named.title(),
            asked.title()
        ))),
        (Some(asked), None) if asked.is_on_memory() => Err(Error::InvalidArgument(format!(
            "an {} database has no path: name it * or +",
            asked.title()
        ))),
        (Some(kind), _) | (None, Some(kind)) => Ok(kind),
        (None, None) => Err(NameError::UnknownKind(path.display().to_string()).into()),
    }
}

/// Returns the options that take effect. Every way to open a database passes this, before it
/// touches a file. Fails if an option is out of its bounds, if this build lacks a feature, or if
/// the path is a file of Tokyo Cabinet.
fn checked(kind: Kind, path: &Path, options: &Options) -> Result<Options> {
    options.check(kind)?;
    compress::require(options.compression)?;
    if !kind.is_on_memory() {
        refuse_legacy(path)?;
    }
    let mut options = options.clone();
    if options.read_only {
        // A reader must not evict anything.
        options.capacity_bytes = 0;
    }
    Ok(options)
}

fn open(kind: Kind, path: &Path, options: &Options) -> Result<Database> {
    let options = &checked(kind, path, options)?;
    let engine: Arc<dyn Engine> = match kind {
        Kind::MemoryHash => Arc::new(MemoryHash::new(options)),
        Kind::MemoryTree => Arc::new(MemoryTree::new(options)),
        Kind::Hash => Arc::new(HashDatabase::open(path, options)?),
        Kind::Tree => Arc::new(TreeDatabase::open(path, options)?),
        Kind::Fixed => Arc::new(FixedDatabase::open(path, options)?),
        #[cfg(feature = "table")]
        Kind::Table => {
            return Ok(Database::from(Arc::new(Table::open_checked(path, options)?)).of_kind(kind));
        }
        #[cfg(not(feature = "table"))]
        Kind::Table => return Err(Error::without_tables()),
    };
    Ok(Database::of_engine(engine).of_kind(kind))
}

/// Fails if the path is one of Tokyo Cabinet's own files.
#[cfg(feature = "legacy")]
fn refuse_legacy(path: &Path) -> Result<()> {
    if crate::legacy::is_legacy(path) { Err(crate::legacy::refusal(path)) } else { Ok(()) }
}

/// Fails if the path is a file: a database is a folder.
#[cfg(not(feature = "legacy"))]
fn refuse_legacy(path: &Path) -> Result<()> {
    if path.is_file() {
        return Err(Error::without_feature(
            "files in place of folders, such as those of Tokyo Cabinet",
            "build the crate tyrant-cabinet with its feature `legacy`",
        ));
    }
    Ok(())
}
