//! The border to the operating system: files, mappings, and a storage that fails on purpose.
//!
//! All unsafe code of the library is in [`map`] and [`words`]. Everything above works through
//! [`Storage`] and [`File`], so that the same log runs on a real disk and on one whose power fails
//! at will.

mod faulty;
mod file_lock;
mod map;
mod missing;
mod overlay;
mod real;
mod unreadable;
#[cfg(feature = "internals")]
mod words;

#[cfg(feature = "testing")]
pub use faulty::Faults;
pub use faulty::FaultyStorage;
pub use map::Map;
pub(crate) use map::{AppendBlock, Appender, page_bytes, prefetch};
pub(crate) use missing::Missing;
pub use overlay::OverlayStorage;
pub use real::RealStorage;
pub(crate) use unreadable::{can_write_part, is_unreadable, read_around};
#[cfg(feature = "internals")]
pub use words::Words;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How [`Storage::open`] opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// An existing file.
    Existing,
    /// A new file; one of that name must not exist.
    New,
}

/// The directory that a path is in; `.` for a name alone.
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
    /// Names of the files in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must not exist. Not every file system can, and none can
    /// that of another.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
    /// Takes the lock of the directory that `path`, the lock file, is in until the answer is
    /// dropped. Fails with [`io::ErrorKind::WouldBlock`] if it is taken.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;
    /// Takes the lock of a directory that has no lock file, without making one. `None` where that
    /// cannot be done.
    fn lock_directory(&self, _path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(None)
    }
    /// Random number of this run of the machine: another one after its power was lost. `None` if it
    /// cannot be had.
    fn boot_id(&self) -> Option<[u8; 16]> {
        None
    }
    /// Bytes that files in a directory may still grow by, all together. Others may take them.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// An open file. Offsets and lengths are in bytes.
pub trait File: Send + Sync {
    /// Its length.
    fn length(&self) -> io::Result<u64>;
    /// Reads until the buffer is full or the file ends; answers how much was read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// As `read_at`, but fails with [`io::ErrorKind::WouldBlock`] (or reads less) rather than
    /// wait for the disk.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Gives the file blocks, and a length, up to `length`, for its map to append to; the new
    /// part reads as zeros.
    fn allocate(&self, map: &Map, length: u64) -> io::Result<()>;
    /// As `allocate`, and has the new pages in memory and in the map: appends there will not
    /// fault. They count as changed, so a file that is synced all the time is better without.
    fn prepare(&self, map: &Map, length: u64) -> io::Result<()> {
        self.allocate(map, length)
    }
    /// Gives blocks back that were allocated for a map beyond what is written and `kept` bytes
    /// more. The caller keeps others from appending meanwhile.
    fn give_back(&self, map: &Map, kept: usize) -> io::Result<()> {
        let end = map.backed().min(map.written() + kept);
        map.set_backed(end);
        self.truncate(end as u64)
    }
    /// Maps the file's written bytes again, for reading only. Nothing is appended any more. Pages
    /// that are mapped for writing cost every thread an interruption when they are written back.
    fn freeze(&self, _map: &Map) {}
    /// Cuts the file.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Has these bytes on their way to the disk, as far as they have changed, and their pages given
    /// up where nobody has them mapped. Nothing is durable by that.
    fn write_back(&self, _offset: u64, _bytes: u64) {}
    /// Tells the system that these bytes will be read soon.
    fn will_read(&self, offset: u64, bytes: u64);
    /// Tells the system that these bytes will not be read soon. Pages that others have mapped stay.
    fn forget(&self, _offset: u64, _bytes: u64) {}
    /// Maps `capacity` bytes, of which the first `written` are in the file.
    fn map(&self, capacity: usize, written: usize) -> io::Result<Map>;
}
