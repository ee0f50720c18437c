//! Temporary names, each with random digits, and temporary folders, which are removed even if the
//! command is interrupted.
//!
//! A file or a folder is known to be a leftover by its name, and by a lock that its program holds.
//! Programs of several containers may have one process id.

use crate::signals::Cleanup;
use anyhow::{Context, Result, ensure};
use cabinet::files::folder_of;
use indicatif::ProgressBar;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::fs::{File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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

/// Hexadecimal digits of a temporary name.
const DIGITS: usize = 16;

/// Temporary names of one purpose: a beginning, random digits and an end.
pub(crate) struct TemporaryNames {
    prefix: Vec<u8>,
    suffix: String,
}

impl TemporaryNames {
    pub(crate) fn new(prefix: impl Into<OsString>, suffix: impl Into<String>) -> Self {
        Self { prefix: prefix.into().into_vec(), suffix: suffix.into() }
    }

    /// Returns names for a database that gets the name `path`, as `X.importing-DIGITS.tch`. The
    /// suffix is that of its kind, which a name without one does not have.
    fn of_database(path: &Path, word: &str, suffix: &str) -> Self {
        let mut prefix = path.file_stem().unwrap_or_default().to_owned();
        prefix.push(format!(".{word}-"));
        Self::new(prefix, format!(".{suffix}"))
    }

    /// Returns a new name. Its first digit is a letter, see [`TemporaryNames::has`].
    pub(crate) fn random(&self) -> OsString {
        let random = RandomState::new().build_hasher().finish() | 0xa << (4 * (DIGITS - 1));
        let digits = format!("{random:0DIGITS$x}");
        OsString::from_vec([&self.prefix, digits.as_bytes(), self.suffix.as_bytes()].concat())
    }

    /// Returns whether a name is one of these. A time stamp, with which a script may name its own
    /// files, has no letter.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = name.strip_prefix(&*self.prefix);
        digits.and_then(|rest| rest.strip_suffix(self.suffix.as_bytes())).is_some_and(|digits| {
            digits.len() == DIGITS
                && digits.iter().all(is_digit)
                && digits.iter().any(u8::is_ascii_lowercase)
        })
    }
}

/// Returns whether a path is the name of an open file.
pub(crate) fn is_name_of(path: &Path, file: &File) -> bool {
    let (named, open) = (fs::symlink_metadata(path), file.metadata());
    let identity = |file: fs::Metadata| (file.dev(), file.ino());
    matches!((named.map(identity), open.map(identity)), (Ok(named), Ok(open)) if named == open)
}

/// A folder that is removed when this is dropped, and when a signal ends the program. It is locked
/// against other programs.
pub(crate) struct TemporaryFolder {
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
    /// Claims a new name in `place`. The caller makes the folder.
    pub(crate) fn begin(place: &Path, names: &TemporaryNames) -> Result<Self> {
        let path = place.join(names.random());
        let claim = Claim::try_of(&path)?;
        let claim =
            claim.with_context(|| format!("another program is using {}", path.display()))?;
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

    /// Claims a name beside the database that gets the name `path`, see
    /// [`TemporaryNames::of_database`], after what killed programs left there was removed. `word`
    /// is what is done, and `busy` says what another program does that holds such a name.
    pub(crate) fn beside_database(
        path: &Path,
        suffix: &str,
        (word, busy): (&str, &str),
        report: impl FnMut(anyhow::Error),
    ) -> Result<Self> {
        let names = TemporaryNames::of_database(path, word, suffix);
        let place = folder_of(path);
        ensure!(!remove_leftovers(place, &names, report), "{busy} {}", path.display());
        Self::begin(place, &names)
    }

    /// Calls `ask`, which asks a server to make the folder and waits for its reply. A signal
    /// meanwhile removes what the server makes. `bar` is that of the command.
    pub(crate) fn ask<T>(&self, bar: ProgressBar, ask: impl FnOnce() -> T) -> T {
        *self.request.awaited.lock() = Some(bar);
        let reply = ask();
        *self.request.awaited.lock() = None;
        self.request.replied.notify_all();
        // After a signal the program ends here, and not with an error about the missing folder.
        drop(self.hold_signals());
        reply
    }

    /// Blocks signals until the guard is dropped.
    pub(crate) fn hold_signals(&self) -> MutexGuard<'_, ()> {
        self.cleanup.hold()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder now, and tells whether that has succeeded.
    pub(crate) fn remove(mut self) -> Result<()> {
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

/// Removes the folders with these names that programs which have ended have left in `folder`. One
/// that a server is still making for such a program is removed too: the server then fails to make
/// it. Returns whether there is one that another program uses, which stays.
pub(crate) fn remove_leftovers(
    folder: &Path,
    temporary: &TemporaryNames,
    mut report: impl FnMut(anyhow::Error),
) -> bool {
    // Whether it can be read shows where something is made in it.
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let names = entries.flatten().map(|entry| entry.file_name());
    let left: BTreeSet<OsString> = names
        .filter_map(|name| {
            let bytes = name.as_bytes();
            let bytes = bytes.strip_suffix(LOCK_SUFFIX.as_bytes()).unwrap_or(bytes);
            temporary.has(bytes).then(|| OsStr::from_bytes(bytes).to_owned())
        })
        .collect();
    let mut any_is_used = false;
    for name in left {
        let path = folder.join(name);
        let removed = match Claim::try_of(&path) {
            Ok(Some(_claim)) => clear(&path),
            Ok(None) => {
                any_is_used = true;
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed
            && path.exists()
        {
            report(error);
        }
    }
    any_is_used
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
            if is_name_of(&path, &file) {
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

    fn names() -> TemporaryNames {
        TemporaryNames::new("casket.backup-", ".tch")
    }

    fn found(place: &Path) -> BTreeSet<OsString> {
        fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn temporary_names_are_told_from_those_of_users_and_scripts() {
        assert!(names().has(b"casket.backup-03c5389e984be841.tch"));
        for other in [
            "casket.tch",
            "casket.backup.tch",
            "casket.backup-1795264208120034.tch",
            "casket.backup-03c5389e984be84.tch",
            "casket.backup-03c5389e984be8411.tch",
            "casket.backup-03c5389e984be841",
            "casket.backup-before-upgrades.tch",
            "other.backup-03c5389e984be841.tch",
        ] {
            assert!(!names().has(other.as_bytes()), "{other}");
        }
        for _ in 0..100 {
            assert!(names().has(names().random().as_bytes()));
        }
    }

    #[test]
    fn leftovers_are_removed_unless_a_program_uses_them() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let left = |number: u32| format!("casket.backup-{number:015}a.tch");
        // With a lock file, without, and a lock file alone.
        for name in [&left(1), &left(2), "casket.backup.tch"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), "").unwrap();
        }
        for name in [left(1), left(3), "casket.backup.tch".to_owned()] {
            fs::write(path(&format!("{name}.lock")), "").unwrap();
        }
        let remove = || remove_leftovers(place.path(), &names(), |error| panic!("{error}"));
        assert!(!remove());
        let used = TemporaryFolder::begin(place.path(), &names()).unwrap();
        fs::create_dir(used.path()).unwrap();
        assert!(remove());
        let name = used.path().file_name().unwrap().to_owned();
        let mut lock = name.clone();
        lock.push(".lock");
        let mine = ["casket.backup.tch", "casket.backup.tch.lock"].map(OsString::from);
        assert_eq!(found(place.path()), mine.iter().cloned().chain([name, lock]).collect());
        drop(used);
        assert_eq!(found(place.path()), BTreeSet::from(mine));
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
