//! I/O layer: files, mappings, a storage in memory, and for tests one that fails on purpose.
//!
//! All unsafe code of the library is in [`map`], [`ring`] and [`words`]. All other code works
//! through [`Storage`] and [`File`], so that the same log runs on a real disk and on a simulated
//! one that loses its power.

#[cfg(any(test, feature = "testing"))]
mod faulty;
mod file_lock;
#[cfg(feature = "internals")]
pub mod files;
mod map;
mod memory;
mod misses;
mod missing;
mod open_blocks;
mod overlay;
mod page_cache;
mod real;
#[cfg(feature = "internals")]
mod ring;
mod unreadable;
#[cfg(feature = "internals")]
mod words;

#[cfg(feature = "testing")]
pub use faulty::Faults;
#[cfg(any(test, feature = "testing"))]
pub use faulty::FaultyStorage;
pub use map::Map;
pub(crate) use map::{AppendBlock, Appender, page_bytes, prefetch};
pub(crate) use memory::MemoryStorage;
pub(crate) use misses::was_missed;
pub(crate) use missing::Missing;
pub(crate) use open_blocks::OPEN_BLOCKS_MAX;
pub use overlay::OverlayStorage;
pub use page_cache::page_cache_id;
pub use real::RealStorage;
#[cfg(feature = "internals")]
pub use ring::Ring;
pub(crate) use unreadable::{can_write_part, is_unreadable, read_around};
#[cfg(feature = "internals")]
pub use words::Words;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Mode of [`Storage::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// An existing file.
    Existing,
    /// A new file; one of that name must not exist.
    New,
}

/// Returns the directory that a path is in; `.` for a name alone.
pub(crate) fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Returns the storage of a database that is opened by its path.
pub(crate) fn storage(read_only: bool) -> Arc<dyn Storage> {
    if read_only { Arc::new(OverlayStorage::new()) } else { Arc::new(RealStorage) }
}

/// Storage of files: a file system, or a substitute for one.
pub trait Storage: Send + Sync {
    /// Creates a directory, unless it exists. The one above it must exist.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the names of the files in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;
    /// Renames a file, replacing one that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must not exist. Not every file system supports that, and
    /// none across file systems.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
    /// Locks the directory that `path`, the lock file, is in, until the result is dropped. Fails
    /// with [`io::ErrorKind::WouldBlock`] if it is locked.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;
    /// Locks a directory that has no lock file, without creating one. Returns `None` where that is
    /// not supported.
    fn lock_directory(&self, _path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(None)
    }
    /// Returns the identity of the page cache of the files in a directory, which changes when what
    /// was not synced may be lost without the death of the process: after a loss of power, and when
    /// the disk is attached again. `None` if it is unknown.
    fn page_cache_id(&self, _directory: &Path) -> Option<[u8; 16]> {
        None
    }
    /// Returns the number of bytes by which files in a directory may still grow in total. Other
    /// processes may use them.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// An open file. Offsets and lengths are in bytes.
pub trait File: Send + Sync {
    /// Returns the length of the file.
    fn length(&self) -> io::Result<u64>;
    /// Reads until the buffer is full or the file ends. Returns the number of bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Like `read_at`, but fails with [`io::ErrorKind::WouldBlock`] (or reads less) instead of
    /// waiting for the disk.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Allocates the file up to `length`, for its map to append to. The new part reads as zeros.
    fn allocate(&self, map: &Map, length: u64) -> io::Result<()>;
    /// Like `allocate`, but also brings the new pages into memory and into the map, so that appends
    /// there do not fault. The pages count as changed, so this does not suit a file that is synced
    /// constantly.
    fn prepare(&self, map: &Map, length: u64) -> io::Result<()> {
        self.allocate(map, length)
    }
    /// Gives back the space that was allocated for a map, except for the written bytes and `kept`
    /// more. The caller keeps other threads from appending meanwhile.
    fn give_back(&self, map: &Map, kept: usize) -> io::Result<()> {
        let end = map.backed().min(map.written() + kept);
        map.set_backed(end);
        self.truncate(end as u64)
    }
    /// Maps the file's written bytes again, for reading only, once nothing is appended any more.
    /// When a page that is mapped for writing is written back, every thread is interrupted.
    fn freeze(&self, _map: &Map) {}
    /// Sets the length of the file.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Starts to write these bytes to the disk, if they have changed, and drops their pages that
    /// are not mapped. Does not make them durable.
    fn write_back(&self, _offset: u64, _bytes: u64) {}
    /// Announces to the operating system that these bytes will be read soon.
    fn will_read(&self, offset: u64, bytes: u64);
    /// Lets the operating system drop the pages of these bytes. Pages that other processes have
    /// mapped stay.
    fn forget(&self, _offset: u64, _bytes: u64) {}
    /// Maps `capacity` bytes, of which the first `written` are in the file.
    fn map(&self, capacity: usize, written: usize) -> io::Result<Map>;
}
