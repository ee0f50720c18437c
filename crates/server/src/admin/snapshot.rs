//! Snapshots: `copy` copies the database while it is served, to a path or for a command.
//!
//! A command gets the path of a snapshot that was made in constant time, so that no writer waits.
//! Tokyo Tyrant blocks writers and passes the path of the database itself. Its users' scripts make
//! files beside that path, as in `cp -r "$1" "$1.$2"`, and these files must end up beside the
//! database here too. Therefore the snapshot has the database's name in a folder of its own beside
//! it. Files that the command leaves in that folder are moved beside the database.

use crate::shared::Shared;
use crate::store::Store;
use cabinet::files::FolderLock;
use cabinet::name::Kind;
use cabinet::{Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Interval between two checks whether a command has ended.
const TICK: Duration = Duration::from_millis(20);

/// Most bytes of a command's output that are logged.
const OUTPUT_BYTES_MAX: u64 = 4096;

/// Copies the database to a path or, if `target` begins with `@`, runs a command on a snapshot.
pub(crate) fn copy(shared: &Shared, database: &Store, target: &[u8]) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::InvalidArgument(format!(
            "copy to \"{}\": name a path without zero bytes",
            target.escape_ascii()
        )));
    }
    let Some(command) = target.strip_prefix(b"@") else {
        let given = Path::new(OsStr::from_bytes(target));
        let path = shared.config.client_paths.new_path("copy to", given)?;
        let copied = database.copy_to(&path).map(|_| ());
        return copied.inspect_err(|error| log_failed(&path, error));
    };
    if !shared.config.copy_command || command.is_empty() {
        return Err(Error::Unsupported {
            operation: "copies by a command",
            kind: "this server",
            advice: "start it with --copy-command, and give a command",
        });
    }
    let command = OsStr::from_bytes(command);
    let path = database.path();
    if Kind::of_path(&path).is_some_and(Kind::is_on_memory) {
        // As in Tokyo Tyrant: there is no path to pass.
        let time = crate::update_log::now_us().to_string();
        return run(shared, command, &[time.as_ref()], Stdio::null(), Stdio::null())
            .and_then(succeeded)
            .map_err(|source| failed("run a command to copy", &path, source));
    }
    let for_command = CommandFolder::make(&path)?;
    let copied = database.copy_to(&for_command.snapshot);
    let copied_us = copied.inspect_err(|error| log_failed(&for_command.snapshot, error))?;
    let copied_us = copied_us.to_string();
    let called = || -> io::Result<()> {
        let output_path = for_command.folder.join(OUTPUT);
        let output = File::create_new(&output_path)?;
        let arguments = [for_command.snapshot.as_os_str(), copied_us.as_ref()];
        let status = run(shared, command, &arguments, output.try_clone()?.into(), output.into())?;
        let mut text = Vec::new();
        File::open(&output_path)?.take(OUTPUT_BYTES_MAX).read_to_end(&mut text)?;
        if !text.is_empty() {
            tracing::info!("copy: {}", String::from_utf8_lossy(&text).trim_end());
        }
        succeeded(status)?;
        for_command.move_out()
    };
    called().map_err(|source| failed("run a command to copy", &path, source))
}

/// Logs a copy that has failed. The client may be gone that would tell it.
fn log_failed(path: &Path, error: &Error) {
    tracing::error!("copy: cannot copy the database to {}: {error}", path.display());
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
    tracing::error!("copy: cannot {operation} {}: {source}", path.display());
    Error::Io { operation, path: path.to_owned(), source }
}

/// Runs a shell command with `arguments` appended, in a process group that is killed if the server
/// stops.
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
        if shared.served.is_stopping() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            return child.wait();
        }
        std::thread::sleep(TICK);
    }
}

fn succeeded(status: ExitStatus) -> io::Result<()> {
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the command ended with {status}")))
    }
}

/// Names in the command folder that the server uses itself.
const LOCK: &str = ".lock";
const OUTPUT: &str = ".printed";

/// Folder beside the database for the snapshot of one command. It is removed on drop.
struct CommandFolder {
    folder: PathBuf,
    /// Path of the snapshot.
    snapshot: PathBuf,
    _lock: FolderLock,
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
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                created => created?,
            }
            let lock = FolderLock::take(&folder.join(LOCK))?;
            // Remove the files of a server that was killed.
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => fs::remove_dir_all(entry.path())?,
                    false if entry.file_name() != LOCK => fs::remove_file(entry.path())?,
                    false => {}
                }
            }
            Ok(Self { snapshot: folder.join(name), folder, _lock: lock })
        };
        make().map_err(|source| failed("make a folder beside", database, source))
    }

    /// Moves the files that a command has made beside the snapshot to the database's folder.
    fn move_out(&self) -> io::Result<()> {
        let outside = self.folder.parent().ok_or(io::ErrorKind::InvalidFilename)?;
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            if name == LOCK || name == OUTPUT || self.snapshot.file_name() == Some(&name) {
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
            tracing::warn!(
                "copy: cannot remove {}, remove it by hand: {error}",
                self.folder.display()
            );
        }
    }
}
