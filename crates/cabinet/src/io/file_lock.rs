//! Locks of files and directories against other processes.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Maximum number of locks whose descriptors are noted: two for each open database.
const NOTED_MAX: usize = 2048;

/// Stands for no descriptor.
const NONE: RawFd = -1;

/// Descriptors of the locks that are held. The child of a fork reads it, so it takes no lock.
static NOTED: [AtomicI32; NOTED_MAX] = [const { AtomicI32::new(NONE) }; NOTED_MAX];

/// Lets go of the copies that the child of a fork has of the locks of its parent, which would keep
/// them when the parent was killed. Their descriptors stay open, as another file: objects of the
/// child have them.
#[cfg(feature = "internals")]
pub(super) fn release_locks() {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::{DupFlags, dup3};
    use std::mem::ManuallyDrop;
    use std::os::fd::{FromRawFd, OwnedFd};

    let Ok(nothing) = open(c"/dev/null", OFlags::CLOEXEC, Mode::empty()) else { return };
    for noted in &NOTED {
        // It is forgotten: later the child may have another file under the number.
        let descriptor = noted.swap(NONE, Ordering::Relaxed);
        if descriptor == NONE {
            continue;
        }
        #[expect(unsafe_code, reason = "another object of this process owns the descriptor")]
        // SAFETY: the descriptor is open, and is not closed here. It is that of a lock alone, which
        // is neither read nor mapped.
        let mut lock = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let _ = dup3(&nothing, &mut lock, DupFlags::CLOEXEC);
    }
}

/// Replaces the first note of a descriptor by another one, if there is such a note.
fn replace_note(old: RawFd, new: RawFd) {
    let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
    let _ = NOTED.iter().find(|noted| noted.compare_exchange(old, new, success, failure).is_ok());
}

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
        replace_note(NONE, file.as_raw_fd());
        Ok(Self(file))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        replace_note(self.0.as_raw_fd(), NONE);
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_noted_while_it_is_held() {
        let is_noted = |fd: RawFd| NOTED.iter().any(|noted| noted.load(Ordering::Relaxed) == fd);
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = FileLock::exclusive(File::open(file.path()).unwrap()).unwrap();
        let descriptor = lock.0.as_raw_fd();
        assert!(is_noted(descriptor));
        // The number stays taken, so that no other test has a lock with it.
        let _copy = lock.0.try_clone().unwrap();
        replace_note(descriptor, NONE);
        assert!(!is_noted(descriptor));
        replace_note(NONE, descriptor);
        assert!(is_noted(descriptor));
    }

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
