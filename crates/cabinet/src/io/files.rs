//! Files beside a database, for a program that serves one: locks of folders, temporary files, and
//! mapped files with one writer each.
//!
//! The feature `internals` exports them. They are made for the server of this project, and may
//! change in any version.

pub use crate::io::{Words, page_cache_id};

use super::file_lock;
use crate::io::{Appender, File, Map, Open, RealStorage, Storage, directory_of};
use rustix::fs::OFlags;
use std::any::Any;
use std::fmt;
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Returns the folder that a path is in; `.` for a name alone.
pub fn folder_of(path: &Path) -> &Path {
    directory_of(path)
}

/// Lets go of the copies that this process, the child of a fork, has of all locks of its parent,
/// those of open databases among them. It does only what a handler of a signal may do.
pub fn release_locks() {
    file_lock::release_locks();
}

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    RealStorage.sync_dir(folder)
}

/// Opens a file to read it. Fails for a pipe, which would wait for its writer.
pub fn open_file(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.file_type().is_fifo() {
        true => Err(io::Error::other("it is a pipe: copy what it has into a file")),
        false => Ok(file),
    }
}

/// Lock of a folder against other processes, until it is dropped.
pub struct FolderLock(#[expect(dead_code, reason = "it is dropped")] Box<dyn Any + Send + Sync>);

impl FolderLock {
    /// Locks the folder that `lock_file` is in. Creates that file if it is missing, as a database
    /// does with its file `lock`. Fails with [`io::ErrorKind::WouldBlock`] if the folder is locked.
    pub fn take(lock_file: &Path) -> io::Result<Self> {
        RealStorage.lock(lock_file).map(Self)
    }
}

impl fmt::Debug for FolderLock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FolderLock").finish_non_exhaustive()
    }
}

/// File without a name, for bytes that take too much memory. It is removed when this and the result
/// of [`Spool::finish`] are dropped.
pub struct Spool {
    file: Arc<dyn File>,
    bytes: u64,
}

impl Spool {
    /// Creates an empty file in a folder.
    pub fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: RealStorage::temporary(folder)?, bytes: 0 })
    }

    /// Returns the length, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes bytes at an offset, after zeros if the file was shorter.
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)?;
        self.bytes = self.bytes.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Starts to write a part to the disk, and drops its clean pages. A failure costs only memory.
    pub fn write_back(&self, offset: u64, bytes: u64) {
        self.file.write_back(offset, bytes);
    }

    /// Returns the contents, in the memory of the file. Nothing can write to them any more.
    pub fn finish(self) -> io::Result<Spooled> {
        let bytes = usize::try_from(self.bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // An empty file cannot be mapped.
        let map = (bytes > 0).then(|| self.file.map(bytes, bytes)).transpose()?;
        if let Some(map) = &map {
            map.expect_reading_in_order();
        }
        Ok(Spooled(map))
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Spool").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Contents of a [`Spool`], which no longer change.
pub struct Spooled(Option<Map>);

impl Deref for Spooled {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref().and_then(|map| map.get(0, map.written())).unwrap_or_default()
    }
}

impl fmt::Debug for Spooled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Spooled").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

/// File of a fixed length that is appended to without a system call. Appended bytes survive a
/// killed process, but not a loss of power.
pub struct AppendFile {
    appender: Appender,
    /// Keeps the file open.
    _file: Arc<dyn File>,
}

impl AppendFile {
    /// Creates the file, which must not exist, with `capacity` bytes. All of them are on the disk
    /// and in memory from then on, and are zeros. If that fails, there is no file.
    pub fn create(path: &Path, capacity: usize) -> io::Result<Self> {
        let file = RealStorage.open(path, Open::New)?;
        match Self::begin(&*file, capacity) {
            Ok(appender) => Ok(Self { appender, _file: file }),
            Err(error) => {
                // The first failure is the one to report.
                let _ = RealStorage.remove(path);
                Err(error)
            }
        }
    }

    fn begin(file: &dyn File, capacity: usize) -> io::Result<Appender> {
        let map = file.map(capacity, 0)?;
        file.prepare(&map, capacity as u64)?;
        Appender::of(&map).ok_or_else(|| io::Error::other("a new mapping has an appender already"))
    }

    /// Appends the parts one after the other. Returns false, and changes nothing, if there is no
    /// space for them.
    #[must_use]
    pub fn append(&mut self, parts: &[&[u8]]) -> bool {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.appender.append(parts, bytes)
    }

    /// Returns the offset of the next append, in bytes.
    pub fn end(&self) -> usize {
        self.appender.end()
    }
}

impl fmt::Debug for AppendFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AppendFile").field("end", &self.end()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_has_what_was_written_and_zeros_between() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Spool::new(folder.path()).and_then(Spool::finish).expect("a spool").is_empty());
        let mut spool = Spool::new(folder.path()).expect("a spool");
        spool.write_at(b"later", 3).expect("space");
        spool.write_at(b"a", 0).expect("space");
        assert_eq!(spool.bytes(), 8);
        assert_eq!(&*spool.finish().expect("a map"), b"a\0\0later");
        assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
    }

    #[test]
    fn an_append_that_does_not_fit_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("appended");
        let mut file = AppendFile::create(&path, 8).expect("space");
        assert!(file.append(&[b"12", b"345"]));
        assert!(!file.append(&[b"6789"]));
        assert_eq!(file.end(), 5);
        assert!(file.append(&[b"678"]));
        assert_eq!(std::fs::read(&path).expect("a file"), b"12345678");
        AppendFile::create(&path, 8).expect_err("it exists");
    }

    #[test]
    fn a_file_that_cannot_be_allocated_is_not_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("appended");
        AppendFile::create(&path, usize::MAX / 4).expect_err("no address space");
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_has_one_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let lock = FolderLock::take(&path).expect("a lock");
        let error = FolderLock::take(&path).expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        FolderLock::take(&path).expect("a lock again");
    }
}
