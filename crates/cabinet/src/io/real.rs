//! Files of the operating system.

use super::{File, Map, Open, Storage};
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::ReadWriteFlags;
use std::any::Any;
use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealStorage;

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
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(how == Open::New)
            .open(path)?;
        // Records are read at random; see `Map::of_file`.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                fs::copy(from, to).map(|_| ())
            }
            result => result,
        }
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.blocks() * 512)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut buffers = [io::IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.0, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
            Ok(bytes) => Ok(bytes),
            // Not every file system can tell: then nothing counts as cached.
            Err(rustix::io::Errno::OPNOTSUPP) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn allocate(&self, map: &Map, length: u64) -> io::Result<()> {
        let present = self.length()?;
        if length > present {
            rustix::fs::fallocate(&self.0, FallocateFlags::empty(), present, length - present)?;
        }
        map.set_backed(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn freeze(&self, map: &Map) {
        map.freeze(&self.0);
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        let _ = rustix::fs::fadvise(&self.0, offset, NonZeroU64::new(bytes), Advice::WillNeed);
    }

    fn map(&self, capacity: usize, written: usize) -> io::Result<Map> {
        Map::of_file(&self.0, capacity, written)
    }
}
