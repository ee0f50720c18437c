//! Overlay storage: the real file system, read-only; changes stay in memory.
//!
//! A database that is opened for reading only is recovered like any other: a torn tail is cut, a
//! new segment is begun, the manifest is rewritten. All of that changes only the files that this
//! storage shows, and disappears with it. So one recovery serves both cases. The real files stay
//! byte for byte the same, even on a read-only file system.
//!
//! A file that is only read costs no memory beyond its mapping. Nor does a file that is appended
//! to, such as a log's last segment: only the appended bytes are in memory. A file that is changed
//! elsewhere is copied into memory first.

use super::file_lock::FileLock;
use super::{File, Map, Open, RealStorage, Storage, directory_of, real};
use parking_lot::Mutex;
use rustix::fs::Advice;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Overlay storage. See the module.
#[derive(Clone, Default)]
pub struct OverlayStorage {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Files that were opened or created here, by their names here.
    files: BTreeMap<PathBuf, Arc<OverlayFile>>,
    /// Names that the file system has, but that were removed here.
    removed: BTreeSet<PathBuf>,
}

impl State {
    /// Returns the file with a name.
    fn find(&mut self, path: &Path) -> io::Result<Arc<OverlayFile>> {
        if let Some(file) = self.files.get(path) {
            return Ok(Arc::clone(file));
        }
        if self.removed.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = fs::File::open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // Records are read at random; see `Map::of_file`.
        real::advise(&file, 0, 0, Advice::Random);
        let image = Image::new(Base::File { file: Arc::new(file), bytes });
        let file = Arc::new(OverlayFile { image: Mutex::new(image) });
        self.files.insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn remove(&mut self, path: &Path) -> io::Result<Arc<OverlayFile>> {
        let file = self.find(path)?;
        self.files.remove(path);
        self.removed.insert(path.to_owned());
        Ok(file)
    }

    fn insert(&mut self, path: &Path, file: Arc<OverlayFile>) {
        self.removed.remove(path);
        self.files.insert(path.to_owned(), file);
    }
}

impl OverlayStorage {
    /// Creates a storage that shows the file system as it is.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Storage for OverlayStorage {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if fs::metadata(path)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let mut names: BTreeSet<String> = RealStorage.list(directory)?.into_iter().collect();
        names.retain(|name| !state.removed.contains(&directory.join(name)));
        let here = state.files.keys().filter(|path| path.parent() == Some(directory));
        names.extend(here.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())));
        Ok(names.into_iter().collect())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        let found = state.find(path);
        if how == Open::Existing {
            return Ok(found?);
        }
        match found {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = Arc::new(OverlayFile::in_memory());
                state.insert(path, Arc::clone(&file));
                Ok(file)
            }
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.remove(from)?;
        state.insert(to, file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state.lock().remove(path).map(drop)
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.find(from)?;
        if state.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.insert(to, file);
        Ok(())
    }

    fn sync_dir(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Returns `u64::MAX`: changes take memory, not space of the file system.
    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Locks out writers, not other readers. Locks the lock file, if there is one, and its
    /// directory, whose lock stays when the file is removed.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = match fs::File::open(path) {
            Ok(file) => Some(FileLock::shared(file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let directory = match FileLock::shared(fs::File::open(directory_of(path))?) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // Not every network file system locks directories.
            Err(_) => None,
        };
        Ok(Box::new((file, directory)))
    }

    fn page_cache_id(&self, directory: &Path) -> Option<[u8; 16]> {
        RealStorage.page_cache_id(directory)
    }
}

/// File whose changes stay in memory.
pub(super) struct OverlayFile {
    image: Mutex<Image>,
}

impl OverlayFile {
    /// Returns an empty file, of which the disk has nothing.
    pub(super) fn in_memory() -> Self {
        Self { image: Mutex::new(Image::new(Base::Memory(Vec::new()))) }
    }

    fn file_of(&self, offset: u64, bytes: usize) -> Option<Arc<fs::File>> {
        self.image.lock().file_of(offset, bytes)
    }

    /// Returns the file on the disk, regardless of the image.
    fn base_file(&self) -> Option<Arc<fs::File>> {
        match &self.image.lock().base {
            Base::File { file, .. } => Some(Arc::clone(file)),
            Base::Memory(_) => None,
        }
    }
}

/// Contents of a file: its base, and the map over it.
struct Image {
    base: Base,
    map: Option<Map>,
    /// Number of bytes that the map has unchanged from the base; after that it has its own.
    unchanged: usize,
    /// Length that was allocated, in bytes. Bytes in neither base nor map read as zeros.
    allocated: usize,
}

enum Base {
    /// The first bytes of a file on the disk.
    File { file: Arc<fs::File>, bytes: usize },
    /// A changed or new file.
    Memory(Vec<u8>),
}

impl Base {
    fn length(&self) -> usize {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Memory(contents) => contents.len(),
        }
    }

    /// Cuts the base if it is longer.
    fn truncate(&mut self, length: usize) {
        match self {
            Self::File { bytes, .. } => *bytes = length.min(*bytes),
            Self::Memory(contents) => contents.truncate(length),
        }
    }

    /// Reads the bytes that the base has into the beginning of the buffer.
    fn read_at(&self, buffer: &mut [u8], start: usize) -> io::Result<()> {
        let count = self.length().saturating_sub(start).min(buffer.len());
        let buffer = &mut buffer[..count];
        match self {
            Self::File { file, .. } => read_file(file, buffer, start as u64).map(drop),
            Self::Memory(contents) => {
                buffer.copy_from_slice(contents.get(start..start + count).unwrap_or_default());
                Ok(())
            }
        }
    }
}

impl Image {
    fn new(base: Base) -> Self {
        Self { base, map: None, unchanged: 0, allocated: 0 }
    }

    fn mapped_bytes(&self) -> usize {
        self.map.as_ref().map_or(0, Map::written)
    }

    /// Returns the file on the disk, if it alone has the bytes of a range.
    fn file_of(&self, offset: u64, bytes: usize) -> Option<Arc<fs::File>> {
        let Base::File { file, bytes: length } = &self.base else { return None };
        let end = usize::try_from(offset).ok()?.checked_add(bytes)?;
        let unchanged = self.map.as_ref().map_or(*length, |_| self.unchanged.min(*length));
        (end <= unchanged).then(|| Arc::clone(file))
    }

    fn length(&self) -> usize {
        self.base.length().max(self.mapped_bytes()).max(self.allocated)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.length();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let count = buffer.len().min(length - start);
        let buffer = &mut buffer[..count];
        buffer.fill(0);
        let end = self.mapped_bytes().clamp(start, start + count);
        let (mapped, rest) = buffer.split_at_mut(end - start);
        if let Some(map) = &self.map {
            map.copy(start, mapped);
        }
        self.base.read_at(rest, end)?;
        Ok(count)
    }

    /// Returns the bytes in memory, to be changed. A map that was made of them keeps its bytes.
    fn contents(&mut self) -> io::Result<&mut Vec<u8>> {
        if !matches!((&self.base, &self.map), (Base::Memory(_), None)) {
            let mut contents = vec![0; self.length()];
            self.read_at(&mut contents, 0)?;
            *self = Self::new(Base::Memory(contents));
        }
        let length = self.length();
        match &mut self.base {
            Base::Memory(contents) => {
                contents.resize(length, 0);
                Ok(contents)
            }
            Base::File { .. } => Err(io::ErrorKind::Other.into()),
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_file(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(bytes) => count += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

impl File for OverlayFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.image.lock().length() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // The lock is not held while the disk is read.
        match self.file_of(offset, buffer.len()) {
            Some(file) => read_file(&file, buffer, offset),
            None => self.image.lock().read_at(buffer, offset),
        }
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(file) = self.file_of(offset, buffer.len()) {
            return real::read_cached(&file, buffer, offset);
        }
        let image = self.image.lock();
        match image.base {
            // A caller that must not wait passes the read to one that may.
            Base::File { .. } => Err(io::ErrorKind::WouldBlock.into()),
            Base::Memory(_) => image.read_at(buffer, offset),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut image = self.image.lock();
        let contents = image.contents()?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if end > contents.len() {
            contents.resize(end, 0);
        }
        contents[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn allocate(&self, map: &Map, length: u64) -> io::Result<()> {
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let mut image = self.image.lock();
        image.allocated = bytes.max(image.allocated);
        map.set_backed(bytes);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let mut image = self.image.lock();
        if bytes < image.mapped_bytes() {
            image.contents()?.truncate(bytes);
            return Ok(());
        }
        image.base.truncate(bytes);
        image.allocated = bytes;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        if let Some(file) = self.base_file() {
            real::will_read(&file, offset, bytes);
        }
    }

    fn forget(&self, offset: u64, bytes: u64) {
        if let Some(file) = self.base_file() {
            real::advise(&file, offset, bytes, Advice::DontNeed);
        }
    }

    fn map(&self, capacity: usize, written: usize) -> io::Result<Map> {
        let mut image = self.image.lock();
        let length = image.length();
        if image.map.is_some() {
            // The bytes of that map become the base of this one.
            image.contents()?;
        }
        let written = written.min(length);
        let mapped = match &image.base {
            Base::File { file, .. } if capacity <= length => {
                return Map::of_file_to_read(file, capacity, written);
            }
            Base::File { file, bytes } if written <= *bytes => {
                Map::of_file_before_memory(file, capacity, written)?
            }
            _ => Map::of_memory(&image.contents()?[..written], capacity)?,
        };
        image.allocated = length;
        image.unchanged = written;
        image.map = Some(mapped.clone());
        Ok(mapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Appender;

    fn read(file: &dyn File) -> Vec<u8> {
        let mut bytes = vec![0xff; 1000];
        let count = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn what_is_changed_is_seen_here_and_not_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), b"aaaa").unwrap();
        fs::write(path("b"), b"bbbb").unwrap();
        let storage = OverlayStorage::new();
        let file = storage.open(&path("a"), Open::Existing).unwrap();
        file.write_at(b"XY", 3).unwrap();
        assert_eq!(read(&*file), b"aaaXY");
        file.truncate(2).unwrap();
        assert_eq!(read(&*storage.open(&path("a"), Open::Existing).unwrap()), b"aa");
        let file = storage.open(&path("b"), Open::Existing).unwrap();
        let map = file.map(100, 4).unwrap();
        file.allocate(&map, 50).unwrap();
        assert!(Appender::of(&map).unwrap().append(&[b"cc"], 2));
        assert_eq!(map.get(0, 6), Some(&b"bbbbcc"[..]));
        assert_eq!(read(&*file)[..7], *b"bbbbcc\0");
        file.give_back(&map, 0).unwrap();
        assert_eq!(read(&*file), b"bbbbcc");
        storage.rename(&path("b"), &path("c")).unwrap();
        storage.remove(&path("a")).unwrap();
        assert!(storage.open(&path("b"), Open::Existing).is_err());
        assert_eq!(read(&*storage.open(&path("c"), Open::Existing).unwrap()), b"bbbbcc");
        assert!(storage.open(&path("c"), Open::New).is_err());
        storage.open(&path("a"), Open::New).unwrap().write_at(b"new", 0).unwrap();
        assert_eq!(storage.list(folder.path()).unwrap(), ["a", "c"]);
        assert_eq!(fs::read(path("a")).unwrap(), b"aaaa");
        assert_eq!(fs::read(path("b")).unwrap(), b"bbbb");
        assert_eq!(RealStorage.list(folder.path()).unwrap().len(), 2);
        assert!(storage.create_dir(&path("d")).is_err());
    }

    #[test]
    fn appends_after_a_part_of_a_file_do_not_reach_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let old: Vec<u8> = (0..20_000_u32).map(|number| (number % 251) as u8).collect();
        fs::write(&path, &old).unwrap();
        for written in [0, 10, 4096, 9000, 20_000] {
            let storage = OverlayStorage::new();
            let file = storage.open(&path, Open::Existing).unwrap();
            let map = file.map(1 << 20, written).unwrap();
            assert_eq!(map.get(0, written), Some(&old[..written]));
            file.allocate(&map, 30_000).unwrap();
            let mut appender = Appender::of(&map).unwrap();
            assert!(appender.append(&[&[0xee; 5000]], 5000));
            drop(appender);
            let mut expected = old.clone();
            expected.resize(30_000, 0);
            expected[written..written + 5000].fill(0xee);
            let mut bytes = vec![0xff; 40_000];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 30_000);
            assert!(bytes[..30_000] == expected);
            assert_eq!(map.get(0, written + 5000), Some(&expected[..written + 5000]));
            for start in (0..30_000).step_by(1000) {
                let bytes = &mut [0xff; 1000];
                assert_eq!(file.read_at(bytes, start).unwrap(), 1000);
                assert_eq!(bytes[..], expected[start as usize..][..1000], "{written} {start}");
                file.will_read(start, 1000);
                file.forget(start, 1000);
                // Cached or not, a read without waiting returns the same bytes.
                if let Ok(count) = file.read_cached_at(bytes, start) {
                    assert_eq!(bytes[..count], expected[start as usize..][..count]);
                }
            }
            // Appended bytes stay when the file is cut after them, and are lost with a cut before
            // them.
            file.give_back(&map, 0).unwrap();
            assert_eq!(file.length().unwrap(), written as u64 + 5000);
            file.truncate(written as u64 / 2).unwrap();
            file.write_at(b"new", written as u64).unwrap();
            expected[written / 2..].fill(0);
            expected[written..written + 3].copy_from_slice(b"new");
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), written + 3);
            assert!(bytes[..written + 3] == expected[..written + 3]);
        }
        assert!(fs::read(&path).unwrap() == old);
    }

    #[test]
    fn readers_hold_off_writers_and_not_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (one, other) = (OverlayStorage::new(), OverlayStorage::new());
        let without_file = (one.lock(&path).unwrap(), other.lock(&path).unwrap());
        assert!(!path.exists());
        drop(without_file);
        fs::write(&path, b"").unwrap();
        let both = (one.lock(&path).unwrap(), other.lock(&path).unwrap());
        let refused = RealStorage.lock(&path).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(both);
        let writer = RealStorage.lock(&path).unwrap();
        let refused = one.lock(&path).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(writer);
        one.lock(&path).unwrap();
    }
}
