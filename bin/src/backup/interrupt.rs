//! Temporary folders: removed even if the command is interrupted.

use crate::signals::Cleanup;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait after a signal until a server begins the copy that it was asked for.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

/// Interval between two looks whether it has.
const TICK: Duration = Duration::from_millis(10);

/// Most attempts to remove a folder in which a server makes files meanwhile.
const REMOVALS_MAX: u32 = 500;

/// Suffix of the lock file beside a folder.
const LOCK_SUFFIX: &str = ".lock";

/// A folder that is removed when this is dropped, and when a signal ends the program. It is locked
/// against other programs.
pub(super) struct TemporaryFolder {
    path: PathBuf,
    /// Whether the folder could not be removed, which the caller knows.
    stays: bool,
    cleanup: Cleanup,
    request: Arc<Request>,
    _claim: Claim,
}

/// A request to a server to make the folder.
#[derive(Default)]
struct Request {
    /// The bar of the command while the server has not replied.
    awaited: Mutex<Option<ProgressBar>>,
    replied: Condvar,
}

impl Request {
    /// Blocks until the server has begun to make the folder or has replied, if it was asked to.
    /// A server whose folder is removed cannot go on; one that has not begun would make it later.
    /// Returns whether the server may still do that.
    fn wait_until_begun(&self, path: &Path) -> bool {
        let mut awaited = self.awaited.lock();
        let Some(bar) = awaited.clone() else { return false };
        let print = |line: &str| bar.suspend(|| eprintln!("tyrant: {line}"));
        if !path.exists() {
            print("interrupted: waiting until the server begins its copy, to remove it");
        }
        let deadline = Instant::now() + BEGIN_PATIENCE;
        while awaited.is_some() && !path.exists() {
            if Instant::now() >= deadline {
                print(&format!(
                    "the server has not begun its copy {} yet: the next backup removes it",
                    path.display()
                ));
                return true;
            }
            self.replied.wait_for(&mut awaited, TICK);
        }
        false
    }
}

impl TemporaryFolder {
    /// Claims a path. A folder left there by a killed program is removed first.
    pub(super) fn begin(path: PathBuf) -> Result<Self> {
        let claim = Claim::of(&path)?;
        clear(&path)?;
        let request = Arc::<Request>::default();
        let (removed, claimed, asked) = (path.clone(), claim.path.clone(), Arc::clone(&request));
        let cleanup = Cleanup::on_signals(move || {
            if !asked.wait_until_begun(&removed)
                && let Err(error) = clear(&removed)
            {
                eprintln!("tyrant: {error:#}");
            }
            let _ = fs::remove_file(&claimed);
        })?;
        Ok(Self { path, stays: false, cleanup, request, _claim: claim })
    }

    /// Calls `ask`, which asks a server to make the folder and waits for its reply. A signal
    /// meanwhile removes what the server makes. `bar` is that of the command.
    pub(super) fn ask<T>(&self, bar: ProgressBar, ask: impl FnOnce() -> T) -> T {
        *self.request.awaited.lock() = Some(bar);
        let reply = ask();
        *self.request.awaited.lock() = None;
        self.request.replied.notify_all();
        // After a signal the program ends here, and not with an error about the missing folder.
        drop(self.hold_signals());
        reply
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
}

/// Removes a folder, if there is one. Another process may be making files in it.
fn clear(path: &Path) -> Result<()> {
    let mut attempts = 1;
    loop {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && !path.exists() => return Ok(()),
            // A file in it was removed or made meanwhile.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty)
                    && attempts < REMOVALS_MAX =>
            {
                attempts += 1;
                sleep(TICK);
            }
            removed => {
                return removed.with_context(|| format!("cannot remove {}", path.display()));
            }
        }
    }
}

/// Removes the folders that programs which have ended have left in `folder`. Their names are those
/// of which `is_temporary` returns true. A folder that a server is still making for such a program
/// is removed too: the server then fails to make it. One that another program uses stays.
pub(super) fn remove_leftovers(
    folder: &Path,
    is_temporary: impl Fn(&[u8]) -> bool,
    mut report: impl FnMut(anyhow::Error),
) {
    // Whether it can be read shows where something is made in it.
    let Ok(entries) = fs::read_dir(folder) else { return };
    let names = entries.flatten().map(|entry| entry.file_name());
    let left: BTreeSet<OsString> = names
        .filter_map(|name| {
            let bytes = name.as_bytes();
            let bytes = bytes.strip_suffix(LOCK_SUFFIX.as_bytes()).unwrap_or(bytes);
            is_temporary(bytes).then(|| OsStr::from_bytes(bytes).to_owned())
        })
        .collect();
    for name in left {
        let path = folder.join(name);
        let removed = match Claim::try_of(&path) {
            Ok(Some(_claim)) => clear(&path),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed
            && path.exists()
        {
            report(error);
        }
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if !self.stays
            && let Err(error) = clear(&self.path)
        {
            eprintln!("tyrant: {error:#}");
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
        let claimed = Self::try_of(folder)?;
        claimed.with_context(|| format!("another program is using {}", folder.display()))
    }

    /// Returns none if another program has claimed the folder.
    fn try_of(folder: &Path) -> Result<Option<Self>> {
        let mut path = OsString::from(folder);
        path.push(LOCK_SUFFIX);
        let path = PathBuf::from(path);
        let failed = || format!("cannot lock {}", path.display());
        loop {
            let file = File::create(&path).with_context(failed)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
                Ok(()) => {}
            }
            // The previous holder may have just removed it.
            let inode = file.metadata().with_context(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|present| present.ino() == inode) {
                return Ok(Some(Self { path, file }));
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

    #[test]
    fn leftovers_are_removed_unless_a_program_uses_them() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        // With a lock file, without, and a lock file alone.
        for name in ["copy-1", "copy-2", "mine"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), "").unwrap();
        }
        for name in ["copy-1.lock", "copy-3.lock", "mine.lock"] {
            fs::write(path(name), "").unwrap();
        }
        let used = TemporaryFolder::begin(path("copy-4")).unwrap();
        fs::create_dir(used.path()).unwrap();
        let is_temporary = |name: &[u8]| name.starts_with(b"copy-");
        remove_leftovers(place.path(), is_temporary, |error| panic!("{error}"));
        let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names: BTreeSet<OsString> = names.collect();
        let expected = ["copy-4", "copy-4.lock", "mine", "mine.lock"];
        assert_eq!(names, BTreeSet::from(expected.map(OsString::from)));
    }

    #[test]
    fn a_folder_in_which_files_are_made_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("folder");
        fs::create_dir(&path).unwrap();
        std::thread::scope(|scope| {
            // As a server that makes a copy: it ends when it cannot make a file.
            scope.spawn(|| {
                let made = |number: u32| fs::write(path.join(number.to_string()), "").is_ok();
                (0..1000).take_while(|number| made(*number)).count()
            });
            clear(&path).unwrap();
        });
        assert!(!path.exists());
    }
}
