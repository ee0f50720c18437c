//! Source of a backup: a copy of a database, made by its server or from a database that is not
//! served.

use crate::errors::require;
use crate::temporary::{TemporaryFolder, TemporaryNames, remove_leftovers};
use crate::transfer::progress::Progress;
use anyhow::{Context, Result, anyhow, bail, ensure};
use cabinet::Database;
use cabinet::files::folder_of;
use cabinet::name::{Kind, Specification};
use client::Settings;
use server::CopyPosition;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Part of the name of a copy between the database's name and the digits.
const INFIX: &str = ".backup-";

/// The database to back up.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The database of a running server on this machine.
    Server {
        /// Address of the server.
        server: String,
        /// Settings of the connection.
        settings: Box<Settings>,
        /// Folder for the copy, by a path valid for both processes; without one, beside the
        /// database.
        by_way_of: Option<PathBuf>,
    },
    /// The name of a database that is not open.
    Database(String),
}

/// A copy of a database, removed when this is dropped.
pub(super) struct Snapshot {
    copy: TemporaryFolder,
    /// Names of all copies of the database. Each backup has one of its own: the server may still be
    /// making the copy for a killed one.
    names: TemporaryNames,
}

impl Source {
    /// Returns what the database is called in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Database(name) => name.clone(),
            Self::Server { server, .. } => format!("that of {server}"),
        }
    }

    /// Creates the copy. Copies that killed backups have left beside it are removed first.
    pub(super) fn snapshot(&self, progress: &Progress) -> Result<Snapshot> {
        match self {
            Self::Database(name) => of_database(name),
            Self::Server { server, settings, by_way_of } => {
                of_server(server, settings, by_way_of.as_deref(), progress)
            }
        }
    }
}

impl Snapshot {
    /// Claims a new name in `folder` for a copy of a database.
    fn begin(folder: &Path, database: &Path) -> Result<Self> {
        let name = database.file_name();
        let name = name.with_context(|| format!("{} is not a database", database.display()))?;
        let mut prefix = name.to_owned();
        prefix.push(INFIX);
        let names = TemporaryNames::new(prefix, "");
        let snapshot = Self { copy: TemporaryFolder::begin(folder, &names)?, names };
        snapshot.remove_leftovers();
        Ok(snapshot)
    }

    /// Removes the copies that earlier backups have left.
    fn remove_leftovers(&self) {
        remove_leftovers(folder_of(self.path()), &self.names, |error| {
            eprintln!("tyrant: a copy of an earlier backup is still there: {error:#}")
        });
    }

    pub(super) fn path(&self) -> &Path {
        self.copy.path()
    }

    /// Removes the copy, and those that the server has only now begun for killed backups.
    pub(super) fn remove(self) -> Result<()> {
        self.remove_leftovers();
        self.copy.remove()
    }

    /// Returns the position of the copy in the server's update log, if there is one.
    pub(super) fn position(&self) -> Result<Option<CopyPosition>> {
        let path = self.path().join(server::POSITION_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Some(
            CopyPosition::parse(&text)
                .with_context(|| format!("{} does not contain a time stamp", path.display()))?,
        ))
    }
}

fn of_database(name: &str) -> Result<Snapshot> {
    let mut specification = Specification::parse(name)?;
    specification.options.create = false;
    let Specification { kind, path, .. } = &specification;
    require(!kind.is_on_memory(), "a database in memory has no files to back up")?;
    let database = Database::open_specification(&specification)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let snapshot = Snapshot::begin(folder_of(path), path)?;
    // A signal does not end the program between the removal of the copy and its last file.
    let held = snapshot.copy.hold_signals();
    database.copy_to(snapshot.path())?;
    drop(held);
    Ok(snapshot)
}

fn of_server(
    server: &str,
    settings: &Settings,
    by_way_of: Option<&Path>,
    progress: &Progress,
) -> Result<Snapshot> {
    let client = crate::remote::Server::connect(server, settings)?;
    let stat = client.stat()?;
    let database = Path::new(OsStr::from_bytes(line_of(&stat, "path").unwrap_or_default()));
    let kind = Kind::of_path(database).filter(|kind| !kind.is_on_memory());
    ensure!(
        kind.is_some(),
        "{server} serves a database in memory, which has no files to back up: \"tyrant list --values\" \
         prints its records, and a replica of it on disk can be backed up"
    );
    let folder = match by_way_of {
        Some(folder) => std::path::absolute(folder)?,
        None => {
            let here = on_this_machine(database, &stat).with_context(|| {
                format!(
                    "{}, which {server} serves, is not on this machine, or this user may not look \
                     there: run this where the server runs, as its user or root, or name a folder \
                     that is the same for both with --by-way-of",
                    database.display()
                )
            })?;
            here.parent().map(Path::to_owned).unwrap_or_default()
        }
    };
    let snapshot = Snapshot::begin(&folder, database)?;
    let path = snapshot.path();
    let ask = || client.copy(path.as_os_str().as_bytes());
    let copied = snapshot.copy.ask(progress.bar(), ask);
    copied.map_err(|error| {
        let text = client.explain("copy", error.into()).to_string();
        // The message has the server once.
        let text = text.strip_prefix(&client.failure("").to_string()).unwrap_or(&text);
        anyhow!("{server} cannot copy its database for the backup: {}", advised(text, &folder))
    })?;
    if !path.is_dir() {
        bail!(
            "{server} has copied its database to {}, which is not there on this machine",
            path.display()
        );
    }
    Ok(snapshot)
}

/// Returns a refusal of a copy with what to do.
fn advised(refusal: &str, folder: &Path) -> String {
    let folder = folder.display();
    match refusal {
        _ if refusal.contains("--copy-dir DIR") => refusal.replace(
            "--copy-dir DIR",
            &format!(
                "--copy-dir {folder}, or with another folder on the same file system, which \
                 --by-way-of DIR names for the backup"
            ),
        ),
        _ if refusal.contains("--copy-dir") => {
            format!(
                "{refusal}; name that folder with --by-way-of, or start it with --copy-dir {folder}"
            )
        }
        _ => refusal.to_owned(),
    }
}

/// Returns the value of a line of a server's status.
fn line_of<'s>(stat: &'s [u8], name: &str) -> Option<&'s [u8]> {
    stat.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"\t"))
}

/// Returns the path of a server's database, if it exists on this machine. A relative path is
/// resolved in the working folder of the server's process.
fn on_this_machine(database: &Path, stat: &[u8]) -> Option<PathBuf> {
    let path = if database.is_absolute() {
        database.to_owned()
    } else {
        let process = std::str::from_utf8(line_of(stat, "pid")?).ok()?;
        ensure_number(process)?;
        fs::read_link(format!("/proc/{process}/cwd")).ok()?.join(database)
    };
    path.join("manifest").exists().then_some(path)
}

fn ensure_number(text: &str) -> Option<()> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_found_by_its_whole_name() {
        let stat = b"pathology\t1\npath\t/a b\nrnum\t7\n";
        assert_eq!(line_of(stat, "path"), Some(&b"/a b"[..]));
        assert_eq!(line_of(stat, "pat"), None);
    }
}
