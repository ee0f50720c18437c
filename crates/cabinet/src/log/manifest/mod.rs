//! The manifest: what makes a directory a database, and which segments it must have.
//!
//! It is there twice, as `manifest` and `manifest.2`, so that no single bad sector costs the
//! database. [`codec`] draws its bytes, [`update`] keeps both copies while the database is open.
//!
//! - Each copy has a generation, which rises with each write, and checksums. The good copy with the
//!   highest generation counts.
//! - A copy is overwritten only while the other one is whole on the disk. So a crash costs one copy
//!   at most, and that one knew little more than the other: segments begun since.
//! - The names of segments that are removed leave both copies before the files are removed, and at
//!   least the one with the higher generation durably. So a segment that the manifest names is
//!   missing only if something else has removed it.
//! - Both copies are made by renaming, and so never there without contents.

mod codec;
mod update;

pub(super) use codec::{Contents, State};
pub(super) use update::Manifest;

use super::scan::UNREADABLE;
use super::{DatabaseId, error_at};
use crate::io::{File, Open, Storage, is_unreadable, read_around};
use crate::{Damage, Error, Result};
use codec::{Copy, decode};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(crate) const NAME: &str = "manifest";
pub(crate) const SECOND_NAME: &str = "manifest.2";

/// Names of the copies, by their index.
const NAMES: [&str; 2] = [NAME, SECOND_NAME];

/// The error where no copy can be read ends with this.
const WAY_OUT: &str = "and the other copy cannot be read either, so that the database does not open; \
                       `tyrant salvage` copies what can be read into another";

/// A kind of database, as the manifest has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredKind {
    Hash = 1,
    Tree = 2,
    Fixed = 3,
    Table = 4,
}

/// Kind that an engine was created with and keeps, and parameters: bytes that are its own.
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

/// The manifest of a database that is there.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) contents: Contents,
    /// Which copy it is.
    best: usize,
    /// Copies that have to be made again: missing, damaged or of the first format.
    to_heal: [bool; 2],
    /// Copies that something else than a crash has damaged or removed.
    pub(super) damages: Vec<Damage>,
}

impl Found {
    /// Makes the copy that counts durable: a process that was killed may have left it in the page
    /// cache only. Before the other copy is overwritten, and before anything is removed that this
    /// one does not name.
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
        // In the first format a second copy is what an upgrade did not come to the end of.
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
        // Lists are longer than a sector: a crash may tear the one that is being written. Bytes
        // written since the database was opened may be lost in other ways.
        Copy::Torn(_)
            if contents.state == State::Open || storage.boot_id() != Some(contents.boot) =>
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

/// Returns what can be told of a database from the remains of its manifest, to save its records.
/// `None` if no copy of the manifest tells anything.
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
        // A crash tears a list, and leaves none that cannot be read.
        Copy::Torn(contents) | Copy::Headed(contents) => Copy::Headed(contents),
        _ => Copy::Bad(UNREADABLE),
    })
}

/// The manifest of a new database, in both copies.
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

/// Makes both copies, each by renaming: the first one last, without which a directory is no
/// database for those who only look at names. Returns what they say.
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

/// Makes one copy, by renaming.
fn write_copy(
    storage: &dyn Storage,
    directory: &Path,
    index: usize,
    contents: &Contents,
) -> Result<()> {
    let name = NAMES[index];
    replace_with(storage, directory, name, &mut |file| {
        let mut bytes = contents.encode();
        // A list that grows by a few segments later needs no space of a disk that may be full.
        bytes.resize(bytes.len().next_multiple_of(codec::FILE_BYTES_MIN), 0);
        file.write_at(&bytes, 0).map_err(|error| error_at("write", &directory.join(name), error))
    })
}

/// Replaces a file by one with what `fill` writes into it, durably, and either wholly or not at
/// all.
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
