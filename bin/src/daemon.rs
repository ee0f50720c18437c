//! Daemons without forking: the program starts itself again, with a mark in the environment, and
//! waits until the child is ready.
//!
//! The child leads its own session and stays in the current folder, so that relative paths keep
//! their meaning. (Tokyo Tyrant changes to `/`, where they do not, and clears the umask.)

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

/// Variable in the environment of the child.
pub(crate) const MARK: &str = "TYRANT_DAEMON";

/// Bytes that the child writes to its standard output, a pipe to the parent, once it serves.
const READY: &[u8] = b"ready";

/// Returns whether this process is the child.
pub(crate) fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// In the parent: starts the child with this process's arguments. Blocks until the child is ready
/// (success) or has exited (its exit code; it prints its messages to the standard error).
pub(crate) fn start() -> Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    // The name may be that of a link, which says which program this is.
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let mut child = command
        .args(arguments)
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let mut said = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(READY.len() as u64)
            .read_to_end(&mut said)
            .context("cannot read from the daemon")?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("cannot wait for the daemon")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, Into::into))
}

/// In the child, first of all: leaves the session of the terminal.
pub(crate) fn detach() -> Result<()> {
    rustix::process::setsid().context("cannot create a session")?;
    Ok(())
}

/// In the child, once it serves: notifies the parent and detaches from its terminal.
pub(crate) fn ready() -> Result<()> {
    let mut output = std::io::stdout().lock();
    output
        .write_all(READY)
        .and_then(|()| output.flush())
        .context("cannot notify the parent process")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())
        .context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(&null).context("cannot redirect the standard output")?;
    rustix::stdio::dup2_stderr(&null).context("cannot redirect the standard error")?;
    Ok(())
}
