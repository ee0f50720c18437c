//! Spool: a file for a value that is being received, so that it takes no memory.

use crate::ops::budget::{Budget, Charge};
use crate::store::view::View;
use cabinet::UsableMemory;
use cabinet::files;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are written back to the disk at a time if memory is limited.
const WRITTEN_BACK_BYTES: u64 = 2 << 20;

/// A file without a name, in the folder of the database. It is removed when this is dropped.
pub(crate) struct Spool {
    file: files::Spool,
    /// Length of the part that was written back.
    written_back: u64,
    charge: Charge,
}

/// A complete spooled value, in the memory of the file.
pub(crate) struct Spooled {
    bytes: files::Spooled,
    /// Charge for the space on disk.
    _charge: Charge,
}

impl Spool {
    /// Returns an empty spool, if the database has a folder. Its space on disk counts against
    /// `budget`.
    pub(crate) fn new(database: &View, budget: &Arc<Budget>) -> Option<io::Result<Self>> {
        let folder: PathBuf = Some(database.path()).filter(|path| path.is_dir())?;
        let file = files::Spool::new(&folder);
        Some(file.map(|file| Self { file, written_back: 0, charge: Charge::none(budget) }))
    }

    /// Returns the length so far, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Appends a piece.
    pub(crate) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.write_at(piece, self.bytes())
    }

    /// Writes a piece at `offset`, after zeros if the file was shorter. Fails with
    /// [`io::ErrorKind::QuotaExceeded`] if all spools together would exceed the budget.
    pub(crate) fn write_at(&mut self, piece: &[u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes().max(offset.saturating_add(piece.len() as u64));
        if !self.charge.set(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.file.write_at(piece, offset)?;
        self.write_back(offset + piece.len() as u64);
        Ok(())
    }

    /// Starts writing pages back to the disk, and drops those that are clean. With limited memory
    /// pages count, and dirty ones cannot be reclaimed.
    fn write_back(&mut self, upto: u64) {
        if UsableMemory::of_process().is_limited && upto >= self.written_back + WRITTEN_BACK_BYTES {
            // The earlier pieces are mostly on the disk by now.
            let from = self.written_back.saturating_sub(4 * WRITTEN_BACK_BYTES);
            self.file.write_back(from, upto - from);
            self.written_back = upto;
        }
    }

    /// Returns the complete value.
    pub(crate) fn finish(self) -> io::Result<Spooled> {
        Ok(Spooled { bytes: self.file.finish()?, _charge: self.charge })
    }
}

impl Spooled {
    /// Returns the value.
    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Spool").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
