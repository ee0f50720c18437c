//! Temporary folders: removed even if the command is interrupted.

use crate::signals::Cleanup;
use anyhow::{Context, Result, bail};
use parking_lot::MutexGuard;
use std::ffi::OsString;
use std::fs;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder that is removed when this is dropped, and when a signal ends the program. It is locked
/// against other programs.
pub(super) struct TemporaryFolder {
    path: PathBuf,
    /// Whether the folder could not be removed, which the caller knows.
    stays: bool,
    cleanup: Cleanup,
    _claim: Claim,
}

impl TemporaryFolder {
    /// Claims a path. A folder left there by a killed program is removed first.
    pub(super) fn begin(path: PathBuf) -> Result<Self> {
        let claim = Claim::of(&path)?;
        clear(&path)?;
        let (removed, claimed) = (path.clone(), claim.path.clone());
        let cleanup = Cleanup::on_signals(move || {
            let _ = fs::remove_dir_all(&removed);
            let _ = fs::remove_file(&claimed);
        })?;
        Ok(Self { path, stays: false, cleanup, _claim: claim })
    }

    /// Blocks signals until the guard is dropped.
    pub(super) fn hold_signals(&self) -> MutexGuard<'_, ()> {
        self.cleanup.hold()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder now, and tells whether that has succeeded.
    pub(super) fn remove(mut self) -> Result<()> {
        let removed = clear(&self.path);
        // Another try would fail alike.
        self.stays = removed.is_err();
        removed
    }

    /// Removes what a killed program's server has put there since.
    pub(super) fn clear(&self) -> Result<()> {
        clear(&self.path)
    }
}

fn clear(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if !self.stays
            && let Err(error) = fs::remove_dir_all(&self.path)
            && self.path.exists()
        {
            eprintln!("tyrant: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// A lock file beside a folder, held while the folder is in use and then removed.
struct Claim {
    path: PathBuf,
    file: File,
}

impl Claim {
    fn of(folder: &Path) -> Result<Self> {
        let mut path = OsString::from(folder);
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = || format!("cannot lock {}", path.display());
        loop {
            let file = File::create(&path).with_context(failed)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    bail!("another program is using {}", folder.display())
                }
                Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
                Ok(()) => {}
            }
            // The previous holder may have just removed it.
            let inode = file.metadata().with_context(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|present| present.ino() == inode) {
                return Ok(Self { path, file });
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // It is removed before it is unlocked. A leftover file does no harm.
        let _ = fs::remove_file(&self.path);
        // A child process that is being started may have a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_belongs_to_one_program_and_is_removed_completely() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("folder");
        // The leftover of a killed program.
        fs::create_dir(&path).unwrap();
        fs::write(place.path().join("folder.lock"), "").unwrap();
        let passing = TemporaryFolder::begin(path.clone()).unwrap();
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        assert!(TemporaryFolder::begin(path.clone()).is_err());
        assert!(path.exists());
        drop(passing);
        drop(TemporaryFolder::begin(path).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
