//! The manifest: identifies a database, and lists the segments that it must have.
//!
//! There are two copies, `manifest` and `manifest.2`, so that no single bad sector costs the
//! database. [`codec`] draws the bytes of a copy, [`update`] maintains both copies while the
//! database is open.
//!
//! - Each copy has checksums and a generation, which rises with each write. The undamaged copy with
//!   the highest generation counts.
//! - A copy is overwritten only while the other one is whole on the disk. So a crash costs at most
//!   one copy, and with it only the names of segments begun since the last sync.
//! - The names of removed segments are deleted from both copies before the files are, and durably
//!   from at least the copy with the higher generation. So a segment that the manifest names is
//!   missing only if something else has removed it.
//! - Both copies are made by renaming, so neither ever exists without contents.

mod codec;
mod update;

pub(super) use codec::{Contents, State};
pub(super) use update::Manifest;

use super::scan::UNREADABLE;
use super::{DatabaseId, error_at};
use crate::io::{File, Open, Storage, is_unreadable, read_around};
use crate::{Damage, Error, Kind, Result};
use codec::{Copy, decode};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(crate) const NAME: &str = "manifest";
pub(crate) const SECOND_NAME: &str = "manifest.2";

/// Names of the copies, by their index.
const NAMES: [&str; 2] = [NAME, SECOND_NAME];

/// End of the error if no copy can be read.
const WAY_OUT: &str = "and the other copy cannot be read either, so the database cannot be opened; \
                       `tyrant salvage` copies what can be read into another";

/// Kind of a database, as stored in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredKind {
    Hash = 1,
    Tree = 2,
    Fixed = 3,
    Table = 4,
}

impl StoredKind {
    /// Returns its name with an article, for sentences.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Hash => Kind::Hash,
            Self::Tree => Kind::Tree,
            Self::Fixed => Kind::Fixed,
            Self::Table => Kind::Table,
        }
        .described()
    }
}

/// Kind that an engine was created with and keeps, and its parameters, which only the engine
/// interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineParameters {
    pub(crate) kind: StoredKind,
    pub(crate) encoded: [u8; 24],
}

impl EngineParameters {
    pub(crate) fn of(kind: StoredKind) -> Self {
        Self { kind, encoded: [0; 24] }
    }
}

/// The manifest of an existing database.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) contents: Contents,
    /// Index of the copy that the contents are from.
    best: usize,
    /// Copies that must be rewritten: missing, damaged or of the first format.
    to_heal: [bool; 2],
    /// Damage to copies by something other than a crash.
    pub(super) damages: Vec<Damage>,
}

impl Found {
    /// Makes the copy that counts durable, because a killed process may have left it in the page
    /// cache only. Called before the other copy is overwritten, and before any file is removed that
    /// this copy does not name.
    pub(super) fn sync(&self, storage: &dyn Storage, directory: &Path) -> Result<()> {
        let path = directory.join(NAMES[self.best]);
        let synced = storage.open(&path, Open::Existing).and_then(|file| file.sync());
        synced.map_err(|error| error_at("sync", &path, error))
    }
}

/// Reads the manifest of a database, or `None` if the directory holds none.
pub(super) fn read(storage: &dyn Storage, directory: &Path) -> Result<Option<Found>> {
    let mut copies = Vec::with_capacity(NAMES.len());
    for name in NAMES {
        copies.push(read_copy(storage, directory, name)?);
    }
    let path = |index: usize| directory.join(NAMES[index]);
    if let Some(index) = copies.iter().position(|copy| matches!(copy, Copy::Unknown(_)))
        && let Copy::Unknown(what) = &copies[index]
    {
        return Err(Error::Corrupted { file: path(index), offset: 8, what: (*what).into() });
    }
    if let Copy::Good(contents) = &copies[0]
        && contents.state == State::Unknown
    {
        // In the first format, a second copy is left by an upgrade that did not finish.
        let contents = contents.clone();
        return Ok(Some(Found { contents, best: 0, to_heal: [true; 2], damages: Vec::new() }));
    }
    let generation = |copy: &Copy| match copy {
        Copy::Good(contents) => Some(contents.generation),
        _ => None,
    };
    let best = usize::from(generation(&copies[1]) > generation(&copies[0]));
    let Copy::Good(contents) = &copies[best] else {
        return match copies.iter().position(|copy| !matches!(copy, Copy::Missing)) {
            None => Ok(None),
            Some(index) => {
                let what = copies[index].what().unwrap_or("it cannot be read");
                let what = format!("{what}, {WAY_OUT}");
                Err(Error::Corrupted { file: path(index), offset: 0, what })
            }
        };
    };
    let other = 1 - best;
    let what = match &copies[other] {
        Copy::Good(second) if second.database_id == contents.database_id => None,
        Copy::Good(_) => Some("it is the manifest of another database"),
        // Lists are longer than a sector, so a crash may tear the copy that is being written. Bytes
        // written since the database was opened may be lost in other ways.
        Copy::Torn(_)
            if contents.state == State::Open
                || storage.page_cache_id(directory) != Some(contents.page_cache) =>
        {
            None
        }
        // The database was being opened again.
        Copy::Torn(torn) if torn.state == State::Open && torn.generation > contents.generation => {
            None
        }
        Copy::Missing if !contents.is_paired => None,
        Copy::Missing => Some("this copy of the manifest is missing"),
        copy => copy.what(),
    };
    let damages = what.map(|what| Damage { file: path(other), offset: 0, what: what.into() });
    let mut to_heal = [false; 2];
    to_heal[other] = what.is_some() || generation(&copies[other]).is_none();
    let contents = contents.clone();
    Ok(Some(Found { contents, best, to_heal, damages: damages.into_iter().collect() }))
}

/// Returns as much of the contents as can be read from a damaged manifest, to save the database's
/// records. `None` if neither copy can be read.
pub(super) fn read_remains(storage: &dyn Storage, directory: &Path) -> Result<Option<Contents>> {
    for name in NAMES {
        if let Copy::Good(contents) | Copy::Torn(contents) | Copy::Headed(contents) =
            read_copy(storage, directory, name)?
        {
            return Ok(Some(contents));
        }
    }
    Ok(None)
}

fn read_copy(storage: &dyn Storage, directory: &Path, name: &str) -> Result<Copy> {
    let path = directory.join(name);
    let file = match storage.open(&path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Copy::Missing),
        Err(error) if is_unreadable(&error) => return Ok(Copy::Bad(UNREADABLE)),
        Err(error) => return Err(error_at("open", &path, error)),
    };
    let failed = |error| error_at("read", &path, error);
    let mut bytes = vec![0; codec::SECTOR_BYTES];
    let mut unreadable = Vec::new();
    read_around(&*file, &mut bytes, 0, &mut unreadable).map_err(failed)?;
    let list_bytes = codec::list_bytes(&bytes);
    bytes.resize(codec::SECTOR_BYTES + list_bytes, 0);
    let (list, offset) = (&mut bytes[codec::SECTOR_BYTES..], codec::SECTOR_BYTES as u64);
    read_around(&*file, list, offset, &mut unreadable).map_err(failed)?;
    Ok(match decode(&bytes) {
        copy if unreadable.is_empty() => copy,
        // A crash may tear a list, but does not make it unreadable.
        Copy::Torn(contents) | Copy::Headed(contents) => Copy::Headed(contents),
        _ => Copy::Bad(UNREADABLE),
    })
}

/// Creates the manifest of a new database, in both copies.
pub(super) fn create(
    storage: &dyn Storage,
    directory: &Path,
    parameters: &EngineParameters,
) -> Result<Found> {
    let random = || RandomState::new().build_hasher().finish();
    let database_id = DatabaseId { id: random(), hash_seed: random(), salt: random() as u32 };
    let contents = Contents::new(database_id, *parameters);
    let contents = write(storage, directory, contents)?;
    Ok(Found { contents, best: 0, to_heal: [false; 2], damages: Vec::new() })
}

/// Writes both copies, each by renaming. The first copy is written last: programs that only look at
/// file names take a directory for a database because of it. Returns the contents written.
pub(super) fn write(
    storage: &dyn Storage,
    directory: &Path,
    mut contents: Contents,
) -> Result<Contents> {
    for (index, is_paired) in [(1, false), (0, true)] {
        contents.generation += 1;
        contents.is_paired = is_paired;
        write_copy(storage, directory, index, &contents)?;
    }
    Ok(contents)
}

/// Writes one copy, by renaming.
fn write_copy(
    storage: &dyn Storage,
    directory: &Path,
    index: usize,
    contents: &Contents,
) -> Result<()> {
    let name = NAMES[index];
    replace_with(storage, directory, name, &mut |file| {
        let mut bytes = contents.encode();
        // Padding lets a list grow by a few segments later, on a disk that may be full then.
        bytes.resize(bytes.len().next_multiple_of(codec::FILE_BYTES_MIN), 0);
        file.write_at(&bytes, 0).map_err(|error| error_at("write", &directory.join(name), error))
    })
}

/// Replaces a file durably and atomically by one that `fill` writes.
pub(super) fn replace_with(
    storage: &dyn Storage,
    directory: &Path,
    name: &str,
    fill: &mut dyn FnMut(&Arc<dyn File>) -> Result<()>,
) -> Result<()> {
    let (path, beside) = (directory.join(name), directory.join(format!("{name}.new")));
    let failed = |error| error_at("write", &path, error);
    match storage.remove(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = storage.open(&beside, Open::New).map_err(failed)?;
    let filled = fill(&file).and_then(|()| file.sync().map_err(failed));
    if let Err(error) = filled {
        let _ = storage.remove(&beside);
        return Err(error);
    }
    storage.rename(&beside, &path).map_err(failed)?;
    storage.sync_dir(directory).map_err(failed)
}
