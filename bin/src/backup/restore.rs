//! Restoring a database from a backup.

use super::catalog::Catalog;
use super::repository::{Repository, sync_folder};
use crate::temporary::TemporaryFolder;
use crate::time;
use crate::transfer::import_once::suffix;
use crate::transfer::progress::Progress;
use anyhow::{Context, Result, bail, ensure};
use cabinet::files::{FolderLock, folder_of};
use cabinet::name::Kind;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use server::{CopyPosition, POSITION_FILE, Replayed};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

/// Source and target of a restore.
#[derive(Clone, Debug)]
pub(crate) struct Restore {
    /// Name of the backup; without one the newest, or with `until` the newest before that.
    pub(crate) backup: Option<String>,
    /// Path of the database.
    pub(crate) into: PathBuf,
    /// Replace an existing database.
    pub(crate) replace: bool,
    /// Apply the changes after the backup up to this time.
    pub(crate) until: Option<Until>,
}

/// A time after a backup.
#[derive(Clone, Debug)]
pub(crate) struct Until {
    /// Microseconds since 1970, inclusive.
    pub(crate) time_us: u64,
    /// Folder of the server's update log.
    pub(crate) update_log: PathBuf,
}

/// Outcome of a restore.
#[derive(Clone, Debug)]
pub(crate) struct Restored {
    pub(crate) backup: String,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    /// Time stamp in the server's update log up to which the backup had everything.
    pub(crate) position_us: Option<u64>,
    /// Outcome of executing the update log.
    pub(crate) replayed: Option<Replayed>,
}

impl Restore {
    /// Restores the database. If it fails, the database's name is as it was before. A link is kept,
    /// and its target restored.
    pub(crate) fn run(&self, repository: &Repository) -> Result<Restored> {
        if !self.into.is_symlink() {
            return self.run_at_place(repository);
        }
        let into = &self.into;
        ensure!(into.exists(), "{} is a broken symbolic link", into.display());
        let into = fs::canonicalize(into);
        let into = into.with_context(|| format!("cannot follow {}", self.into.display()))?;
        Self { into, ..self.clone() }.run_at_place(repository)
    }

    fn run_at_place(&self, repository: &Repository) -> Result<Restored> {
        let (backup, catalog) = self.choose(repository)?;
        let kind = Kind::of_path(&self.into);
        if kind != Some(catalog.kind) {
            bail!(
                "the backup is of a {} database, and {} has another suffix: name it {}",
                catalog.kind.title(),
                self.into.display(),
                self.into.with_extension(suffix(catalog.kind)).display()
            );
        }
        ensure!(
            self.replace || !self.into.exists(),
            "{} exists: name another path, or replace a database there with --replace",
            self.into.display()
        );
        // A database that is open is refused before its backup is copied, too.
        drop(self.check_target()?);
        let temporary = temporary(&self.into, catalog.kind)?;
        let unchanged = format!(
            "{} is as it was before; the same command restores from the beginning",
            self.into.display()
        );
        copy_files(repository, &catalog, temporary.path(), &unchanged)?;
        let opening = Progress::of_time("opening the database").explain(unchanged);
        let (replayed, records) = self.open_and_replay(temporary.path(), &catalog)?;
        let last_us = replayed.as_ref().and_then(|replayed| replayed.last_us);
        if let Some(timestamp_us) = last_us.or(catalog.position_us) {
            let position = CopyPosition { timestamp_us, log: catalog.log.clone() };
            write_durably(&temporary.path().join(POSITION_FILE), position.text().as_bytes())?;
        }
        sync_folder(temporary.path())?;
        drop(opening);
        self.move_into_place(&temporary)?;
        let position_us = catalog.position_us;
        Ok(Restored { backup, bytes: catalog.bytes(), records, position_us, replayed })
    }

    fn choose(&self, repository: &Repository) -> Result<(String, Catalog)> {
        if let Some(name) = &self.backup {
            return Ok((name.clone(), repository.intact_catalog(name)?));
        }
        for name in repository.names()?.into_iter().rev() {
            let catalog = repository.intact_catalog(&name)?;
            match &self.until {
                Some(until) if catalog.position_us.is_none_or(|at| at > until.time_us) => {}
                _ => return Ok((name, catalog)),
            }
        }
        match &self.until {
            None => Err(repository.without_backup()),
            Some(until) => bail!(
                "there is no backup of a server with an update log from before {}: choose a time after \
                 one that `tyrant backup list` prints as UPDATE LOG UP TO; if it prints none, start the \
                 server with --update-log for the backups to come",
                time::format_time(until.time_us)
            ),
        }
    }

    /// Opens the restored database, and applies the update log up to the requested time.
    fn open_and_replay(&self, path: &Path, catalog: &Catalog) -> Result<(Option<Replayed>, u64)> {
        let mut options = cabinet::Options::default();
        options.create = false;
        let database = options.open(path).context("cannot open the restored database")?;
        let Some(until) = &self.until else { return Ok((None, server::count_records(&database)?)) };
        let Some(position_us) = catalog.position_us else {
            bail!(
                "the backup is not of a server with an update log, so no later changes are known"
            );
        };
        ensure!(
            position_us <= until.time_us,
            "the backup is of {}, after the requested time",
            time::format_time(position_us)
        );
        let log = &until.update_log;
        let position = CopyPosition { timestamp_us: position_us, log: catalog.log.clone() };
        let replayed = server::replay(database.clone(), log, &position, until.time_us)
            .with_context(|| format!("cannot execute the update log in {}", log.display()))?;
        Ok((Some(replayed), server::count_records(&database)?))
    }

    /// Fails if the path is a folder that is not a database, or a database that is open. Returns
    /// the lock of a database.
    fn check_target(&self) -> Result<Option<FolderLock>> {
        let into = &self.into;
        let folder = folder_of(into);
        ensure!(
            folder.is_dir(),
            "cannot restore to {}: there is no folder {}; make it, or check the path",
            into.display(),
            folder.display()
        );
        if !into.exists() {
            return Ok(None);
        }
        ensure!(
            into.is_dir(),
            "{} is a file and no database: name another path, or remove it",
            into.display()
        );
        ensure!(
            into.join("manifest").exists(),
            "{} is a folder but not a database: name another path",
            into.display()
        );
        match FolderLock::take(&into.join("lock")) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(cabinet::Error::InUse { path: into.clone() }.into())
            }
            lock => lock.map(Some).with_context(|| format!("cannot lock {}", into.display())),
        }
    }

    /// Renames the restored database to its final name.
    fn move_into_place(&self, temporary: &TemporaryFolder) -> Result<()> {
        let into = &self.into;
        // A signal now would remove a part of the restored database.
        let _signals = temporary.hold_signals();
        let _lock = self.check_target()?;
        let failed = || format!("cannot rename to {}", into.display());
        if !into.exists() {
            renameat_with(CWD, temporary.path(), CWD, into, RenameFlags::NOREPLACE)
                .with_context(failed)?;
            return sync_folder(folder_of(into));
        }
        ensure!(self.replace, "{} exists", into.display());
        give_to_owner_of(into, temporary.path())?;
        renameat_with(CWD, temporary.path(), CWD, into, RenameFlags::EXCHANGE)
            .with_context(failed)?;
        // The replaced database is removed with the temporary folder.
        sync_folder(folder_of(into))
    }
}

/// Gives a folder and its files to the owner of another one, for whom a server may run, and the
/// folder its permissions.
fn give_to_owner_of(other: &Path, folder: &Path) -> Result<()> {
    let owner = fs::metadata(other)?;
    fs::set_permissions(folder, owner.permissions())?;
    let present = fs::metadata(folder)?;
    if (owner.uid(), owner.gid()) == (present.uid(), present.gid()) {
        return Ok(());
    }
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    for path in files.chain([Ok::<_, std::io::Error>(folder.to_owned())]) {
        let path = path?;
        chown(&path, Some(owner.uid()), Some(owner.gid())).with_context(|| {
            format!("cannot give {} to the owner of {}", path.display(), other.display())
        })?;
    }
    Ok(())
}

/// Creates the folder beside the database that is swapped with it. Those that killed restores have
/// left are removed.
fn temporary(into: &Path, kind: Kind) -> Result<TemporaryFolder> {
    let report = |error| eprintln!("tyrant: a leftover of an earlier restore remains: {error:#}");
    let words = ("restoring", "another program is restoring to");
    let temporary = TemporaryFolder::beside_database(into, suffix(kind), words, report)?;
    let path = temporary.path();
    fs::create_dir(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(temporary)
}

/// Copies the files of a backup durably, verifying each.
fn copy_files(
    repository: &Repository,
    catalog: &Catalog,
    folder: &Path,
    unchanged: &str,
) -> Result<()> {
    let progress = Progress::of_bytes("restoring", Some(catalog.bytes())).explain(unchanged);
    for entry in &catalog.files {
        let path = folder.join(&entry.name);
        let failed = || format!("cannot write {}", path.display());
        let mut file = File::create_new(&path).with_context(failed)?;
        let damage = repository.read(entry, &mut |block| {
            progress.advance(block.len() as u64);
            file.write_all(block).with_context(failed)
        })?;
        if let Some(damage) = damage {
            bail!("the backup is damaged: {damage}; --backup NAME restores another one");
        }
        file.sync_all().with_context(failed)?;
    }
    Ok(())
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
