//! Repositories: a folder of files, and of catalogs that list the files of each backup.

use super::catalog::{CATALOG_BYTES_MAX, Catalog, FileEntry, Stamp, object};
use super::sums::{Sums, SumsBuilder, read_blocks, read_expected, sums_of};
use crate::signals::Cleanup;
use crate::time;
use anyhow::{Context, Result, anyhow, bail, ensure};
use cabinet::files::open_file;
use cabinet::{Damage, Inventory};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "tyrant backups\t1";

/// The file that marks a folder as a repository.
const REPOSITORY: &str = "repository";
const REPOSITORY_NEW: &str = "repository.new";
const REPOSITORY_BYTES_MAX: u64 = 256;

/// Temporary name of the file being copied, in the folder of files.
const INCOMING: &str = "incoming";

/// Suffix of a catalog.
const SUFFIX: &str = ".backup";

/// Advice about a damaged catalog: the names of its files are known from it alone.
pub(crate) const REMOVE_CATALOG: &str =
    "a backup is lost with its catalog, and the others are not: remove this file";

/// An open repository.
pub(crate) struct Repository {
    folder: PathBuf,
    /// Random number chosen at creation; the seed of all digests.
    pub(super) id: u64,
    /// Removed before the lock ends.
    _new: NewParts,
    _cleanup: Option<Cleanup>,
    /// Locked while the repository is open.
    _file: File,
}

/// Files and folders that were made to open a repository, each after the one that it is in. They
/// are removed when this is dropped or a signal ends the program, unless a file was added: a first
/// backup that fails leaves nothing.
#[derive(Default)]
struct NewParts {
    paths: Vec<PathBuf>,
}

impl NewParts {
    fn create_folder(&mut self, path: PathBuf) -> Result<()> {
        if !path.is_dir() {
            fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
            self.paths.push(path);
        }
        Ok(())
    }

    fn remove_on_signals(&self) -> Result<Option<Cleanup>> {
        let paths = self.paths.clone();
        let clean = move || remove_if_unused(&paths);
        (!self.paths.is_empty()).then(|| Cleanup::on_signals(clean)).transpose()
    }
}

impl Drop for NewParts {
    fn drop(&mut self) {
        remove_if_unused(&self.paths);
    }
}

/// Removes paths, the last one first, up to a folder that is not empty.
fn remove_if_unused(paths: &[PathBuf]) {
    for path in paths.iter().rev() {
        let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            return;
        }
    }
}

/// Outcome of adding a file.
pub(super) struct Added {
    pub(super) entry: FileEntry,
    /// Bytes copied: 0 if the file was there already.
    pub(super) copied_bytes: u64,
}

/// Outcome of verifying backups.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    /// Backups without damage.
    pub(crate) intact: usize,
    /// Bytes of the files of these.
    pub(crate) bytes: u64,
    pub(crate) damaged_files: usize,
    /// Catalogs of the backups that have damaged files.
    pub(crate) incomplete: Vec<PathBuf>,
    pub(crate) damaged_catalogs: Vec<PathBuf>,
}

/// Backed-up log files, by name and source file.
pub(super) type KnownFiles = HashMap<(String, Stamp), FileEntry>;

impl Repository {
    /// Opens a repository to change it. With `create`, a missing or empty folder becomes a
    /// repository.
    pub(crate) fn open_to_change(folder: &Path, create: bool) -> Result<Self> {
        let mut new = NewParts::default();
        if create && !folder.join(REPOSITORY).exists() {
            make(folder, &mut new)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let repository = Self::open(folder, File::try_lock)?;
        new.create_folder(repository.backups())?;
        new.create_folder(repository.files())?;
        let _cleanup = new.remove_on_signals()?;
        Ok(Self { _new: new, _cleanup, ..repository })
    }

    /// Opens a repository to read it.
    pub(crate) fn open_to_read(folder: &Path) -> Result<Self> {
        Self::open(folder, File::try_lock_shared)
    }

    fn open(folder: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> Result<Self> {
        let path = folder.join(REPOSITORY);
        let file = match open_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let shown = folder.display();
                if !folder.exists() {
                    bail!("there is no backup repository {shown}: check the path");
                }
                bail!(
                    "{shown} is not a backup repository: name the folder that `tyrant backup create` \
                     was given"
                )
            }
            file => file.with_context(|| format!("cannot open {}", path.display()))?,
        };
        match lock(&file) {
            Err(TryLockError::WouldBlock) => bail!(
                "{} is in use by another command of `tyrant backup`: try again when that has ended",
                folder.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
            Ok(()) => {}
        }
        let inode = file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            fs::metadata(&path).is_ok_and(|present| present.ino() == inode.ino()),
            "{} was removed meanwhile by a first backup that failed: run the command again",
            folder.display()
        );
        let mut text = String::new();
        (&file)
            .take(REPOSITORY_BYTES_MAX)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let id = text
            .strip_prefix(FIRST_LINE)
            .and_then(|rest| rest.strip_prefix("\nid\t"))
            .and_then(|rest| u64::from_str_radix(rest.strip_suffix('\n')?, 16).ok());
        let id = id.with_context(|| format!("{} is damaged", path.display()))?;
        let folder = folder.to_owned();
        Ok(Self { folder, id, _new: NewParts::default(), _cleanup: None, _file: file })
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    fn backups(&self) -> PathBuf {
        self.folder.join("backups")
    }

    fn catalog_path(&self, name: &str) -> PathBuf {
        self.backups().join(format!("{name}{SUFFIX}"))
    }

    /// Returns the names of all backups, oldest first.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let folder = self.backups();
        let mut names = Vec::new();
        match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            listed => {
                for item in listed.with_context(|| format!("cannot read {}", folder.display()))? {
                    let name = item?.file_name();
                    names.extend(
                        name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).map(str::to_owned),
                    );
                }
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the newest backup whose catalog is not damaged, with its name.
    pub(super) fn newest(&self) -> Result<Option<(String, Catalog)>> {
        for name in self.names()?.into_iter().rev() {
            if let Ok(catalog) = self.catalog(&name)? {
                return Ok(Some((name, catalog)));
            }
        }
        Ok(None)
    }

    /// Returns the error of a repository without a backup.
    pub(crate) fn without_backup(&self) -> anyhow::Error {
        let shown = self.folder.display();
        anyhow!("{shown} has no backup yet: `tyrant backup create {shown}` makes one")
    }

    /// Reads a backup by its name. The inner error describes a damaged catalog.
    pub(crate) fn catalog(&self, name: &str) -> Result<Result<Catalog, Damage>> {
        ensure!(!name.contains('/'), "{name:?} is not the name of a backup");
        let path = self.catalog_path(name);
        let mut bytes = Vec::new();
        let file = match open_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
                "{shown} has no backup {name}: `tyrant backup list {shown}` prints their names",
                shown = self.folder.display()
            ),
            file => file.with_context(|| format!("cannot open {}", path.display()))?,
        };
        file.take(CATALOG_BYTES_MAX)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Catalog::decode(&text, &path),
            Err(error) => {
                let offset = error.utf8_error().valid_up_to() as u64;
                Err(Damage { file: path, offset, what: "it is not text".into() })
            }
        })
    }

    /// Reads a backup by its name. A damaged catalog is an error.
    pub(super) fn intact_catalog(&self, name: &str) -> Result<Catalog> {
        self.catalog(name)?.map_err(|damage| anyhow!("{damage}; {REMOVE_CATALOG}"))
    }

    /// Fails if a catalog is damaged.
    pub(crate) fn check_catalogs(&self) -> Result<()> {
        self.catalogs().map(drop)
    }

    /// Reads all backups, oldest first. A damaged catalog is an error.
    fn catalogs(&self) -> Result<Vec<Catalog>> {
        self.names()?.iter().map(|name| self.intact_catalog(name)).collect()
    }

    /// Returns the backed-up files of a database's log.
    pub(super) fn known(&self, database_id: u64) -> Result<KnownFiles> {
        let mut known = KnownFiles::new();
        for name in self.names()? {
            // The files of a damaged backup are copied again.
            let Ok(catalog) = self.catalog(&name)? else { continue };
            if catalog.database_id == database_id {
                known.extend(
                    catalog
                        .files
                        .into_iter()
                        .filter_map(|entry| Some(((entry.name.clone(), entry.stamp?), entry))),
                );
            }
        }
        known.retain(|_, entry| self.has(&entry.name, &entry.sums));
        Ok(known)
    }

    fn has(&self, name: &str, sums: &Sums) -> bool {
        let path = self.files().join(object(name, sums));
        path.metadata().is_ok_and(|metadata| metadata.len() == sums.bytes)
    }

    /// Adds a file. Its contents are durable on return, its name is not. With `again` it is copied
    /// even if it is in the repository.
    pub(super) fn add(&self, source: &Path, name: &str, again: bool) -> Result<Added> {
        let failed = || format!("cannot copy {}", source.display());
        let metadata = source.metadata().with_context(failed)?;
        let stamp = Inventory::is_of_log(name).then(|| Stamp::of(&metadata));
        // A killed backup may have left the file, and so may a backup of another copy of the
        // database.
        if !again && self.may_have(name, metadata.len())? {
            let sums = sums_of(source, self.id)?;
            if self.has(name, &sums) {
                let entry = FileEntry { name: name.to_owned(), sums, stamp };
                return Ok(Added { entry, copied_bytes: 0 });
            }
        }
        let incoming = self.files().join(INCOMING);
        let sums = copy(source, &incoming, self.id);
        let sums = sums.inspect_err(|_| drop(fs::remove_file(&incoming)))?;
        let entry = FileEntry { name: name.to_owned(), sums, stamp };
        let object = self.files().join(entry.object());
        fs::rename(&incoming, &object)
            .with_context(|| format!("cannot rename to {}", object.display()))?;
        Ok(Added { copied_bytes: entry.sums.bytes, entry })
    }

    /// Returns whether a file with this name and length exists.
    fn may_have(&self, name: &str, bytes: u64) -> Result<bool> {
        let prefix = format!("{name}.");
        for item in fs::read_dir(self.files())? {
            let item = item?;
            if item.file_name().to_str().is_some_and(|item| item.starts_with(&prefix))
                && item.metadata().is_ok_and(|metadata| metadata.len() == bytes)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Completes a backup of added files. Returns its name.
    pub(super) fn finish(&self, catalog: &mut Catalog) -> Result<String> {
        // Names increase even if the clock does not. Foreign files have no time.
        let last_us = self.names()?.iter().filter_map(|name| time::of_name(name)).max();
        if let Some(last_us) = last_us {
            catalog.made_us = catalog.made_us.max(last_us + 1000);
        }
        let name = time::name(catalog.made_us);
        ensure!(last_us.is_none_or(|last| time::name(last) < name), "no backup name is left");
        sync_folder(&self.files())?;
        // It has the names of the two folders, which this or a killed command may have made.
        sync_folder(&self.folder)?;
        let (path, new) = (self.catalog_path(&name), self.backups().join(INCOMING));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(catalog.encode().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        sync_folder(&self.backups())?;
        Ok(name)
    }

    /// Removes a backup, but not its files.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let path = self.catalog_path(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        sync_folder(&self.backups())
    }

    /// Removes the files that no backup needs. Returns their bytes. Fails if a catalog is damaged,
    /// because the files that it needs are unknown.
    pub(crate) fn sweep(&self) -> Result<u64> {
        let catalogs = self.catalogs()?;
        let needed: BTreeSet<String> =
            catalogs.iter().flat_map(|catalog| &catalog.files).map(FileEntry::object).collect();
        let mut bytes = 0;
        for item in fs::read_dir(self.files())? {
            let item = item?;
            if !item.file_name().to_str().is_some_and(|name| needed.contains(name)) {
                bytes += item.metadata()?.len();
                fs::remove_file(item.path())
                    .with_context(|| format!("cannot remove {}", item.path().display()))?;
            }
        }
        Ok(bytes)
    }

    /// Calls `visit` with the blocks of a file while they match the backup. Returns the first
    /// mismatch.
    pub(super) fn read(
        &self,
        entry: &FileEntry,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<Damage>> {
        let file = self.files().join(entry.object());
        let wrong = read_expected(&file, self.id, &entry.sums, visit)?;
        Ok(wrong.map(|(offset, what)| Damage { file, offset, what }))
    }

    /// Reads the files of these backups, each once, and reports damaged ones. Passes the bytes that
    /// were read to `advance`.
    pub(crate) fn verify(
        &self,
        names: &[String],
        report: &mut dyn FnMut(Damage),
        advance: &dyn Fn(u64),
    ) -> Result<Verified> {
        let mut verified = Verified::default();
        // Files that were read, and whether they are intact.
        let mut seen = BTreeMap::new();
        let mut counted = BTreeSet::new();
        for name in names {
            let catalog = match self.catalog(name)? {
                Ok(catalog) => catalog,
                Err(damage) => {
                    verified.damaged_catalogs.push(damage.file.clone());
                    report(damage);
                    continue;
                }
            };
            let mut is_intact = true;
            for entry in &catalog.files {
                is_intact &= match seen.entry(entry.object()) {
                    Entry::Occupied(seen) => *seen.get(),
                    Entry::Vacant(unseen) => {
                        let damage = self.read(entry, &mut |block| {
                            advance(block.len() as u64);
                            Ok(())
                        })?;
                        *unseen.insert(verified.count(damage, report))
                    }
                };
            }
            if !is_intact {
                verified.incomplete.push(self.catalog_path(name));
                continue;
            }
            verified.intact += 1;
            for entry in &catalog.files {
                if counted.insert(entry.object()) {
                    verified.bytes += entry.sums.bytes;
                }
            }
        }
        Ok(verified)
    }
}

impl Verified {
    /// Counts a damaged file, and reports it. Returns whether there was no damage.
    fn count(&mut self, damage: Option<Damage>, report: &mut dyn FnMut(Damage)) -> bool {
        let Some(damage) = damage else { return true };
        self.damaged_files += 1;
        report(damage);
        false
    }
}

/// Turns a folder into a repository. Missing folders above it are created too. Adds what it makes
/// to `new_parts`.
fn make(folder: &Path, new_parts: &mut NewParts) -> Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let mut missing: Vec<_> =
        folder.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    missing.reverse();
    new_parts.paths.extend_from_slice(&missing);
    fs::create_dir_all(folder)?;
    sync_above(folder, &missing)?;
    for item in fs::read_dir(folder)? {
        let name = item?.file_name();
        ensure!(
            name == REPOSITORY_NEW,
            "it is not empty: {} is in it; name a folder of its own",
            name.display()
        );
    }
    let id = RandomState::new().build_hasher().finish();
    let new = folder.join(REPOSITORY_NEW);
    new_parts.paths.push(new.clone());
    let mut file = File::create(&new)?;
    file.write_all(format!("{FIRST_LINE}\nid\t{id:016x}\n").as_bytes())?;
    file.sync_all()?;
    // Another process may have created it in the meantime.
    let path = folder.join(REPOSITORY);
    match renameat_with(CWD, &new, CWD, &path, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => {}
        renamed => {
            renamed?;
            new_parts.paths.push(path);
        }
    }
    sync_folder(folder)
}

/// Makes the names of a folder and of those above it durable, before a repository is in it. A
/// killed command may have made any of them.
fn sync_above(folder: &Path, made: &[PathBuf]) -> Result<()> {
    for below in std::path::absolute(folder)?.ancestors() {
        let Some(above) = below.parent() else { break };
        match sync_folder(above) {
            // A user may be allowed to make a folder where it cannot read.
            Err(_) if !made.iter().any(|made| below.ends_with(made)) => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Copies a file durably. Returns its sums.
fn copy(source: &Path, target: &Path, seed: u64) -> Result<Sums> {
    let failed = || format!("cannot write {}", target.display());
    let mut file = File::create(target).with_context(failed)?;
    let mut summing = SumsBuilder::new(seed);
    read_blocks(source, &mut |block| {
        summing.add(block);
        file.write_all(block).with_context(failed)
    })?;
    file.sync_all().with_context(failed)?;
    Ok(summing.finish())
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .with_context(|| format!("cannot sync {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::name::Kind;

    #[test]
    fn names_increase_with_any_clock_and_ignore_foreign_files() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::open_to_change(folder.path(), true).unwrap();
        let finish = || {
            let mut catalog = Catalog {
                made_us: 1_795_264_208_000_000,
                kind: Kind::Hash,
                database_id: 1,
                position_us: None,
                log: None,
                copied_bytes: 0,
                files: Vec::new(),
            };
            repository.finish(&mut catalog).map(|name| (name, catalog.made_us))
        };
        let put = |name: &str| fs::write(repository.catalog_path(name), "").unwrap();
        put("old");
        assert_eq!(finish().unwrap(), ("20261121T123008.000Z".into(), 1_795_264_208_000_000));
        assert_eq!(finish().unwrap(), ("20261121T123008.001Z".into(), 1_795_264_208_001_000));
        // Created with a clock that was decades ahead.
        put("20991231T235959.999Z");
        assert_eq!(finish().unwrap().0, "21000101T000000.000Z");
        put(&time::name(u64::MAX));
        finish().unwrap_err();
    }
}
