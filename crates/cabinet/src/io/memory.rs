//! Storage in memory, which ends with the process.

use super::overlay::OverlayFile;
use super::{File, Open, Storage};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Storage in memory of one database, which nothing else opens. Every directory exists.
#[derive(Default)]
pub(crate) struct MemoryStorage {
    files: Mutex<BTreeMap<PathBuf, Arc<OverlayFile>>>,
}

impl MemoryStorage {
    fn find(&self, path: &Path) -> io::Result<Arc<OverlayFile>> {
        self.files.lock().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Storage for MemoryStorage {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let files = self.files.lock();
        let paths = files.keys().filter(|path| path.parent() == Some(directory));
        Ok(paths.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        if how == Open::Existing {
            return Ok(self.find(path)?);
        }
        let mut files = self.files.lock();
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(OverlayFile::in_memory());
        files.insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.find(from)?;
        let mut files = self.files.lock();
        if files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_dir(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Nothing else opens the database.
    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }

    /// Returns `u64::MAX`: files take memory.
    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_names_that_they_were_given_last() {
        let storage = MemoryStorage::default();
        let [a, b, c] = ["folder/a", "folder/b", "folder/c"].map(Path::new);
        storage.open(a, Open::Existing).map(drop).unwrap_err();
        storage.open(a, Open::New).unwrap().write_at(b"value", 0).unwrap();
        storage.open(a, Open::New).map(drop).unwrap_err();
        storage.link(a, b).unwrap();
        storage.link(a, b).unwrap_err();
        storage.rename(a, c).unwrap();
        storage.rename(a, c).unwrap_err();
        assert_eq!(storage.list(Path::new("folder")).unwrap(), ["b", "c"]);
        assert_eq!(storage.list(Path::new("")).unwrap(), [""; 0]);
        storage.remove(b).unwrap();
        storage.remove(b).unwrap_err();
        let mut value = [0; 9];
        assert_eq!(storage.open(c, Open::Existing).unwrap().read_at(&mut value, 0).unwrap(), 5);
        assert_eq!(&value[..5], b"value");
    }
}
