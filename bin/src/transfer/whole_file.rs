//! Atomic output files: written under a temporary name and renamed when complete.
//!
//! If a command is interrupted, the previous file remains. Devices and pipes are written directly.

use crate::say::{STANDARD_OUTPUT, named};
use crate::signals::Cleanup;
use anyhow::{Context, Result, bail, ensure};
use cabinet::files::{folder_of, sync_folder};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;

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
        // It is short, however long the file's name is.
        let name = format!(".tyrant-export-{}.partial", process::id());
        let temporary = folder_of(place).join(name);
        let removed = temporary.clone();
        let cleanup = Cleanup::on_signals(move || {
            let _ = fs::remove_file(&removed);
        })?;
        let ending = cleanup.hold();
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = match file {
            // A killed process with the same id has left it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&temporary)?;
                File::create_new(&temporary)?
            }
            file => file?,
        };
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
        let _ = fs::remove_file(&self.temporary);
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
