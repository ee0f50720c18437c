//! Files of which a database on disk consists, for callers that copy them elsewhere.

use crate::Kind;
use crate::Result;
use crate::io::RealStorage;
use crate::log::check::Files;
use crate::log::segments::{segment_name, segment_number};
use crate::log::{StoredKind, checkpoint, manifest};
use std::path::Path;

/// The files of a database that nobody has open.
///
/// All but the checkpoint are as they are for ever, if it is a copy that was never opened: two
/// copies of a database have the files of their log in common, but for those that compaction has
/// removed or that were new.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inventory {
    /// Kind of database.
    pub kind: Kind,
    /// Random number that the database was given at its creation, and its copies have too.
    pub database_id: u64,
    /// Names of the files in its folder that make it: the files of the log in their order, the
    /// checkpoint if there is one, and at last the manifest, without which a folder is no database.
    pub files: Vec<String>,
}

impl Inventory {
    /// Looks at the database in a folder. Fails with [`crate::Error::InUse`] if somebody has it
    /// open, and with [`crate::Error::Corrupted`] if its manifest is damaged.
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
        // The first copy last: without it a folder is no database for those who look at names.
        names.push(manifest::SECOND_NAME.to_owned());
        names.push(manifest::NAME.to_owned());
        Ok(Self { kind, database_id: files.database_id().id, files: names })
    }

    /// Whether a file of such a name is one of a log, which does not change once it is in a copy.
    pub fn is_of_log(name: &str) -> bool {
        segment_number(name).is_some()
    }

    /// Whether a database can have a file of such a name among those that make it.
    pub fn is_file_name(name: &str) -> bool {
        let others = [checkpoint::NAME, manifest::NAME, manifest::SECOND_NAME];
        Self::is_of_log(name) || others.contains(&name)
    }
}
