//! Real storage: files of the operating system.

use super::file_lock::FileLock;
use super::{File, Map, Open, Storage, misses, page_cache_id};
use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::any::Any;
use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are announced to the operating system at a time: its default readahead.
const ANNOUNCED_BYTES: u64 = 128 << 10;

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealStorage;

impl RealStorage {
    /// Creates a file without a name in a directory. It disappears when it is closed.
    #[cfg(feature = "internals")]
    pub(crate) fn temporary(directory: &Path) -> io::Result<Arc<dyn File>> {
        use std::sync::atomic::{AtomicU64, Ordering};

        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("spool-{}-{number}.tmp", std::process::id()));
        let file = Self.open(&path, Open::New)?;
        fs::remove_file(&path)?;
        Ok(file)
    }
}

impl Storage for RealStorage {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            result => result,
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // A name that is not UTF-8 is not one of a database.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(how == Open::New);
        let file = match options.open(path) {
            // A protected file can still be opened for reading.
            Err(error) if how == Open::Existing && is_protected(&error) => fs::File::open(path)?,
            file => file?,
        };
        // Records are read at random; see `Map::of_file`.
        advise(&file, 0, 0, Advice::Random);
        Ok(Arc::new(RealFile { file: Arc::new(file), allocating: Mutex::default() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut options = fs::OpenOptions::new();
        let file = match options.read(true).write(true).create(true).truncate(false).open(path) {
            Err(error) if is_protected(&error) => fs::File::open(path)?,
            file => file?,
        };
        let file = FileLock::exclusive(file)?;
        // The lock file may be removed and created again. The directory cannot be, without its
        // files.
        let directory = self.lock_directory(super::directory_of(path))?;
        Ok(Box::new((file, directory)))
    }

    fn lock_directory(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        match FileLock::exclusive(fs::File::open(path)?) {
            Ok(lock) => Ok(Some(Box::new(lock))),
            // Not every network file system locks directories.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::BADF | Errno::NOTSUP | Errno::INVAL)
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn page_cache_id(&self, directory: &Path) -> Option<[u8; 16]> {
        page_cache_id(directory).ok()
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(directory)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// Returns whether a file cannot be opened for writing, though perhaps for reading.
fn is_protected(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Advises the operating system about bytes of a file, or about all from `offset` on if `bytes` is
/// 0. A failure costs only time or memory.
pub(super) fn advise(file: &fs::File, offset: u64, bytes: u64, advice: Advice) {
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(bytes), advice);
}

/// Implements [`File::will_read`]. The operating system reads only the first bytes of an
/// announcement: as many as its readahead or one request to the disk.
pub(super) fn will_read(file: &fs::File, offset: u64, bytes: u64) {
    let end = offset.saturating_add(bytes);
    let mut at = offset;
    while at < end {
        let next = (at / ANNOUNCED_BYTES + 1).saturating_mul(ANNOUNCED_BYTES).min(end);
        advise(file, at, next - at, Advice::WillNeed);
        at = next;
    }
}

/// Implements [`File::read_cached_at`].
pub(super) fn read_cached(
    file: &Arc<fs::File>,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut buffers = [io::IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
        Ok(bytes) => Ok(bytes),
        Err(Errno::AGAIN) => {
            misses::note(file, offset, buffers[0].len());
            Err(io::ErrorKind::WouldBlock.into())
        }
        // Not every file system supports this: then no page counts as cached.
        Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

struct RealFile {
    file: Arc<fs::File>,
    /// Held while space is added to the file, or removed from it.
    allocating: Mutex<()>,
}

impl RealFile {
    /// Allocates the file up to `length`.
    fn extend(&self, length: u64) -> io::Result<()> {
        let present = self.length()?;
        if length > present {
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), present, length - present)?;
        }
        Ok(())
    }
}

impl File for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_cached(&self.file, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn allocate(&self, map: &Map, length: u64) -> io::Result<()> {
        let _one_at_a_time = self.allocating.lock();
        self.extend(length)?;
        map.set_backed(map.backed().max(usize::try_from(length).unwrap_or(usize::MAX)));
        Ok(())
    }

    fn prepare(&self, map: &Map, length: u64) -> io::Result<()> {
        let _one_at_a_time = self.allocating.lock();
        self.extend(length)?;
        let (start, end) = (map.backed(), usize::try_from(length).unwrap_or(usize::MAX));
        // An append ends at `backed`, so no record is overwritten. Writing zeros in large pieces
        // takes a third of the time of faulting in page by page.
        for at in (start..end).step_by(ZEROS.len()) {
            let bytes = ZEROS.len().min(end - at);
            self.file.write_all_at(&ZEROS[..bytes], at as u64)?;
        }
        map.populate(start, end);
        map.set_backed(start.max(end));
        Ok(())
    }

    fn give_back(&self, map: &Map, kept: usize) -> io::Result<()> {
        let _one_at_a_time = self.allocating.lock();
        let end = map.backed().min(map.written() + kept);
        map.set_backed(end);
        self.truncate(end as u64)
    }

    fn freeze(&self, map: &Map) {
        map.freeze(&self.file);
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_back(&self, offset: u64, bytes: u64) {
        advise(&self.file, offset, bytes, Advice::DontNeed);
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        will_read(&self.file, offset, bytes);
    }

    fn forget(&self, offset: u64, bytes: u64) {
        advise(&self.file, offset, bytes, Advice::DontNeed);
    }

    fn map(&self, capacity: usize, written: usize) -> io::Result<Map> {
        Map::of_file(&self.file, capacity, written)
    }
}
