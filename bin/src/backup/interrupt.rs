//! Folders that are not to stay when the command is interrupted.

use crate::signals::Cleanup;
use anyhow::{Context, Result, bail};
use parking_lot::MutexGuard;
use std::ffi::OsString;
use std::fs;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder that goes when this is dropped, also by a signal that ends the program. No other
/// program has it meanwhile.
pub(super) struct Passing {
    path: PathBuf,
    cleanup: Cleanup,
    _claim: Claim,
}

impl Passing {
    /// One at a path where something may be that a killed program has left; that goes first.
    pub(super) fn begin(path: PathBuf) -> Result<Self> {
        let claim = Claim::of(&path)?;
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let (removed, claimed) = (path.clone(), claim.path.clone());
        let cleanup = Cleanup::on_signals(move || {
            let _ = fs::remove_dir_all(&removed);
            let _ = fs::remove_file(&claimed);
        })?;
        Ok(Self { path, cleanup, _claim: claim })
    }

    /// Until the answer is dropped, signals have to wait.
    pub(super) fn hold_signals(&self) -> MutexGuard<'_, ()> {
        self.cleanup.hold()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && self.path.exists()
        {
            eprintln!("tyrant: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// A file beside a folder, locked for as long as somebody has the folder, and gone then.
struct Claim {
    path: PathBuf,
    _file: File,
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
                    bail!("another program is at work on {}", folder.display())
                }
                Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
                Ok(()) => {}
            }
            // The process that had it before may have removed it just now.
            let inode = file.metadata().with_context(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|present| present.ino() == inode) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Before it is unlocked. One that stays does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_programs_at_a_time_and_nothing_of_it_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("folder");
        // What a killed program leaves.
        fs::create_dir(&path).unwrap();
        fs::write(place.path().join("folder.lock"), "").unwrap();
        let passing = Passing::begin(path.clone()).unwrap();
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        assert!(Passing::begin(path.clone()).is_err());
        assert!(path.exists());
        drop(passing);
        drop(Passing::begin(path).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
