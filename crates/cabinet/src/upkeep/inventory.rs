//! Inventory of the files of a disk database, for callers that copy them elsewhere.

use crate::io::RealStorage;
use crate::log::check::Files;
use crate::log::segments::{segment_name, segment_number};
use crate::log::{StoredKind, checkpoint, manifest};
use crate::{Kind, Result};
use std::path::Path;

/// The files of a database that no process has open.
///
/// In a copy that was never opened, no file but the checkpoint ever changes. Two copies of a
/// database have the same files of the log, except for those that compaction has removed or that
/// are new.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inventory {
    /// Kind of database.
    pub kind: Kind,
    /// Random number that a database gets at its creation, and that its copies share.
    pub database_id: u64,
    /// Names of its files: the files of the log in their order, the checkpoint if there is one, and
    /// last the manifest, without which a folder is not a database.
    pub files: Vec<String>,
}

impl Inventory {
    /// Lists the files of the database in a folder. Fails with [`crate::Error::InUse`] if a process
    /// has it open, and with [`crate::Error::Corrupted`] if its manifest is damaged.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let files = Files::open(&RealStorage, path)?;
        let kind = match files.parameters.kind {
            StoredKind::Hash => Kind::Hash,
            StoredKind::Tree => Kind::Tree,
            StoredKind::Fixed => Kind::Fixed,
            StoredKind::Table => Kind::Table,
        };
        let mut names: Vec<String> = files.numbers().iter().copied().map(segment_name).collect();
        if path.join(checkpoint::NAME).exists() {
            names.push(checkpoint::NAME.to_owned());
        }
        // The first copy of the manifest is last: programs that only look at file names take a
        // folder for a database because of it.
        names.push(manifest::SECOND_NAME.to_owned());
        names.push(manifest::NAME.to_owned());
        Ok(Self { kind, database_id: files.database_id().id, files: names })
    }

    /// Returns whether a file with this name is one of a log, which does not change once it is in a
    /// copy.
    pub fn is_of_log(name: &str) -> bool {
        segment_number(name).is_some()
    }

    /// Returns whether a database can have a file with this name.
    pub fn is_file_name(name: &str) -> bool {
        let others = [checkpoint::NAME, manifest::NAME, manifest::SECOND_NAME];
        Self::is_of_log(name) || others.contains(&name)
    }
}
