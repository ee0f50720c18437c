//! The manifest: what makes a directory a database.
//!
//! ```text
//! manifest
//!  0   8  magic "tyrantdb"
//!  8   4  version of the format, 1
//! 12   4  kind of database: 1 hash, 2 tree, 3 fixed, 4 table
//! 16   8  identity of the log, random
//! 24   8  seed of key hashes, random
//! 32   4  salt of checksums, random
//! 36  24  what the kind was created with, as its engine has it; zeros for hash
//! 60   4  CRC-32C of the bytes before
//! ```
//!
//! It is written beside its place, synced and renamed, so a database has one or is none yet: at creation,
//! and again where what the kind was created with is tuned.

use super::record::{read_u32, read_u64};
use super::{Identity, error_at};
use crate::io::{File, Open, Storage};
use crate::{Error, Result};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;

pub(crate) const NAME: &str = "manifest";
const MAGIC: &[u8; 8] = b"tyrantdb";
const VERSION: u32 = 1;
const BYTES: usize = 64;

/// A kind of database, as the manifest has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredKind {
    Hash = 1,
    Tree = 2,
    Fixed = 3,
    Table = 4,
}

/// What an engine was created with and stays: its kind, and bytes that are the engine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nature {
    pub(crate) kind: StoredKind,
    pub(crate) parameters: [u8; 24],
}

impl Nature {
    pub(crate) fn of(kind: StoredKind) -> Self {
        Self { kind, parameters: [0; 24] }
    }
}

impl super::Log {
    /// Changes what the kind was created with.
    pub(crate) fn change_parameters(&self, parameters: [u8; 24]) -> Result<()> {
        let mut nature = self.nature.lock();
        let changed = Nature { parameters, ..*nature };
        write(self.storage.as_ref(), &self.directory, &self.identity, &changed)?;
        *nature = changed;
        Ok(())
    }
}

/// Reads the manifest of a database, or `None` if the directory holds none.
pub(crate) fn read(storage: &dyn Storage, directory: &Path) -> Result<Option<(Identity, Nature)>> {
    let path = directory.join(NAME);
    let file = match storage.open(&path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error_at("open", &path, error)),
    };
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) => return Err(error_at("read", &path, error)),
        }
    }
    let corrupted =
        |what: &str| Error::Corrupted { file: path.clone(), offset: 0, what: what.into() };
    if &bytes[..8] != MAGIC {
        return Err(corrupted("it is not a manifest"));
    }
    if read_u32(&bytes[60..]) != crc32c::crc32c(&bytes[..60]) {
        return Err(corrupted("the checksum does not match"));
    }
    if read_u32(&bytes[8..]) != VERSION {
        return Err(corrupted("it is of a version this program does not know"));
    }
    let kind = match read_u32(&bytes[12..]) {
        1 => StoredKind::Hash,
        2 => StoredKind::Tree,
        3 => StoredKind::Fixed,
        4 => StoredKind::Table,
        _ => return Err(corrupted("it is of a kind of database this program does not know")),
    };
    let identity = Identity {
        id: read_u64(&bytes[16..]),
        hash_seed: read_u64(&bytes[24..]),
        salt: read_u32(&bytes[32..]),
    };
    let mut parameters = [0; 24];
    parameters.copy_from_slice(&bytes[36..60]);
    Ok(Some((identity, Nature { kind, parameters })))
}

/// Makes a manifest with a new identity.
pub(crate) fn create(storage: &dyn Storage, directory: &Path, nature: &Nature) -> Result<Identity> {
    let random = || RandomState::new().build_hasher().finish();
    let identity = Identity { id: random(), hash_seed: random(), salt: random() as u32 };
    write(storage, directory, &identity, nature)?;
    Ok(identity)
}

/// Writes the manifest of a database.
pub(crate) fn write(
    storage: &dyn Storage,
    directory: &Path,
    identity: &Identity,
    nature: &Nature,
) -> Result<()> {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(nature.kind as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&identity.id.to_le_bytes());
    bytes[24..32].copy_from_slice(&identity.hash_seed.to_le_bytes());
    bytes[32..36].copy_from_slice(&identity.salt.to_le_bytes());
    bytes[36..60].copy_from_slice(&nature.parameters);
    let sum = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    replace(storage, directory, NAME, &bytes)
}

/// Replaces a file by one with these contents, durably, and either wholly or not at all.
fn replace(storage: &dyn Storage, directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    replace_with(storage, directory, name, &mut |file| {
        file.write_at(bytes, 0).map_err(|error| error_at("write", &directory.join(name), error))
    })
}

/// As `replace`, with what `fill` writes into the new file.
pub(super) fn replace_with(
    storage: &dyn Storage,
    directory: &Path,
    name: &str,
    fill: &mut dyn FnMut(&dyn File) -> Result<()>,
) -> Result<()> {
    let (path, beside) = (directory.join(name), directory.join(format!("{name}.new")));
    let failed = |error| error_at("write", &path, error);
    match storage.remove(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = storage.open(&beside, Open::New).map_err(failed)?;
    let filled = fill(&*file).and_then(|()| file.sync().map_err(failed));
    if let Err(error) = filled {
        let _ = storage.remove(&beside);
        return Err(error);
    }
    storage.rename(&beside, &path).map_err(failed)?;
    storage.sync_dir(directory).map_err(failed)
}
