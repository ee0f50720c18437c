//! Observed storage: calls a function before each change.

use cabinet::testing::{FaultyStorage, File, Map, Open, Storage};
use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Operation that a storage is about to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageOperation {
    /// A file will be removed.
    Remove,
    /// Bytes will be written into a file.
    Write,
    /// Names in a directory will be made durable.
    SyncNames,
    /// A file or a name will change otherwise. Appending through a map is not a change.
    Change,
}

/// Function that is called before each operation.
type Watch = Arc<dyn Fn(StorageOperation) + Send + Sync>;

/// Observed storage. See the module.
pub(crate) struct ObservedStorage {
    pub(crate) storage: FaultyStorage,
    pub(crate) watch: Watch,
}

struct ObservedFile {
    file: Arc<dyn File>,
    watch: Watch,
}

impl Storage for ObservedStorage {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.storage.create_dir(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.storage.list(directory)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        (self.watch)(StorageOperation::Change);
        let file = self.storage.open(path, how)?;
        Ok(Arc::new(ObservedFile { file, watch: Arc::clone(&self.watch) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.watch)(StorageOperation::Change);
        self.storage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.watch)(StorageOperation::Remove);
        self.storage.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_dir(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.watch)(StorageOperation::Change);
        self.storage.link(from, to)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        (self.watch)(StorageOperation::SyncNames);
        self.storage.sync_dir(directory)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.storage.lock(path)
    }

    fn page_cache_id(&self, directory: &Path) -> Option<[u8; 16]> {
        self.storage.page_cache_id(directory)
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.storage.free_bytes(directory)
    }
}

impl File for ObservedFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_cached_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        (self.watch)(StorageOperation::Write);
        self.file.write_at(bytes, offset)
    }

    fn allocate(&self, map: &Map, length: u64) -> io::Result<()> {
        (self.watch)(StorageOperation::Change);
        self.file.allocate(map, length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        (self.watch)(StorageOperation::Change);
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        (self.watch)(StorageOperation::Change);
        self.file.sync()
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        self.file.will_read(offset, bytes);
    }

    fn map(&self, capacity: usize, written: usize) -> io::Result<Map> {
        self.file.map(capacity, written)
    }
}
