//! A file for a value that is on its way, so that it takes no memory until it is complete.

use crate::budget::{Budget, Charge};
use cabinet::Database;
use cabinet::io::{File, Map, RealStorage};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A file without a name, in the folder of the database. It is gone when this is.
pub(crate) struct Spool {
    file: Arc<dyn File>,
    bytes: u64,
    charge: Charge,
}

/// A spooled value, in the memory of the file.
pub(crate) struct Spooled {
    map: Option<Map>,
    /// What it takes of the disk counts until it is gone.
    _charge: Charge,
}

impl Spool {
    /// An empty one, if the database has a folder. What it takes of the disk counts against `budget`.
    pub(crate) fn new(database: &Database, budget: &Arc<Budget>) -> Option<io::Result<Self>> {
        let folder: PathBuf = Some(database.path()).filter(|path| path.is_dir())?;
        let file = RealStorage::temporary(&folder);
        Some(file.map(|file| Self { file, bytes: 0, charge: Charge::none(budget) }))
    }

    /// Bytes that were written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds to its end.
    pub(crate) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.write_at(piece, self.bytes)
    }

    /// Puts a piece in its place, with zeros before it if it was shorter. Fails with
    /// [`io::ErrorKind::QuotaExceeded`] if all spools together would come to more than they may.
    pub(crate) fn write_at(&mut self, piece: &[u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes.max(offset.saturating_add(piece.len() as u64));
        if !self.charge.set(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.file.write_at(piece, offset)?;
        self.bytes = bytes;
        Ok(())
    }

    /// The whole value.
    pub(crate) fn finish(self) -> io::Result<Spooled> {
        let bytes = usize::try_from(self.bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // There is no mapping of nothing.
        let map = (bytes > 0).then(|| self.file.map(bytes, bytes)).transpose()?;
        Ok(Spooled { map, _charge: self.charge })
    }
}

impl Spooled {
    /// The value.
    pub(crate) fn value(&self) -> &[u8] {
        self.map.as_ref().and_then(|map| map.get(0, map.written())).unwrap_or_default()
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Spool").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
