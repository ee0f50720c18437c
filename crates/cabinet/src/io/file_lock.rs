//! Locks of files and directories against other processes.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;

/// A lock of an open file or directory (`flock`), released when it is dropped.
///
/// It is unlocked, not only closed: a child process that another thread is starting has copies of
/// all descriptors until it executes its program, and each copy would hold the lock.
pub(super) struct FileLock(File);

impl FileLock {
    /// Takes the lock exclusively. Fails with [`io::ErrorKind::WouldBlock`] if it is taken.
    pub(super) fn exclusive(file: File) -> io::Result<Self> {
        Self::take(file, FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the lock, shared with other holders. Fails with [`io::ErrorKind::WouldBlock`] if it is
    /// taken exclusively.
    pub(super) fn shared(file: File) -> io::Result<Self> {
        Self::take(file, FlockOperation::NonBlockingLockShared)
    }

    fn take(file: File, operation: FlockOperation) -> io::Result<Self> {
        flock(&file, operation)?;
        Ok(Self(file))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_does_not_hold_a_dropped_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        for take in [FileLock::exclusive, FileLock::shared] {
            let lock = take(open()).unwrap();
            let _copy = lock.0.try_clone().unwrap();
            let refused = FileLock::exclusive(open()).map(drop).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            drop(lock);
            FileLock::exclusive(open()).unwrap();
        }
    }
}
