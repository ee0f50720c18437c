//! Copies of on-memory databases.

use super::record::Record;
use crate::{Database, Error, Result, name::Specification};
use std::io;
use std::path::Path;

/// Writes records into a new database whose kind and path `path` names.
pub(super) fn copy_records<'a>(
    path: &Path,
    records: impl Iterator<Item = &'a Record>,
) -> Result<()> {
    let failed = |kind: io::ErrorKind| Error::Io {
        operation: "copy to",
        path: path.to_path_buf(),
        source: kind.into(),
    };
    let name = path.to_str().ok_or_else(|| failed(io::ErrorKind::InvalidFilename))?;
    let specification = Specification::parse(name)?;
    if specification.kind.is_on_memory() {
        return Err(Error::Unsupported {
            operation: "copies into memory",
            kind: "an on-memory database",
            advice: "name a copy on the disk, such as copy.tch",
        });
    }
    if specification.path.exists() {
        return Err(failed(io::ErrorKind::AlreadyExists));
    }
    let copy = || {
        let target = Database::open(name)?.deferred();
        for record in records {
            let value = record.value()?;
            target.put_with(record.key(), &value, record.meta())?;
        }
        target.sync()
    };
    copy().inspect_err(|_| {
        // A partial copy would open as if it were complete.
        let _ = std::fs::remove_dir_all(&specification.path);
    })
}
