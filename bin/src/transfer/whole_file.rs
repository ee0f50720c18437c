//! Atomic output files: written under a temporary name and renamed when complete.
//!
//! If a command is interrupted, the previous file remains. Devices and pipes are written directly.
//!
//! The temporary file is locked while it is written, so that another command can tell it from the
//! leftover of a killed one.

use crate::say::{STANDARD_OUTPUT, named};
use crate::signals::Cleanup;
use crate::temporary::{TemporaryNames, is_name_of};
use anyhow::{Context, Result, bail, ensure};
use cabinet::files::{folder_of, sync_folder};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Folders with links to the open files of this process. No file can be created in them.
const DESCRIPTORS: [&str; 3] = ["/dev/stdout", "/dev/fd/", "/proc/"];

/// Output of a command.
pub(crate) enum Output {
    /// The standard output.
    Standard(io::StdoutLock<'static>),
    /// A device, a pipe or an open file, and its path.
    Direct(File, PathBuf),
    /// A file that appears only when complete.
    Whole(WholeFile),
}

impl Output {
    /// Opens an output at a path; `-` is the standard output. An existing file is an error, or with
    /// `may_replace` is replaced by [`Output::finish`].
    pub(crate) fn to(path: &Path, may_replace: bool) -> Result<Self> {
        if path == Path::new("-") || path == Path::new("/dev/stdout") {
            return Ok(Self::standard());
        }
        let failed = || format!("cannot create {}", path.display());
        let present = match fs::metadata(path) {
            Ok(present) => present,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                ensure!(!path.is_symlink(), "{} is a broken symbolic link", path.display());
                return Ok(Self::Whole(WholeFile::begin(path, None).with_context(failed)?));
            }
            Err(error) => return Err(error).with_context(failed),
        };
        ensure!(!present.is_dir(), "{} is a folder: name a file in it", path.display());
        let is_open = DESCRIPTORS.iter().any(|folder| path.starts_with(folder));
        if !present.is_file() || is_open {
            let file = OpenOptions::new().append(true).open(path);
            let file = file.with_context(|| format!("cannot write to {}", path.display()))?;
            return Ok(Self::Direct(file, path.to_owned()));
        }
        ensure!(
            may_replace,
            "{} exists already: name another file, or use --replace",
            path.display()
        );
        // A link is kept; its target is replaced.
        let place = fs::canonicalize(path).with_context(failed)?;
        let whole = WholeFile::begin(&place, Some(present.permissions()));
        Ok(Self::Whole(whole.with_context(failed)?))
    }

    /// Returns the standard output.
    pub(crate) fn standard() -> Self {
        Self::Standard(io::stdout().lock())
    }

    /// Renames the complete file to its final name.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Whole(file) => file.finish(),
            Self::Standard(_) | Self::Direct(..) => Ok(()),
        }
    }

    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Self::Standard(output) => output,
            Self::Direct(file, _) => file,
            Self::Whole(whole) => &mut whole.file,
        }
    }

    /// Returns an error of writing with the name of the output.
    fn named(&self, error: io::Error) -> io::Error {
        match self {
            Self::Standard(_) => named(STANDARD_OUTPUT, error),
            Self::Direct(_, path) => named(path.display(), error),
            Self::Whole(whole) => named(whole.place.display(), error),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes).map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush().map_err(|error| self.named(error))
    }
}

/// A file under a temporary name. It is removed when this is dropped, and when a signal ends the
/// program.
pub(crate) struct WholeFile {
    place: PathBuf,
    /// Permissions of the replaced file.
    permissions: Option<Permissions>,
    temporary: PathBuf,
    file: File,
    cleanup: Cleanup,
}

impl WholeFile {
    fn begin(place: &Path, permissions: Option<Permissions>) -> Result<Self> {
        let folder = folder_of(place);
        remove_leftovers(folder);
        let temporary = folder.join(names().random());
        let removed = temporary.clone();
        let cleanup = Cleanup::on_signals(move || {
            let _ = fs::remove_file(&removed);
        })?;
        let ending = cleanup.hold();
        let file = create_locked(&temporary)?;
        if let Some(permissions) = &permissions {
            file.set_permissions(permissions.clone())?;
        }
        drop(ending);
        Ok(Self { place: place.to_owned(), permissions, temporary, file, cleanup })
    }

    fn finish(self) -> Result<()> {
        let failed = || format!("cannot write {}", self.place.display());
        self.file.sync_all().with_context(failed)?;
        let _ending = self.cleanup.hold();
        ensure!(
            is_name_of(&self.temporary, &self.file),
            "{}: another program has removed or replaced its temporary file {}",
            failed(),
            self.temporary.display()
        );
        if self.permissions.is_some() {
            fs::rename(&self.temporary, &self.place).with_context(failed)?;
        } else {
            self.rename_to_new().with_context(failed)?;
        }
        sync_folder(folder_of(&self.place)).with_context(failed)?;
        Ok(())
    }

    /// Renames to the final name, unless a file has been created there in the meantime.
    fn rename_to_new(&self) -> Result<()> {
        match fs::hard_link(&self.temporary, &self.place) {
            Ok(()) => Ok(fs::remove_file(&self.temporary)?),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("another file was created there in the meantime")
            }
            // Some file systems have no hard links.
            Err(_) => {
                ensure!(!self.place.exists(), "another file was created there in the meantime");
                Ok(fs::rename(&self.temporary, &self.place)?)
            }
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        // It no longer exists if it was renamed.
        if is_name_of(&self.temporary, &self.file) {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Returns the names of temporary files. They are short, however long the file's name is.
fn names() -> TemporaryNames {
    TemporaryNames::new(".tyrant-export-", ".partial")
}

/// Creates a file and locks it. On a file system without locks it is not locked, and other commands
/// take none for a leftover.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::create_new(path)?;
        let _ = file.lock();
        // Another command that has found it before it was locked has removed it.
        if is_name_of(path, &file) {
            return Ok(file);
        }
    }
}

/// Removes the temporary files that killed commands have left in a folder.
fn remove_leftovers(folder: &Path) {
    // A leftover that cannot be removed does no harm.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| names().has(entry.file_name().as_bytes())) {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_file())
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
            && is_name_of(&path, &file)
        {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn write(path: &Path, may_replace: bool, text: &str) -> Result<()> {
        let mut output = Output::to(path, may_replace)?;
        output.write_all(text.as_bytes())?;
        output.finish()
    }

    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(255));
        let mut output = Output::to(&path, false).unwrap();
        output.write_all(b"half").unwrap();
        assert!(!path.exists());
        assert_eq!(files(folder.path()).len(), 1);
        drop(output);
        assert_eq!(files(folder.path()), [""; 0]);
        write(&path, false, "whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(files(folder.path()).len(), 1);
    }

    #[test]
    fn a_file_is_replaced_only_on_request_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, false, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let error = write(&path, false, "new").unwrap_err().to_string();
        assert!(error.contains("--replace"), "{error}");
        let mut output = Output::to(&path, true).unwrap();
        output.write_all(b"half").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, true, "new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(files(folder.path()), ["file"]);
    }

    #[test]
    fn a_file_created_in_the_meantime_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let output = Output::to(&path, false).unwrap();
        fs::write(&path, "theirs").unwrap();
        assert!(output.finish().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(files(folder.path()), ["file"]);
    }

    #[test]
    fn two_exports_into_one_folder_have_each_its_own_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // As of two containers, the process id is the same.
        let mut one = Output::to(&path("one"), false).unwrap();
        one.write_all(b"one").unwrap();
        let mut other = Output::to(&path("other"), false).unwrap();
        other.write_all(b"other").unwrap();
        one.finish().unwrap();
        other.finish().unwrap();
        assert_eq!(fs::read(path("one")).unwrap(), b"one");
        assert_eq!(fs::read(path("other")).unwrap(), b"other");
        assert_eq!(files(folder.path()), ["one", "other"]);
    }

    #[test]
    fn the_file_of_a_killed_export_is_removed_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (left, mine) = (names().random().into_string().unwrap(), ".tyrant-export-1.partial");
        fs::write(path(&left), "left").unwrap();
        fs::write(path(mine), "mine").unwrap();
        let output = Output::to(&path("a"), false).unwrap();
        assert!(!path(&left).exists());
        output.finish().unwrap();
        assert_eq!(files(folder.path()), [mine, "a"]);
    }

    #[test]
    fn a_replaced_temporary_file_is_an_error_and_takes_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for may_replace in [false, true] {
            let output = Output::to(&path, may_replace).unwrap();
            let Output::Whole(whole) = &output else { panic!("it is written directly") };
            let temporary = whole.temporary.clone();
            fs::remove_file(&temporary).unwrap();
            fs::write(&temporary, "theirs").unwrap();
            let error = output.finish().unwrap_err().to_string();
            assert!(error.contains("replaced its temporary file"), "{error}");
            assert_eq!(fs::read(&temporary).unwrap(), b"theirs");
            assert_eq!(path.exists(), may_replace);
            fs::write(&path, "old").unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn links_are_kept_and_devices_are_written_directly() {
        let folder = tempfile::tempdir().unwrap();
        let (other, link) = (folder.path().join("other"), folder.path().join("link"));
        fs::create_dir(&other).unwrap();
        symlink(other.join("file"), &link).unwrap();
        assert!(write(&link, true, "x").is_err());
        fs::write(other.join("file"), "old").unwrap();
        write(&link, true, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(other.join("file")).unwrap(), b"new");
        assert_eq!(files(&other), ["file"]);
        write(Path::new("/dev/null"), false, "x").unwrap();
        assert!(write(folder.path(), true, "x").is_err());
    }
}
