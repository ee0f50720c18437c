//! The real file system, of which nothing is changed: what is written stays in memory.
//!
//! A database that is opened for reading only is recovered as any other: a torn tail is cut, a new
//! segment is begun, the manifest is rewritten. All of that happens to the files as this storage
//! shows them, and is gone with it. So one recovery serves both, and the files stay byte for byte
//! what they were, also on a file system that is read-only.
//!
//! A file that is only read costs no memory beyond its mapping. One that is changed, or mapped for
//! more than it has, is copied into memory first: of a log that is the last segment.

use super::file_lock::FileLock;
use super::{File, Map, Open, RealStorage, Storage, directory_of};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Default)]
pub struct OverlayStorage {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Files that were opened or made here, by the names that they have here.
    files: BTreeMap<PathBuf, Arc<OverlayFile>>,
    /// Names that the file system has, but that were taken from their files here.
    removed: BTreeSet<PathBuf>,
}

impl State {
    /// The file of a name.
    fn find(&mut self, path: &Path) -> io::Result<Arc<OverlayFile>> {
        if let Some(file) = self.files.get(path) {
            return Ok(Arc::clone(file));
        }
        if self.removed.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let base = fs::File::open(path)?;
        let bytes = base.metadata()?.len();
        let file = Arc::new(OverlayFile { image: Mutex::new(Image::File { base, bytes }) });
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
    /// The file system as it is.
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
                let image = Image::Memory { contents: Vec::new(), map: None, allocated: 0 };
                let file = Arc::new(OverlayFile { image: Mutex::new(image) });
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

    /// What is changed takes memory, not space of the file system.
    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Holds off those who write, not those who read. Takes the lock of the lock file, if there is
    /// one, and of its directory, which stays one when the file is removed.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = match fs::File::open(path) {
            Ok(file) => Some(FileLock::shared(file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let directory = match FileLock::shared(fs::File::open(directory_of(path))?) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // Not every file system of a network locks directories.
            Err(_) => None,
        };
        Ok(Box::new((file, directory)))
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        RealStorage.boot_id()
    }
}

struct OverlayFile {
    image: Mutex<Image>,
}

enum Image {
    /// As it is on the disk.
    File { base: fs::File, bytes: u64 },
    /// Changed, or new.
    Memory {
        /// Bytes written other than through the map.
        contents: Vec<u8>,
        map: Option<Map>,
        allocated: usize,
    },
}

fn length_of(contents: &[u8], map: Option<&Map>, allocated: usize) -> usize {
    contents.len().max(map.map_or(0, Map::written)).max(allocated)
}

/// All bytes of a file in memory.
fn whole(contents: &[u8], map: Option<&Map>, allocated: usize) -> Vec<u8> {
    let mut bytes = contents.to_vec();
    bytes.resize(length_of(contents, map, allocated), 0);
    let mapped = map.and_then(|map| map.get(0, map.written())).unwrap_or_default();
    bytes[..mapped.len()].copy_from_slice(mapped);
    bytes
}

impl Image {
    fn length(&self) -> usize {
        match self {
            Self::File { bytes, .. } => usize::try_from(*bytes).unwrap_or(usize::MAX),
            Self::Memory { contents, map, allocated } => {
                length_of(contents, map.as_ref(), *allocated)
            }
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (contents, map, allocated) = match self {
            Self::File { base, .. } => return read_file(base, buffer, offset),
            Self::Memory { contents, map, allocated } => (contents, map.as_ref(), *allocated),
        };
        let length = length_of(contents, map, allocated);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let buffer_bytes = buffer.len().min(length - start);
        let buffer = &mut buffer[..buffer_bytes];
        buffer.fill(0);
        let mapped = map.and_then(|map| map.get(0, map.written())).unwrap_or_default();
        for bytes in [&contents[..], mapped] {
            let bytes = bytes.get(start..).unwrap_or_default();
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
        }
        Ok(buffer_bytes)
    }

    /// The bytes in memory, to be changed. A map that was made of them keeps what it had.
    fn contents(&mut self) -> io::Result<&mut Vec<u8>> {
        let bytes = match self {
            Self::File { base, bytes } => {
                let mut contents = vec![0; usize::try_from(*bytes).map_err(io::Error::other)?];
                let count = read_file(base, &mut contents, 0)?;
                contents.truncate(count);
                contents
            }
            Self::Memory { contents, map: None, allocated } => {
                let allocated = (*allocated).max(contents.len());
                contents.resize(allocated, 0);
                std::mem::take(contents)
            }
            Self::Memory { contents, map, allocated } => whole(contents, map.as_ref(), *allocated),
        };
        *self = Self::Memory { contents: bytes, map: None, allocated: 0 };
        match self {
            Self::Memory { contents, .. } => Ok(contents),
            Self::File { .. } => Err(io::ErrorKind::Other.into()),
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

    fn disk_bytes(&self) -> io::Result<u64> {
        self.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.image.lock().read_at(buffer, offset)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &*self.image.lock() {
            // A caller that must not wait asks somebody who may.
            Image::File { .. } => Err(io::ErrorKind::WouldBlock.into()),
            image => image.read_at(buffer, offset),
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
        if let Image::Memory { allocated, .. } = &mut *self.image.lock() {
            *allocated = bytes.max(*allocated);
        }
        map.set_backed(bytes);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let mut image = self.image.lock();
        if image.length() != bytes {
            image.contents()?.resize(bytes, 0);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn will_read(&self, _offset: u64, _bytes: u64) {}

    fn map(&self, capacity: usize, written: usize) -> io::Result<Map> {
        let mut image = self.image.lock();
        if let Image::File { base, .. } = &*image
            && capacity <= image.length()
        {
            return Map::of_file_to_read(base, capacity, written);
        }
        let contents = image.contents()?;
        let bytes = &contents[..written.min(contents.len())];
        let mapped = Map::of_memory(bytes, capacity)?;
        if let Image::Memory { map, allocated, contents } = &mut *image {
            *allocated = contents.len();
            *map = Some(mapped.clone());
        }
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
