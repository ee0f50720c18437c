//! `copy`: a copy of the database while it is served, to a path or by way of a command.
//!
//! A command gets the path of a copy, which was made in constant time, so that nobody waits for
//! it. Tokyo Tyrant has its writers wait and gives it the path of the database itself. What its
//! users' scripts make beside that path, as in `cp -r "$1" "$1.$2"`, has to end up beside the
//! database nevertheless: so the copy has the database's name in a folder of its own beside it, and
//! what the command leaves in that folder is moved out of it.

use crate::shared::Shared;
use crate::store::Store;
use cabinet::io::{RealStorage, Storage};
use cabinet::name::Kind;
use cabinet::{Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// File in a copy that holds the time stamp of the last entry of the update log that is in it, in
/// decimal, and a line end: what a replica's file of `-rts` holds.
pub const POSITION_FILE: &str = "position";

/// Between two looks whether a command has ended.
const TICK: Duration = Duration::from_millis(20);

/// Bytes of what a command prints that get into the log.
const OUTPUT_BYTES_MAX: u64 = 4096;

/// Copies to a path or, with `@` in front, has a command make the copy.
pub(crate) fn copy(shared: &Shared, database: &Store, target: &[u8]) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::NotSupported("a copy to such a path".into()));
    }
    let Some(command) = target.strip_prefix(b"@") else {
        let given = Path::new(OsStr::from_bytes(target));
        let path = shared.config.client_paths.new_path("copy to", given)?;
        return database.copy_to(&path).map(|_| ());
    };
    if !shared.config.copy_command || command.is_empty() {
        return Err(Error::NotSupported("a command that makes the copy".into()));
    }
    let command = OsStr::from_bytes(command);
    let path = database.path();
    if Kind::of_path(&path).is_some_and(Kind::is_on_memory) {
        // As Tokyo Tyrant has it: there is nothing that it could name.
        let time = crate::update_log::now_us().to_string();
        return run(shared, command, &[time.as_ref()], Stdio::null(), Stdio::null())
            .and_then(succeeded)
            .map_err(|source| failed("run a command to copy", &path, source));
    }
    let beside = CommandFolder::make(&path)?;
    let copied_us = database.copy_to(&beside.copy)?.to_string();
    let called = || -> io::Result<()> {
        let printed = beside.folder.join(OUTPUT);
        let output = File::create_new(&printed)?;
        let arguments = [beside.copy.as_os_str(), copied_us.as_ref()];
        let status = run(shared, command, &arguments, output.try_clone()?.into(), output.into())?;
        let mut text = Vec::new();
        File::open(&printed)?.take(OUTPUT_BYTES_MAX).read_to_end(&mut text)?;
        if !text.is_empty() {
            tracing::info!("copy: {}", String::from_utf8_lossy(&text).trim_end());
        }
        succeeded(status)?;
        beside.move_out()
    };
    called().map_err(|source| failed("run a command to copy", &path, source))
}

/// Notes in a copy up to which time stamp it has what was logged, durably.
pub(crate) fn write_position(copy: &Path, timestamp_us: u64) -> Result<()> {
    let path = copy.join(POSITION_FILE);
    let write = || {
        let mut file = File::create(&path)?;
        file.write_all(format!("{timestamp_us}\n").as_bytes())?;
        file.sync_all()?;
        File::open(copy)?.sync_all()
    };
    write().map_err(|source| failed("write", &path, source))
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
    tracing::error!("copy: cannot {operation} {}: {source}", path.display());
    Error::Io { operation, path: path.to_owned(), source }
}

/// Runs a command of the shell with these arguments behind it, in a group of processes of its own,
/// which ends with the server.
fn run(
    shared: &Shared,
    command: &OsStr,
    arguments: &[&OsStr],
    output: Stdio,
    errors: Stdio,
) -> io::Result<ExitStatus> {
    let mut script = command.to_owned();
    script.push(" \"$@\"");
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .arg("sh")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if shared.is_stopping() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            return child.wait();
        }
        std::thread::sleep(TICK);
    }
}

fn succeeded(status: ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}

/// Names in the folder of a copy that are not for the command.
const LOCK: &str = ".lock";
const OUTPUT: &str = ".printed";

/// A folder beside the database, for one copy at a time. It goes when this is dropped.
struct CommandFolder {
    folder: PathBuf,
    /// Where the copy goes.
    copy: PathBuf,
    _lock: Box<dyn std::any::Any + Send + Sync>,
}

impl CommandFolder {
    fn make(database: &Path) -> Result<Self> {
        let make = || {
            let database = std::path::absolute(database)?;
            let name = database.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(".copying");
            let folder = database.with_file_name(hidden);
            RealStorage.create_dir(&folder)?;
            let lock = RealStorage.lock(&folder.join(LOCK))?;
            // What a server has left that was killed.
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => fs::remove_dir_all(entry.path())?,
                    false if entry.file_name() != LOCK => fs::remove_file(entry.path())?,
                    false => {}
                }
            }
            Ok(Self { copy: folder.join(name), folder, _lock: lock })
        };
        make().map_err(|source| failed("make a folder beside", database, source))
    }

    /// Moves what a command has made beside the copy to where it is beside the database.
    fn move_out(&self) -> io::Result<()> {
        let outside = self.folder.parent().ok_or(io::ErrorKind::InvalidFilename)?;
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            if name == LOCK || name == OUTPUT || self.copy.file_name() == Some(&name) {
                continue;
            }
            let to = outside.join(&name);
            renameat_with(CWD, self.folder.join(&name), CWD, &to, RenameFlags::NOREPLACE)
                .map_err(|error| io::Error::other(format!("{}: {error}", to.display())))?;
        }
        Ok(())
    }
}

impl Drop for CommandFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!("copy: {} stays: {error}", self.folder.display());
        }
    }
}
